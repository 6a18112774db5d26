"""The stored message: RocketMQ's layout, version 1, IPv4 hosts. What is stored is what consumers receive.

     0      4      8        12     16    20            28        36        40        48         56
    +------+------+--------+------+-----+-------------+---------+---------+---------+----------+
    | size | magic| body   | queue| flag| queue       | position| system  | born    | born     |
    |      |      | crc    |   *  |     | offset   *  |      *  | flag    | ms      | host     |
    +------+------+--------+------+-----+-------------+---------+---------+---------+----------+
    56         64         72          76         84     88
    +----------+----------+-----------+----------+------+--------+---+---------+-------+------------+
    | store ms | store    | reconsume | prepared | body | body...| t | topic...| p (2) | properties |
    |      *   | host  *  | times     | position | size |        |(1)|         |       |            |
    +----------+----------+-----------+----------+------+--------+---+---------+-------+------------+

Law: producers build, the leader stamps the fields marked * (model/batch.py), nothing else ever changes a byte.
Messages lie back to back; a batch of them travels with its column of lengths.
Does not know: entries, queues' next offsets, who may send.
"""

import ipaddress
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import repeat
from typing import NamedTuple, TypedDict, Unpack

import numpy as np
import numpy.typing as npt

from model import properties as props
from model.errors import MessageIllegal
from model.ports import Buffer

Lengths = npt.NDArray[np.uint32]  # either byte order; '>u4' as stored

MAGIC = 0xDAA320A7  # version 1: one byte for the topic's length
HOST = struct.Struct(">4s"  # IPv4 address
                     "i")   # port
HEAD = struct.Struct(">I"   # size of the whole message, this field included
                     "I"    # magic
                     "I"    # CRC-32 of the body as stored, without its highest bit
                     "i"    # queue
                     "i"    # flag: the application's own
                     "q"    # offset in the queue
                     "q"    # position of this message in the commitlog
                     "i"    # system flag: compression, transaction state, width of the hosts
                     "q"    # born: the producer's clock, ms
                     "8s"   # born host
                     "q"    # stored: the leader's clock, ms
                     "8s"   # store host
                     "i"    # times this message was consumed in vain
                     "q"    # position of the prepared half of a transaction
                     "I")   # size of the body
TOPIC_SIZE = struct.Struct(">b")
PROPERTIES_SIZE = struct.Struct(">h")

MAGIC_AT = struct.calcsize(">I")
QUEUE_AT = struct.calcsize(">III")
QUEUE_OFFSET_AT = struct.calcsize(">IIIii")
POSITION_AT = struct.calcsize(">IIIiiq")
SYSTEM_FLAG_AT = struct.calcsize(">IIIiiqq")
STORE_MS_AT = struct.calcsize(">IIIiiqqiq8s")
BODY_SIZE_AT = HEAD.size - struct.calcsize(">I")
BODY_AT = HEAD.size
OVERHEAD = HEAD.size + TOPIC_SIZE.size + PROPERTIES_SIZE.size  # a message's size without body, topic and properties

# The parts of HEAD that a check reads and a stamp writes; the bytes between them are skipped.
SHAPE = struct.Struct(">II4xi20xi44xI")  # size, magic, queue, system flag, body size
PLACE = struct.Struct(">qq")             # at QUEUE_OFFSET_AT: queue offset, position
STORED = struct.Struct(">q8s")           # at STORE_MS_AT: store ms, store host
assert HOST.size == 8 and HEAD.size == SHAPE.size == 88 and OVERHEAD == 91
assert (QUEUE_OFFSET_AT, POSITION_AT, SYSTEM_FLAG_AT, STORE_MS_AT) == (20, 28, 36, 56)
assert QUEUE_OFFSET_AT + PLACE.size == SYSTEM_FLAG_AT

CRC_MASK = 0x7FFFFFFF  # Java readers keep it in a signed int
TOPIC_BYTES_MAX = 127  # the length is a signed byte
WIDE_HOSTS = 0x30  # system flag bits: born or store host is IPv6; offsets behind it would move
NO_HOST = bytes(HOST.size)


class Head(NamedTuple):
    """HEAD, unpacked."""

    size: int
    magic: int
    body_crc: int
    queue: int
    flag: int
    queue_offset: int
    position: int
    system_flag: int
    born_ms: int
    born_host: bytes
    store_ms: int
    store_host: bytes
    reconsume_times: int
    prepared_position: int
    body_size: int


def pack_host(address: str, port: int) -> bytes:
    """A peer for the host fields; IPv6 does not fit and old clients could not read it: 0.0.0.0 stands for it."""
    host = ipaddress.ip_address(address)
    narrow = host if isinstance(host, ipaddress.IPv4Address) else host.ipv4_mapped
    return HOST.pack(bytes(4) if narrow is None else narrow.packed, port)


def host_text(host: bytes) -> str:
    address, port = HOST.unpack(host)
    return f"{ipaddress.IPv4Address(address)}:{port}"


def message_id(store_host: bytes, position: int) -> str:
    """The id a send is answered with; clients read the position out of it again."""
    return (store_host + struct.pack(">q", position)).hex().upper()


class Fields(TypedDict, total=False):
    """What a producer may set besides topic, body and properties; 0 when left out."""

    queue: int
    flag: int
    system_flag: int
    born_ms: int
    born_host: bytes
    reconsume_times: int
    prepared_position: int


def build(topic: str, body: bytes, properties: bytes = b"", **fields: Unpack[Fields]) -> bytes:
    """One message, not yet stamped. `properties` are encoded already."""
    return build_many(topic, (body,), properties, **fields)


def build_many(
    topic: str, bodies: Sequence[bytes], properties: bytes | Sequence[bytes] = b"", **fields: Unpack[Fields]
) -> bytes:
    """Messages back to back. `properties`: one encoded string for all of them, or one for each."""
    name = topic.encode()
    if not 0 < len(name) <= TOPIC_BYTES_MAX:
        raise MessageIllegal(f"the topic's name has {len(name)} bytes; 1 to {TOPIC_BYTES_MAX} are possible")
    system_flag = fields.get("system_flag", 0)
    if system_flag & WIDE_HOSTS:
        raise MessageIllegal(f"system flag {system_flag:#x} announces IPv6 hosts, which this layout cannot hold")
    get = fields.get
    fixed = HEAD.pack(
        0, MAGIC, 0, get("queue", 0), get("flag", 0), 0, 0, system_flag, get("born_ms", 0), get("born_host", NO_HOST),
        0, NO_HOST, get("reconsume_times", 0), get("prepared_position", 0), 0,
    )[QUEUE_AT:BODY_SIZE_AT]
    tails: Iterable[bytes]
    if isinstance(properties, bytes):
        tails = repeat(pack_tail(name, properties), len(bodies))
    else:
        tails = [pack_tail(name, each) for each in properties]
    start, body_size, crc32 = struct.Struct(">III").pack, struct.Struct(">I").pack, zlib.crc32
    parts: list[bytes] = []
    for body, tail in zip(bodies, tails, strict=True):
        size = len(body)
        crc = crc32(body) & CRC_MASK
        parts += (start(BODY_AT + size + len(tail), MAGIC, crc), fixed, body_size(size), body, tail)
    return b"".join(parts)


def pack_tail(topic: bytes, properties: bytes) -> bytes:
    if len(properties) > props.PROPERTIES_BYTES_MAX:
        raise MessageIllegal(f"the properties take {len(properties)} bytes, more than {props.PROPERTIES_BYTES_MAX}")
    return TOPIC_SIZE.pack(len(topic)) + topic + PROPERTIES_SIZE.pack(len(properties)) + properties


def walk(buffer: Buffer) -> Lengths:
    """The lengths column of messages that lie back to back: follows the size fields, looks at nothing else."""
    end = len(buffer)
    if end >= OVERHEAD:
        (size,) = struct.unpack_from(">I", buffer)
        count, rest = divmod(end, size) if size > OVERHEAD else (0, 1)
        # Equal sizes at every multiple of the first size is, step by step, what the loop below would find.
        if rest == 0 and np.ndarray((count,), "V4", buffer, 0, (size,)).tobytes() == bytes(buffer[:4]) * count:
            return np.full(count, size, ">u4")
    lengths, at = list[int](), 0
    while at < end:
        size = struct.unpack_from(">I", buffer, at)[0] if at + OVERHEAD < end else 0
        if not OVERHEAD < size <= end - at:
            raise MessageIllegal(f"message {len(lengths)}, {at} bytes into the batch, has size {size}; "
                                 f"{OVERHEAD + 1} to {end - at} are possible there")
        lengths.append(size)
        at += size
    return np.array(lengths, ">u4")


def find_fault(
    buffer: Buffer, at: int, length: int, topic: bytes | None = None, queue: int | None = None
) -> str | None:
    """What is wrong with the message in buffer[at : at + length], or None. No topic or queue given: any will do."""
    if length <= OVERHEAD:
        return f"{length} bytes long, the smallest message has {OVERHEAD + 1}"
    size, magic, its_queue, system_flag, body_size = SHAPE.unpack_from(buffer, at)
    if size != length or magic != MAGIC:
        return f"size {size} and magic {magic:#x} where {length} and {MAGIC:#x} should be"
    if system_flag & WIDE_HOSTS:
        return f"system flag {system_flag:#x} announces IPv6 hosts"
    if queue is not None and its_queue != queue:
        return f"queue {its_queue} instead of {queue}"
    if body_size > length - OVERHEAD:
        return f"a body of {body_size} bytes does not fit into {length}"
    topic_at = at + BODY_AT + body_size
    (topic_size,) = TOPIC_SIZE.unpack_from(buffer, topic_at)
    if not 0 < topic_size <= length - OVERHEAD - body_size:
        return f"a topic of {topic_size} bytes does not fit into {length}"
    topic_end = topic_at + 1 + topic_size
    if topic is not None and buffer[topic_at + 1 : topic_end] != topic:
        return f"topic {bytes(buffer[topic_at + 1 : topic_end])!r} instead of {topic!r}"
    (properties_size,) = PROPERTIES_SIZE.unpack_from(buffer, topic_end)
    if properties_size != length - OVERHEAD - body_size - topic_size:
        return f"properties of {properties_size} bytes do not end with the message"
    return None


class MessageView:
    """A message in somebody's buffer; nothing is decoded before it is asked for.

    The bytes must have passed a check: `views` and `find_fault` do one, `model.batch.check` another.
    """

    def __init__(self, buffer: Buffer, at: int = 0) -> None:
        self._buffer = memoryview(buffer)
        self._at = at

    @cached_property
    def head(self) -> Head:
        return Head(*HEAD.unpack_from(self._buffer, self._at))

    @property
    def raw(self) -> memoryview:
        return self._buffer[self._at : self._at + self.head.size]

    @property
    def body(self) -> memoryview:
        start = self._at + BODY_AT
        return self._buffer[start : start + self.head.body_size]

    @property
    def topic(self) -> str:
        start, end = self._topic_span()
        return str(self._buffer[start:end], "utf-8", "replace")

    @property
    def raw_properties(self) -> memoryview:
        start = self._topic_span()[1] + PROPERTIES_SIZE.size
        return self._buffer[start : self._at + self.head.size]

    @cached_property
    def properties(self) -> dict[str, str]:
        return props.parse(self.raw_properties)

    @property
    def tag(self) -> str | None:
        return self.properties.get(props.TAGS)

    @property
    def keys(self) -> list[str]:
        return props.index_keys(self.properties)

    @property
    def id(self) -> str:
        return message_id(self.head.store_host, self.head.position)

    def intact(self) -> bool:
        """Whether the body still has the crc it was built with."""
        return zlib.crc32(self.body) & CRC_MASK == self.head.body_crc

    def _topic_span(self) -> tuple[int, int]:
        size_at = self._at + BODY_AT + self.head.body_size
        (size,) = TOPIC_SIZE.unpack_from(self._buffer, size_at)
        return size_at + 1, size_at + 1 + size


def views(buffer: Buffer) -> Iterator[MessageView]:
    """Each message of a buffer, checked; MessageIllegal at the first that is not well formed."""
    at = 0
    for number, length in enumerate(walk(buffer).tolist()):
        fault = find_fault(buffer, at, length)
        if fault is not None:
            raise MessageIllegal(f"message {number}, {at} bytes into the batch: {fault}")
        yield MessageView(buffer, at)
        at += length
