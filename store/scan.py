"""The log part of recovery: how far do the bytes on disk verify, and what does the failure mean.

    start ....... good entries ....... x ???????
                            durable <= x : a torn tail, the log ends at x
                            x < durable  : damage, nothing on disk is changed

Law: bytes below `durable` were once on disk for certain, so if they do not verify now, they are damaged, and cutting
them would lose what was acknowledged; bytes above may never have been written whole. Every flipped byte, cut, missing
or empty file ends in a ScanResult. Does not know: snapshots, votes, peers; who decides what to do about damage.
"""

from typing import NamedTuple

from model.ports import Buffer
from store.disk import Disk, DiskError, File
from store.entry import ENVELOPE_BYTES, CorruptEntry, Walk
from store.segment import open_whole, segment_name

CHUNK_BYTES = 1 << 20  # large enough that crc, not the system call, is the cost; a mark is kept for each
TORN_SEARCH_BYTES = 1 << 20  # torn_bytes is for people; recycled files hold old bytes to their end, so do not read on


class Damage(NamedTuple):
    position: int  # the first entry that does not verify begins here
    reason: str
    durable: int  # everything up to here was once on disk

    def __str__(self) -> str:
        return f"log damaged at {self.position}, below the durable watermark {self.durable}: {self.reason}"


class ScanResult(NamedTuple):
    end: int  # of the last entry that verifies
    chain: int
    last_time_ms: int
    runs: tuple[tuple[int, int], ...]  # (term, start)
    memberships: tuple[tuple[int, bytes], ...]  # (position, body)
    damage: Damage | None
    torn_bytes: int  # how far something other than zeros reaches beyond the end, for people
    marks: tuple[tuple[int, int], ...]  # (boundary, chain) now and then, for CommitLog.open_at


def scan(disk: Disk, segment_bytes: int, start: int, start_chain: int, durable: int) -> ScanResult:
    """Walk the entries from the boundary `start`. A DiskError means that bytes above `durable` cannot be read: they
    may be good, so that is neither a tear nor known damage."""
    walk = Walk(start, start_chain)
    marks: list[tuple[int, int]] = []
    reason: str | None = None
    while reason is None:
        reason = _scan_segment(disk, segment_bytes, walk, marks, durable)
    damage = Damage(walk.position, reason, durable) if walk.position < durable else None
    return ScanResult(
        end=walk.position,
        chain=walk.chain or 0,
        last_time_ms=walk.time_ms,
        runs=tuple(walk.runs),
        memberships=tuple(walk.memberships),
        damage=damage,
        torn_bytes=0 if damage else _torn_bytes(disk, segment_bytes, walk.position),
        marks=tuple(marks),
    )


def _scan_segment(
    disk: Disk, segment_bytes: int, walk: Walk, marks: list[tuple[int, int]], durable: int
) -> str | None:
    """Walk to the end of a segment (None) or to where and why it does not go on."""
    base = walk.position // segment_bytes * segment_bytes
    name = segment_name(base)
    if not disk.exists(name):
        return f"{name} is missing"
    file = disk.open(name)
    try:
        return _scan_file(file, base, segment_bytes, walk, marks)
    except CorruptEntry as error:
        return error.reason
    except DiskError as error:
        if walk.position >= durable:
            raise
        return str(error)
    finally:
        file.close()


def _scan_file(
    file: File, base: int, segment_bytes: int, walk: Walk, marks: list[tuple[int, int]]
) -> str | None:
    walk.need = ENVELOPE_BYTES
    while (offset := walk.position - base) < segment_bytes:
        room = segment_bytes - offset
        chunk = file.pread(offset, min(room, max(CHUNK_BYTES, walk.need)))
        if len(chunk) < walk.need:
            return f"the entry reaches beyond the end of {file.name}"
        marks.append((walk.position, walk.chain or 0))
        walk.consume(chunk, 0)
    return None


def _torn_bytes(disk: Disk, segment_bytes: int, end: int) -> int:
    name = segment_name(end // segment_bytes * segment_bytes)
    if not disk.exists(name):
        return 0
    file = disk.open(name)
    try:
        return len(file.pread(end % segment_bytes, TORN_SEARCH_BYTES).rstrip(b"\0"))
    finally:
        file.close()


def repair_in_place(
    disk: Disk, segment_bytes: int, position: int, payload: Buffer, chain_before: int
) -> tuple[int, int]:
    """Write whole entries that a peer has at `position`, if they continue `chain_before`; durable on return.

    Returns the position and chain reached. CorruptEntry: these bytes do not belong here, and nothing was changed."""
    parts: list[tuple[int, memoryview]] = []
    rest = memoryview(payload)
    walk = Walk(position, chain_before)
    while rest:
        at = walk.position
        part = rest[: segment_bytes - at % segment_bytes]
        if walk.consume(part, 0) != len(part):
            raise CorruptEntry(walk.position, "the bytes end inside an entry, or it crosses a segment")
        parts.append((at, part))
        rest = rest[len(part) :]
    for at, part in parts:
        file = open_whole(disk, at // segment_bytes * segment_bytes, segment_bytes)
        file.write_at(at % segment_bytes, part)
        disk.sync(disk.ticket([file]))
        file.close()
    return walk.position, walk.chain or 0
