"""A batch of messages, handled as columns: check, stamp, and the columns that dispatch is fed with.

    buffer   | message 0 | message 1 | message 2 | ...          lengths  [l0, l1, l2, ...]

Law: no Python object per message. `check` and `stamp` have two ways each, a `struct` loop for a few messages and numpy
for many; verdicts and bytes are equal. When all lengths are equal, a field of all messages is one strided view.
Does not know: entries and preambles; where lengths came from (so a lengths column is never believed, but compared).
"""

import struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from model import properties as props
from model.errors import MessageIllegal
from model.message import (
    BODY_AT,
    BODY_SIZE_AT,
    HEAD,
    MAGIC,
    MAGIC_AT,
    OVERHEAD,
    PLACE,
    POSITION_AT,
    PROPERTIES_SIZE,
    QUEUE_AT,
    QUEUE_OFFSET_AT,
    STORE_MS_AT,
    STORED,
    SYSTEM_FLAG_AT,
    TOPIC_BYTES_MAX,
    TOPIC_SIZE,
    WIDE_HOSTS,
    Lengths,
    MessageView,
    find_fault,
    walk,
)
from model.ports import Buffer

NUMPY_FROM = 24  # messages; a loop costs 1.1 us each, numpy 13 us at once (36 when the lengths differ)
KEYS_MAX = 255  # per message: their count is one byte

HEAD_DTYPE = np.dtype(
    {
        "names": ["size", "magic", "queue", "system_flag", "body_size"],
        "formats": [">u4", ">u4", ">i4", ">i4", ">u4"],
        "offsets": [0, MAGIC_AT, QUEUE_AT, SYSTEM_FLAG_AT, BODY_SIZE_AT],
        "itemsize": HEAD.size,
    }
)


class Columns(NamedTuple):
    """One row per message, keys flat: message i has the next key_counts[i] of them."""

    lengths: npt.NDArray[np.uint32]  # '>u4'
    tags: npt.NDArray[np.int64]  # '>i8'
    key_counts: npt.NDArray[np.uint8]  # 'u1'
    keys: npt.NDArray[np.int32]  # '>i4'


def check(buffer: Buffer, lengths: Lengths, topic: str, queue: int) -> None:
    """Raise MessageIllegal unless the buffer is exactly these messages, well formed, for this topic and queue."""
    name = topic.encode()
    if len(lengths) < NUMPY_FROM or not check_numpy(buffer, lengths, name, queue):
        check_plain(buffer, lengths, name, queue)  # after numpy's no: names the culprit


def stamp(
    buffer: bytearray | memoryview,
    lengths: Lengths,
    *,
    queue: int,
    first_offset: int,
    position: int,
    store_ms: int,
    store_host: bytes,
) -> None:
    """Write what the leader decides into checked messages; `position` is the commitlog position of the first."""
    way = stamp_plain if len(lengths) < NUMPY_FROM else stamp_numpy
    way(buffer, lengths, queue, first_offset, position, STORED.pack(store_ms, store_host))


def check_plain(buffer: Buffer, lengths: Lengths, topic: bytes, queue: int) -> None:
    at, end = 0, len(buffer)
    for number, length in enumerate(lengths.tolist()):
        if length > end - at:
            fault: str | None = f"{length} bytes long by the column, {end - at} are left"
        else:
            fault = find_fault(buffer, at, length, topic, queue)
        if fault is not None:
            raise MessageIllegal(f"message {number}, {at} bytes into the batch: {fault}")
        at += length
    if at != end:
        raise MessageIllegal(f"{end - at} bytes follow the last message")


def stamp_plain(
    buffer: bytearray | memoryview, lengths: Lengths, queue: int, first_offset: int, position: int, stored: bytes
) -> None:
    at, place, queue_raw = 0, PLACE.pack_into, struct.pack(">i", queue)
    for offset, length in enumerate(lengths.tolist(), first_offset):
        buffer[at + QUEUE_AT : at + QUEUE_AT + 4] = queue_raw
        place(buffer, at + QUEUE_OFFSET_AT, offset, position + at)
        buffer[at + STORE_MS_AT : at + STORE_MS_AT + len(stored)] = stored
        at += length


def check_numpy(buffer: Buffer, lengths: Lengths, topic: bytes, queue: int) -> bool:
    """The verdict of `check_plain`, without the reason."""
    if not 0 < len(topic) <= TOPIC_BYTES_MAX:
        return False
    if not _all_equal(lengths):
        return _check_uneven(buffer, lengths, topic, queue)
    count, length = len(lengths), int(lengths[0])
    room = length - OVERHEAD - len(topic)  # for body and properties
    if room < 0 or length * count != len(buffer):
        return False
    body_size = int.from_bytes(buffer[BODY_SIZE_AT:BODY_AT])
    if not 0 <= room - body_size <= props.PROPERTIES_BYTES_MAX:
        return False
    tail = TOPIC_SIZE.pack(len(topic)) + topic + PROPERTIES_SIZE.pack(room - body_size)
    for at, expected in (
        (0, struct.pack(">II", length, MAGIC)),
        (QUEUE_AT, struct.pack(">i", queue)),
        (BODY_SIZE_AT, struct.pack(">I", body_size)),
        (BODY_AT + body_size, tail),
    ):
        if _column(buffer, f"V{len(expected)}", at, count, length).tobytes() != expected * count:
            # Not yet a no: sizes can be equal while bodies are not.
            return _check_uneven(buffer, lengths, topic, queue)
    system_flags: npt.NDArray[np.uint8] = np.ndarray((count,), np.uint8, buffer, SYSTEM_FLAG_AT + 3, (length,))
    return not (system_flags & WIDE_HOSTS).any()


def _check_uneven(buffer: Buffer, lengths: Lengths, topic: bytes, queue: int) -> bool:
    sizes = lengths.astype(np.int64)
    starts = _starts(sizes)
    room = sizes - (OVERHEAD + len(topic))
    if (room < 0).any() or int(starts[-1] + sizes[-1]) != len(buffer):
        return False
    head = _gather(buffer, f"V{HEAD.size}", starts).view(HEAD_DTYPE)
    body_sizes = head["body_size"].astype(np.int64)
    room -= body_sizes
    if (room < 0).any() or (head["size"] != sizes).any() or (head["magic"] != MAGIC).any():
        return False
    if (head["queue"] != queue).any() or (head["system_flag"] & WIDE_HOSTS).any():
        return False
    name = TOPIC_SIZE.pack(len(topic)) + topic
    names_at = starts + (body_sizes + BODY_AT)
    if _gather(buffer, f"V{len(name)}", names_at).tobytes() != name * len(sizes):
        return False
    return bool((_gather(buffer, ">i2", names_at + len(name)) == room).all())


def stamp_numpy(
    buffer: bytearray | memoryview, lengths: Lengths, queue: int, first_offset: int, position: int, stored: bytes
) -> None:
    count, length = len(lengths), int(lengths[0])
    offsets = np.arange(first_offset, first_offset + count)
    stored_all = np.frombuffer(stored, f"V{len(stored)}")
    if _all_equal(lengths):
        _column(buffer, ">i4", QUEUE_AT, count, length)[:] = queue
        _column(buffer, ">i8", QUEUE_OFFSET_AT, count, length)[:] = offsets
        _column(buffer, ">i8", POSITION_AT, count, length)[:] = np.arange(position, position + count * length, length)
        _column(buffer, stored_all.dtype.str, STORE_MS_AT, count, length)[:] = stored_all
        return
    starts = _starts(lengths.astype(np.int64))
    _anywhere(buffer, ">i4", QUEUE_AT)[starts] = queue
    _anywhere(buffer, ">i8", QUEUE_OFFSET_AT)[starts] = offsets
    _anywhere(buffer, ">i8", POSITION_AT)[starts] = starts + position
    _anywhere(buffer, stored_all.dtype.str, STORE_MS_AT)[starts] = stored_all


def columns(buffer: Buffer) -> Columns:
    """What dispatch needs to know of these messages, read from their properties. Refuses malformed messages."""
    lengths = walk(buffer)
    if len(lengths) >= NUMPY_FROM and _all_equal(lengths):
        alike = _columns_alike(buffer, lengths)
        if alike is not None:
            return alike
    tags, counts, keys, at = [], [], list[int](), 0
    for number, length in enumerate(lengths.tolist()):
        fault = find_fault(buffer, at, length)
        if fault is None:
            tag, found = _tag_and_keys(buffer, at, length)
            if len(found) > KEYS_MAX:
                fault = f"{len(found)} keys, at most {KEYS_MAX} are possible"
        if fault is not None:
            raise MessageIllegal(f"message {number}, {at} bytes into the batch: {fault}")
        tags.append(tag)
        counts.append(len(found))
        keys += found
        at += length
    return Columns(lengths, np.array(tags, ">i8"), np.array(counts, "u1"), np.array(keys, ">i4"))


def _tag_and_keys(buffer: Buffer, at: int, length: int) -> tuple[int, list[int]]:
    """Tag hash and key hashes of one well-formed message; the hot half of a single send, so without a view object."""
    topic_at = at + BODY_AT + int.from_bytes(buffer[at + BODY_SIZE_AT : at + BODY_AT]) + TOPIC_SIZE.size
    topic_end = topic_at + buffer[topic_at - 1]
    properties_at = topic_end + PROPERTIES_SIZE.size
    if properties_at == at + length:
        return 0, []
    found = props.parse(buffer[properties_at : at + length])
    keys = props.index_keys(found)
    topic = str(buffer[topic_at:topic_end], "utf-8", "replace") if keys else ""
    return props.tag_hash(found.get(props.TAGS)), [props.index_hash(topic, key) for key in keys]


def _columns_alike(buffer: Buffer, lengths: Lengths) -> Columns | None:
    """The same for messages that differ only inside body and property values, as one producer's batch does.

    None when they differ more: separators, names, topics and sizes must all be where the first message has them.
    """
    count, length = len(lengths), int(lengths[0])
    first = MessageView(buffer)
    if find_fault(buffer, 0, length) is not None or len(first.keys) > KEYS_MAX:
        return None  # the general way says what is wrong
    raw = bytes(first.raw)
    names_at = BODY_AT + first.head.body_size
    properties_at = length - len(first.raw_properties)
    sizes_and_flags = ((0, MAGIC_AT + 4), (SYSTEM_FLAG_AT, SYSTEM_FLAG_AT + 4), (BODY_SIZE_AT, BODY_AT))
    for start, end in (*sizes_and_flags, (names_at, properties_at)):
        if _column(buffer, f"V{end - start}", start, count, length).tobytes() != raw[start:end] * count:
            return None
    empty = Columns(lengths, np.zeros(count, ">i8"), np.zeros(count, "u1"), np.zeros(0, ">i4"))
    if properties_at == length:
        return empty
    rows = np.ndarray((count, length - properties_at), np.uint8, buffer, properties_at, (length, 1))
    if (rows >= 0x80).any() or not _same_frame(rows):
        return None
    spans = _value_spans(raw[properties_at:])
    tag = spans.get(props.TAGS)
    tags = empty.tags if tag is None else props.java_hash_rows(rows[:, tag]).astype(">i8")
    key_spans = [spans[props.UNIQ_KEY]] if props.UNIQ_KEY in spans else []
    if props.KEYS in spans:
        if not _same_where(rows[:, spans[props.KEYS]] == ord(" ")):
            return None
        key_spans += _words(raw[properties_at:], spans[props.KEYS])
    keys = np.empty((count, len(key_spans)), ">i4")
    for i, span in enumerate(key_spans):
        keys[:, i] = props.fold_hash_rows(props.java_hash_rows(rows[:, span], first.topic + "#"))
    return Columns(lengths, tags, np.full(count, len(key_spans), "u1"), keys.reshape(-1))


def _same_frame(rows: npt.NDArray[np.uint8]) -> bool:
    """Whether separators are at the same places and names are the same in all rows."""
    if not _same_where(rows == 1) or not _same_where(rows == 2):
        return False
    first, at = rows[0].tobytes(), 0
    for pair in first.split(b"\x02"):
        name = pair.partition(b"\x01")[0]
        if (rows[:, at : at + len(name)] != rows[0, at : at + len(name)]).any():
            return False
        at += len(pair) + 1
    return True


def _same_where(marks: npt.NDArray[np.bool_]) -> bool:
    return bool((marks == marks[0]).all())


def _value_spans(raw: bytes) -> dict[str, slice]:
    """Where each property's value lies; skips what `properties.parse` skips."""
    spans, at = {}, 0
    for pair in raw.split(b"\x02"):
        name, _, value = pair.partition(b"\x01")
        if name and value:
            spans[name.decode()] = slice(at + len(name) + 1, at + len(pair))
        at += len(pair) + 1
    return spans


def _words(raw: bytes, span: slice) -> list[slice]:
    words, at = [], span.start
    for word in raw[span].split(b" "):
        if word:
            words.append(slice(at, at + len(word)))
        at += len(word) + 1
    return words


def _all_equal(lengths: Lengths) -> bool:
    return lengths.tobytes() == lengths[:1].tobytes() * len(lengths)


def _starts(sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    starts: npt.NDArray[np.int64] = np.cumsum(sizes) - sizes
    return starts


def _column(buffer: Buffer, dtype: str, at: int, count: int, stride: int) -> npt.NDArray[np.generic]:
    """A field of messages of equal size: a view into the buffer."""
    return np.ndarray((count,), dtype, buffer, at, (stride,))


def _anywhere(buffer: Buffer, dtype: str, at: int) -> npt.NDArray[np.generic]:
    """The same field read at every byte of the buffer; indexing it with starts reaches each message's own.

    Elements overlap and are unaligned: numpy copies them one by one, in 5 us a thousand; an array of byte indices
    would take 20.
    """
    size = np.dtype(dtype).itemsize
    return np.ndarray((len(buffer) - at - size + 1,), dtype, buffer, at, (1,))


def _gather(buffer: Buffer, dtype: str, starts: npt.NDArray[np.int64]) -> npt.NDArray[np.generic]:
    return _anywhere(buffer, dtype, 0)[starts]
