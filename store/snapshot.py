"""Control snapshots: the replicated state at one position, so that recovery need not replay the whole log.

Law: a snapshot is written whole, twice, and synced before an older one is removed; nobody may act on it (drop the
log's head, say) before `write` has returned.

    0     4        8           16       20
    | magic | format | body size | crc32c | body: msgpack array of the fields of ControlSnapshot |
    (the crc covers the 16 bytes before it and the body)

Files: config/snapshot/<20-digit position>.0 and .1. One intact copy is enough. If the newest position has only one
file and that is damaged, its `write` never returned, so an older snapshot still counts; two damaged ones are damage.
Decoding never trusts: wrong types, bounds and orders are DamagedState, whatever the crc says, because the same bytes
also arrive from the wire.
Does not know: what the state means, when a snapshot is due.
"""

import re
import struct
from dataclasses import astuple, dataclass
from itertools import pairwise
from typing import Any

import crc32c
import msgpack

from model.errors import NewerFormat
from store.disk import Disk
from store.hardstate import DamagedState

DIRECTORY = "config/snapshot"
_MAGIC = b"DLCS"
_FORMAT = 1
_HEAD = struct.Struct(
    ">4s"  # magic
    "I"  # format
    "Q"  # size of the body
)
_CRC = struct.Struct(">I")
_BODY_AT = _HEAD.size + _CRC.size
_NAME = re.compile(r"(\d{20})\.([01])")
_INT_MAX = 2**63 - 1
_CRC_MAX = 2**32 - 1


@dataclass(frozen=True, slots=True)
class ControlSnapshot:
    position: int  # Q: the state holds every entry below it
    log_start: int  # S: the log that belongs to it begins here
    base_term: int  # term of the byte before S
    base_chain: int  # chain crc at S
    epochs: tuple[tuple[int, int], ...]  # (term, start) runs that cover [S, Q)
    memberships: tuple[tuple[int, bytes], ...]  # (position, -1 = initial): the one in force at S, then later ones < Q
    chain: int  # chain crc at Q
    time_ms: int  # leader time of the last entry below Q
    state: bytes


def encode(snapshot: ControlSnapshot) -> bytes:
    body: bytes = msgpack.packb(astuple(snapshot))
    head = _HEAD.pack(_MAGIC, _FORMAT, len(body))
    return head + _CRC.pack(crc32c.crc32c(body, crc32c.crc32c(head))) + body


def decode(data: bytes | memoryview) -> ControlSnapshot:
    """The snapshot in these bytes; DamagedState for anything that `encode` did not write."""
    if len(data) < _BODY_AT:
        raise DamagedState("a control snapshot is too short")
    magic, version, size = _HEAD.unpack_from(data)
    (crc,) = _CRC.unpack_from(data, _HEAD.size)
    body = memoryview(data)[_BODY_AT:]
    if magic != _MAGIC or size != len(body) or crc != crc32c.crc32c(body, crc32c.crc32c(data[: _HEAD.size])):
        raise DamagedState("a control snapshot does not match its checksum")
    if version > _FORMAT:
        raise NewerFormat(f"a control snapshot has format {version}, this release knows up to {_FORMAT}")
    try:
        parts = msgpack.unpackb(body, use_list=False)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise DamagedState(f"a control snapshot cannot be parsed: {error}") from error
    if version != _FORMAT or not _sensible(parts):
        raise DamagedState("a control snapshot has fields out of bounds")
    return ControlSnapshot(*parts)


def write(disk: Disk, snapshot: ControlSnapshot) -> None:
    """Blocking. On return both copies are durable and older snapshots are gone."""
    data = encode(snapshot)
    for copy in "01":
        disk.replace(_name(snapshot.position, copy), data)
    older = [(position, copy) for position, copy in _copies(disk) if position < snapshot.position]
    for position, copy in older:
        disk.remove(_name(position, copy))


def load_newest(disk: Disk) -> ControlSnapshot | None:
    """The newest snapshot, None if none was ever written. Changes nothing on disk."""
    copies = _copies(disk)
    for position in sorted({position for position, _ in copies}, reverse=True):
        present = [_name(*copy) for copy in copies if copy[0] == position]
        for name in present:
            snapshot = _try_decode(disk.read(name))
            if snapshot is not None and snapshot.position == position:
                return snapshot
        if len(present) == 2:
            raise DamagedState(f"{' and '.join(present)}: no valid copy")
    if copies:
        raise DamagedState(f"{DIRECTORY}: no valid snapshot")
    return None


def damaged_copies(disk: Disk) -> tuple[str, ...]:
    """Names of snapshot files that do not verify, for reports."""
    names = [_name(*copy) for copy in _copies(disk)]
    return tuple(name for name in names if _try_decode(disk.read(name)) is None)


def _name(position: int, copy: str) -> str:
    return f"{DIRECTORY}/{position:020d}.{copy}"


def _copies(disk: Disk) -> list[tuple[int, str]]:
    """(position, copy) of each snapshot file; other names (a temporary file of a crash) are not ours to judge."""
    matches = (_NAME.fullmatch(name) for name in disk.list(DIRECTORY))
    return [(int(match[1]), match[2]) for match in matches if match is not None]


def _try_decode(data: bytes) -> ControlSnapshot | None:
    try:
        return decode(data)
    except DamagedState:
        return None


def _sensible(parts: Any) -> bool:
    if not isinstance(parts, tuple) or len(parts) != 9:
        return False
    position, log_start, base_term, base_chain, epochs, memberships, chain, time_ms, state = parts
    return (
        all(_is_int(number, 0, _INT_MAX) for number in (position, log_start, base_term, time_ms))
        and log_start <= position
        and all(_is_int(crc, 0, _CRC_MAX) for crc in (base_chain, chain))
        and _are_pairs(epochs, int, 0)
        and all(before[0] < after[0] and before[1] < after[1] for before, after in pairwise(epochs))
        and [start for _, start in epochs[:1]] == ([log_start] if log_start < position else [])
        and all(base_term <= term and start < position for term, start in epochs)
        and _are_pairs(memberships, bytes, -1)
        and all(before[0] < after[0] for before, after in pairwise(memberships))
        and all(at < position for at, _ in memberships)
        and isinstance(state, bytes)
    )


def _is_int(value: Any, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most


def _are_pairs(value: Any, second: type, least: int) -> bool:
    return isinstance(value, tuple) and all(
        isinstance(pair, tuple) and len(pair) == 2 and _is_int(pair[0], least, _INT_MAX) and type(pair[1]) is second
        for pair in value
    )
