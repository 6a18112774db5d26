"""The body of SEND_BATCH_MESSAGE: a producer's messages, one after another.

     0       4       8       12     16          20
    +-------+-------+-------+------+-----------+---------+---------+---------------+
    | total | magic | crc   | flag | body size | body... | p (2)   | properties... |     total includes itself
    |       |   0   |   0   |      |           |         |         |               |
    +-------+-------+-------+------+-----------+---------+---------+---------------+

Law: the sizes of a message meet exactly at its end, and the last message ends with the body; anything else is refused
as a whole. Magic and crc are not looked at, as in RocketMQ: clients write 0.
Does not know: topics, limits on a message's size, the stored layout.
"""

import struct
from typing import NamedTuple

from model.errors import MessageIllegal
from model.ports import Buffer

HEAD = struct.Struct(">i"   # size of the whole message
                     "8x"   # magic, crc
                     "i"    # flag
                     "i")   # size of the body
PROPERTIES_SIZE = struct.Struct(">h")
OVERHEAD = HEAD.size + PROPERTIES_SIZE.size
assert OVERHEAD == 22


class BatchBody(NamedTuple):
    """One row per message; views into the body that was walked."""

    flags: list[int]
    bodies: list[memoryview]
    properties: list[memoryview]


def walk_batch(body: Buffer) -> BatchBody:
    """Take a batch apart, copying nothing. MessageIllegal names the first message that is wrong, and how."""
    view = memoryview(body)
    end, at = len(view), 0
    if end == 0:
        raise MessageIllegal("a batch without messages")
    flags, bodies, properties = list[int](), list[memoryview](), list[memoryview]()
    while at < end:  # at most end / OVERHEAD rounds
        if end - at < OVERHEAD:
            raise _bad(len(flags), at, f"{end - at} bytes are left, the smallest message has {OVERHEAD}")
        size, flag, body_size = HEAD.unpack_from(view, at)
        if not OVERHEAD <= size <= end - at:
            raise _bad(len(flags), at, f"a size of {size}; {OVERHEAD} to {end - at} are possible there")
        if not 0 <= body_size <= size - OVERHEAD:
            raise _bad(len(flags), at, f"a body of {body_size} bytes does not fit into {size}")
        body_at = at + HEAD.size
        body_end = body_at + body_size
        (properties_size,) = PROPERTIES_SIZE.unpack_from(view, body_end)
        at += size
        if body_end + PROPERTIES_SIZE.size + properties_size != at:
            raise _bad(len(flags), at - size, f"properties of {properties_size} bytes do not end with the message")
        flags.append(flag)
        bodies.append(view[body_at:body_end])
        properties.append(view[body_end + PROPERTIES_SIZE.size : at])
    return BatchBody(flags, bodies, properties)


def _bad(number: int, at: int, fault: str) -> MessageIllegal:
    return MessageIllegal(f"message {number}, {at} bytes into the batch: {fault}")
