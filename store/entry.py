"""One entry of the log: a 48-byte envelope and a body.

    0      4     8           16     24         32     36          40         44          48
    magic  size  leader time term   position   kind   chain crc   body crc   body size   body ...

Law: an entry proves itself (body crc), its place (position) and everything before it: the chain crc is the crc32c of
all envelopes from position 0 to here, chain fields left out. So equal chains mean equal logs, and bytes left over from
an earlier life of the file fit nowhere. Does not know: what a body means, segments, files.
"""

import struct
from enum import IntEnum
from typing import NamedTuple

from crc32c import crc32c

from model.ports import Buffer

MAGIC = 0x444C4D51  # "DLMQ"

FRONT = struct.Struct(">I"  # magic
                      "I"   # size: envelope + body
                      "q"   # leader time in ms
                      "q"   # term
                      "q"   # position = Raft index
                      "i")  # kind
BACK = struct.Struct(">I"   # body crc
                     "I")   # body size
ENVELOPE = struct.Struct(FRONT.format + "I" + BACK.format[1:])  # the chain crc stands between the two
CHAIN = struct.Struct(">I")
CHAIN_AT = FRONT.size
BODY_CRC_AT = CHAIN_AT + CHAIN.size
ENVELOPE_BYTES = ENVELOPE.size
assert (CHAIN_AT, BODY_CRC_AT, ENVELOPE_BYTES) == (36, 40, 48)


class EntryKind(IntEnum):
    DATA = 1
    NOOP = 2
    MEMBERSHIP = 3
    BLANK = 4  # fills the end of a segment


KIND_MIN, KIND_MAX = min(EntryKind), max(EntryKind)


class CorruptEntry(Exception):
    """Bytes that should be an entry are not. `position` is -1 where the place in the log is not known."""

    def __init__(self, position: int, reason: str) -> None:
        self.position = position
        self.reason = reason
        super().__init__(f"no valid entry at {position}: {reason}")


class Header(NamedTuple):
    position: int
    size: int
    term: int
    time_ms: int
    kind: int
    chain: int
    body_crc: int
    body_size: int

    @property
    def end(self) -> int:
        return self.position + self.size


class Extent(NamedTuple):
    """What a run of whole entries holds, as far as consensus wants to know."""

    start: int
    end: int
    runs: tuple[tuple[int, int], ...]  # (term, start)
    memberships: tuple[tuple[int, bytes], ...]  # (position, body)
    chain: int  # at end
    last_time_ms: int


def pack(
    position: int, term: int, time_ms: int, kind: int, body: Buffer, previous_chain: int
) -> tuple[bytes, int]:
    """The envelope for `body`, and the chain crc after it."""
    body_size = len(body)
    front = FRONT.pack(MAGIC, ENVELOPE_BYTES + body_size, time_ms, term, position, kind)
    back = BACK.pack(crc32c(body), body_size)
    chain = crc32c(back, crc32c(front, previous_chain))
    return front + CHAIN.pack(chain) + back, chain


def chain_after(buffer: Buffer, at: int, previous_chain: int) -> int:
    """What the chain crc of the envelope at `at` must be after `previous_chain`."""
    view = memoryview(buffer)
    front = crc32c(view[at : at + CHAIN_AT], previous_chain)
    return crc32c(view[at + BODY_CRC_AT : at + ENVELOPE_BYTES], front)


def peek(buffer: Buffer, at: int, position: int) -> Header:
    """The envelope at `at`, checked for shape and place; its body need not be there."""
    if len(buffer) - at < ENVELOPE_BYTES:
        raise CorruptEntry(position, "the bytes end inside the envelope")
    magic, size, time_ms, term, stated, kind, chain, body_crc, body_size = ENVELOPE.unpack_from(buffer, at)
    if magic != MAGIC or stated != position or size != ENVELOPE_BYTES + body_size or not KIND_MIN <= kind <= KIND_MAX:
        raise CorruptEntry(position, _why(magic, size, body_size, stated, position, kind))
    return Header(position, size, term, time_ms, kind, chain, body_crc, body_size)


def verify(buffer: Buffer, at: int, position: int, previous_chain: int | None) -> Header:
    """`peek`, and the body crc, and the chain when the one before is known."""
    header = peek(buffer, at, position)
    if len(buffer) - at < header.size:
        raise CorruptEntry(position, "the bytes end inside the body")
    if previous_chain is not None and chain_after(buffer, at, previous_chain) != header.chain:
        raise CorruptEntry(position, _WRONG_CHAIN)
    if crc32c(memoryview(buffer)[at + ENVELOPE_BYTES : at + header.size]) != header.body_crc:
        raise CorruptEntry(position, _WRONG_BODY)
    return header


_WRONG_CHAIN = "the chain crc does not fit what comes before"
_WRONG_BODY = "the body crc does not fit the body"


def _why(magic: int, size: int, body_size: int, stated: int, position: int, kind: int) -> str:
    if magic != MAGIC:
        return f"wrong magic {magic:#010x}"
    if stated != position:
        return f"the entry says it belongs at {stated}"
    if size != ENVELOPE_BYTES + body_size:
        return f"size {size} and body size {body_size} contradict each other"
    return f"unknown kind {kind}"


NO_TERM = -(1 << 64)  # outside the field's range, so that the first entry always opens a run


class Walk:
    """Walks whole entries over pieces of the log, verifying everything, and notes what consensus wants to know.

    After any failure the fields tell how far the log is good."""

    __slots__ = ("chain", "memberships", "need", "position", "runs", "term", "time_ms")

    def __init__(self, position: int, chain: int | None) -> None:
        self.position = position
        self.chain = chain  # None: take the first entry's own word for it
        self.term = NO_TERM
        self.time_ms = 0
        self.runs: list[tuple[int, int]] = []
        self.memberships: list[tuple[int, bytes]] = []
        self.need = ENVELOPE_BYTES  # bytes the next entry wants, as far as it is known

    def consume(self, buffer: Buffer, at: int) -> int:
        """Take all whole entries from `at` on; where it stopped, the rest is the beginning of an entry."""
        view = memoryview(buffer)
        total = len(view)
        unpack = ENVELOPE.unpack_from
        while total - at >= ENVELOPE_BYTES:
            magic, size, time_ms, term, stated, kind, chain, body_crc, body_size = unpack(view, at)
            position = self.position
            body_at = at + ENVELOPE_BYTES
            if magic != MAGIC or stated != position or size != body_size + ENVELOPE_BYTES or not 1 <= kind <= 4:
                raise CorruptEntry(position, _why(magic, size, body_size, stated, position, kind))
            if size > total - at:
                self.need = size
                return at
            if self.chain is not None:
                front = crc32c(view[at : at + CHAIN_AT], self.chain)
                if crc32c(view[at + BODY_CRC_AT : body_at], front) != chain:
                    raise CorruptEntry(position, _WRONG_CHAIN)
            if crc32c(view[body_at : at + size]) != body_crc:
                raise CorruptEntry(position, _WRONG_BODY)
            if term != self.term:
                if term < self.term or term < 0:
                    raise CorruptEntry(position, f"term {term} after term {max(0, self.term)}")
                self.runs.append((term, position))
                self.term = term
            if kind == EntryKind.MEMBERSHIP:
                self.memberships.append((position, bytes(view[body_at : at + size])))
            self.chain = chain
            self.time_ms = time_ms
            self.position = position + size
            at += size
        self.need = ENVELOPE_BYTES
        return at


def inspect(payload: Buffer, start: int, chain_before: int | None = None) -> Extent:
    """Verify whole entries back to back. Without the chain before them, the first envelope's time and term are only
    as good as the transport: nothing else covers them."""
    walk = Walk(start, chain_before)
    if walk.consume(payload, 0) != len(payload):
        raise CorruptEntry(walk.position, "the bytes end inside an entry")
    return Extent(
        start, walk.position, tuple(walk.runs), tuple(walk.memberships), walk.chain or 0, walk.time_ms
    )
