"""The preamble of a data body: what the entry does, in columns, before its messages.

    version 1 | 0 | batches 2 | messages 4 | keys 4 | control size 4        fixed part, 16 bytes
    control                                                                 msgpack list of commands
    per sub-batch: queue 4 | count 4 | first offset 8 | sequence 8 | topic size 1 | producer size 1 | topic | producer
    lengths  4 x messages                                                   stored size of each message
    tags     8 x messages                                                   tag hash of each
    key counts 1 x messages                                                 keys of each
    keys     4 x keys                                                       key hashes, flat
    messages ...

Law: big-endian; columns are views over the body, never copies; a body that contradicts itself raises CorruptEntry and
never IndexError. Does not know: what a command or a message means.
"""

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from model.ports import Buffer
from store.entry import CorruptEntry

VERSION = 1

FIXED = struct.Struct(">B"  # version
                      "x"   # reserved
                      "H"   # number of sub-batches
                      "I"   # number of messages
                      "I"   # number of keys
                      "I")  # size of control
BATCH = struct.Struct(">i"  # queue
                      "I"   # count of messages
                      "q"   # first queue offset
                      "q"   # producer sequence, -1: none
                      "B"   # size of topic
                      "B")  # size of producer id or dedup key
assert (FIXED.size, BATCH.size) == (16, 26)

U4 = np.dtype(">u4")
I8 = np.dtype(">i8")
U1 = np.dtype("u1")
I4 = np.dtype(">i4")
MESSAGE_COLUMNS_BYTES = U4.itemsize + I8.itemsize + U1.itemsize

SMALL = 32  # below about this many numbers a plain sum is cheaper than calling numpy

Column: TypeAlias = NDArray[Any]


class SubBatch(NamedTuple):
    topic: str
    queue: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody calls
    first_offset: int
    producer: bytes = b""  # 0..255 bytes
    sequence: int = -1  # -1: `producer` is a dedup key or nothing


class Preamble(NamedTuple):
    control: bytes
    batches: tuple[SubBatch, ...]
    lengths: Column  # >u4
    tags: Column  # >i8
    key_counts: Column  # u1
    keys: Column  # >i4
    messages_at: int  # where the first message starts in the body

    @property
    def size(self) -> int:
        return self.messages_at


def preamble_bytes(control: bytes, batches: Sequence[SubBatch], messages: int, keys: int) -> int:
    """The size pack_preamble will reach, so that physical offsets can be stamped before packing."""
    names = sum(len(batch.topic.encode()) + len(batch.producer) for batch in batches)
    columns = messages * MESSAGE_COLUMNS_BYTES + keys * I4.itemsize
    return FIXED.size + len(control) + len(batches) * BATCH.size + names + columns


def pack_preamble(
    control: bytes,
    batches: Sequence[SubBatch],
    lengths: ArrayLike,
    tags: ArrayLike,
    key_counts: ArrayLike,
    keys: ArrayLike,
) -> bytes:
    """Columns of equal length (keys: as many as key_counts says in all); batch counts add up to that length."""
    sizes = np.asarray(lengths, U4)
    hashes = np.asarray(keys, I4)
    parts = [FIXED.pack(VERSION, len(batches), len(sizes), len(hashes), len(control)), control]
    for batch in batches:
        topic = batch.topic.encode()
        parts.append(
            BATCH.pack(
                batch.queue, batch.count, batch.first_offset, batch.sequence, len(topic), len(batch.producer)
            )
        )
        parts.append(topic)
        parts.append(batch.producer)
    parts += [
        sizes.tobytes(), np.asarray(tags, I8).tobytes(), np.asarray(key_counts, U1).tobytes(), hashes.tobytes()
    ]
    return b"".join(parts)


def parse_preamble(body: Buffer) -> Preamble:
    """The preamble of a data body; its claims are checked against each other and against the size of the body."""
    total = len(body)
    if total < FIXED.size:
        raise CorruptEntry(-1, "the body ends inside the preamble")
    version, batch_count, messages, key_total, control_size = FIXED.unpack_from(body)
    if version != VERSION:
        raise CorruptEntry(-1, f"preamble version {version} is not known to this build")
    at = FIXED.size + control_size
    if at > total:
        raise CorruptEntry(-1, "the body ends inside the control commands")
    control = bytes(body[FIXED.size : at]) if control_size else b""
    batches, at = _parse_batches(body, at, batch_count)
    messages_at = at + messages * MESSAGE_COLUMNS_BYTES + key_total * I4.itemsize
    if messages_at > total:
        raise CorruptEntry(-1, "the body ends inside the columns")
    lengths = np.frombuffer(body, U4, messages, at)
    at += lengths.nbytes
    tags = np.frombuffer(body, I8, messages, at)
    at += tags.nbytes
    key_counts = np.frombuffer(body, U1, messages, at)
    at += key_counts.nbytes
    keys = np.frombuffer(body, I4, key_total, at)
    if sum([batch.count for batch in batches]) != messages:
        raise CorruptEntry(-1, "the sub-batches do not add up to the number of messages")
    if _total(lengths) != total - messages_at:
        raise CorruptEntry(-1, "the lengths do not add up to the bytes of the messages")
    if _total(key_counts) != key_total:
        raise CorruptEntry(-1, "the key counts do not add up to the number of keys")
    return Preamble(control, batches, lengths, tags, key_counts, keys, messages_at)


def _total(column: Column) -> int:
    if len(column) <= SMALL:
        return sum(column.tolist())
    return int(column.sum(dtype=np.uint64))


def _parse_batches(body: Buffer, at: int, count: int) -> tuple[tuple[SubBatch, ...], int]:
    batches: list[SubBatch] = []
    total = len(body)
    for _ in range(count):
        if total - at < BATCH.size:
            raise CorruptEntry(-1, "the body ends inside a sub-batch")
        queue, messages, first_offset, sequence, topic_size, producer_size = BATCH.unpack_from(body, at)
        producer_at = at + BATCH.size + topic_size
        if total < producer_at + producer_size:
            raise CorruptEntry(-1, "the body ends inside a sub-batch")
        try:
            topic = str(body[at + BATCH.size : producer_at], "utf-8")
        except UnicodeDecodeError as error:
            raise CorruptEntry(-1, "a topic is not UTF-8") from error
        at = producer_at + producer_size
        batches.append(SubBatch(topic, queue, messages, first_offset, bytes(body[producer_at:at]), sequence))
    return tuple(batches), at
