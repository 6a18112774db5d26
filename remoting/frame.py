"""Frames in a stream of bytes.

     0        4         5              8
    +--------+---------+--------------+-----------+---------+
    | total  | codec   | header size  | header... | body... |      total = everything behind its own four bytes
    +--------+---------+--------------+-----------+---------+

Law: a length is believed only after it was compared with its limit, and memory is taken only after that. Bytes are
read into one buffer and stay where they are; those of an unfinished frame move at most once (the three before its
length is known may move twice). Frames are lent: their views are good until the next `get_buffer`. Whole, cut anywhere
or byte by byte, a stream gives the same frames, then the same error.
Does not know: sockets, what a header says, who keeps a body (whoever does copies it).
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from model.errors import LocalProtocolError, RemoteProtocolError
from model.ports import Buffer
from remoting.codes import Codec

TOTAL = struct.Struct(">i")
PREFIX = struct.Struct(">i"  # total: signed, as Java reads it, so that a negative one is named
                       "I")  # codec in the highest byte, size of the header in the other three
assert PREFIX.size == 8

FRAME_BYTES_MAX = 16 << 20  # what RocketMQ's own decoders accept, the length field included
HEADER_BYTES_MAX = 256 << 10  # 32767 bytes of properties, each written as \u0001 by JSON, and room for the rest
HEADER_BYTES_POSSIBLE = (1 << 24) - 1  # its size has three bytes
BUFFER_BYTES = 256 << 10  # as much as one read of a busy socket gives; a page nobody read into costs no memory
MOVED_FREELY_BYTES = 4096  # so little is moved to the front just to make room for a longer read
CODECS = tuple(Codec)


class Frame(NamedTuple):
    """Views into the reader's buffer, read-only."""

    codec: Codec
    header: memoryview
    body: memoryview


class FrameReader:
    """One direction of one connection: `get_buffer`, read into it, `buffer_updated`, then `frames` to its end.

    After a RemoteProtocolError there is no next frame: where it would begin is unknown.
    """

    def __init__(
        self,
        *,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        header_bytes_max: int = HEADER_BYTES_MAX,
        buffer_bytes: int = BUFFER_BYTES,
    ) -> None:
        assert buffer_bytes >= PREFIX.size, buffer_bytes
        self._frame_bytes_max = frame_bytes_max
        self._header_bytes_max = header_bytes_max
        self._home = _new_buffer(buffer_bytes)
        self._view = self._home  # or a buffer of its own for a frame that is too long for home
        self._start = 0  # of the first byte not given out
        self._end = 0  # of what was read
        self._frame_bytes = 0  # size of the unfinished frame at start; 0 while unknown

    @property
    def unfinished_bytes(self) -> int:
        """How much of a frame is here that has not arrived in full; 0 between frames."""
        return self._end - self._start

    def get_buffer(self, size_hint: int = -1) -> memoryview:
        """Room for the next bytes, never empty. Ends the loan of all frames given out."""
        held = self._end - self._start
        assert held < (self._frame_bytes or TOTAL.size), "frames() was not read to its end"
        if held == 0:
            self._view, self._start, self._end = self._home, 0, 0
        elif self._start + self._frame_bytes > len(self._view) or (self._start and held <= MOVED_FREELY_BYTES):
            self._move(held)
        return self._view[self._end :]

    def buffer_updated(self, count: int) -> None:
        """So many bytes were written to the beginning of the last `get_buffer`."""
        assert 0 <= count <= len(self._view) - self._end, count
        self._end += count

    def frames(self) -> Iterator[Frame]:
        """Every frame that is complete; then RemoteProtocolError, if what follows cannot be one."""
        view = self._view.toreadonly()
        while (held := self._end - self._start) >= PREFIX.size:
            start = self._start
            total, word = PREFIX.unpack_from(view, start)
            header_bytes, codec = word & HEADER_BYTES_POSSIBLE, word >> 24
            if not TOTAL.size <= total <= self._frame_bytes_max - TOTAL.size:
                raise self._bad_total(total)
            if header_bytes > min(total - TOTAL.size, self._header_bytes_max) or codec >= len(CODECS):
                raise self._bad_header(codec, header_bytes, total)
            size = TOTAL.size + total
            if held < size:
                self._frame_bytes = size
                return
            body_at, end = start + PREFIX.size + header_bytes, start + size
            self._start, self._frame_bytes = end, 0
            yield Frame(CODECS[codec], view[start + PREFIX.size : body_at], view[body_at:end])
        if held >= TOTAL.size:
            (total,) = TOTAL.unpack_from(view, self._start)
            if not TOTAL.size <= total <= self._frame_bytes_max - TOTAL.size:
                raise self._bad_total(total)
            self._frame_bytes = TOTAL.size + total

    def feed(self, data: Buffer) -> Iterator[Frame]:
        """The same for bytes somebody else has read: they are copied in. Each frame is lent until the next is taken."""
        rest = memoryview(data)
        while rest:
            room = self.get_buffer(len(rest))
            count = min(len(room), len(rest))
            room[:count] = rest[:count]
            self.buffer_updated(count)
            yield from self.frames()
            rest = rest[count:]

    def _move(self, held: int) -> None:
        """Bring the unfinished frame to the front of a buffer that will hold all of it."""
        target = self._home if self._frame_bytes <= len(self._home) else _new_buffer(self._frame_bytes)
        target[:held] = self._view[self._start : self._end]
        self._view, self._start, self._end = target, 0, held

    def _bad_total(self, total: int) -> RemoteProtocolError:
        first = bytes(self._view[self._start : self._start + TOTAL.size])
        return RemoteProtocolError(
            f"a frame announces {total} bytes (it begins with {first!r}); {TOTAL.size} to "
            f"{self._frame_bytes_max - TOTAL.size} are possible here"
        )

    def _bad_header(self, codec: int, header_bytes: int, total: int) -> RemoteProtocolError:
        if codec >= len(CODECS):
            return RemoteProtocolError(f"a header is written in codec {codec}; known are 0 to {len(CODECS) - 1}")
        if header_bytes > total - TOTAL.size:
            return RemoteProtocolError(
                f"a header of {header_bytes} bytes is longer than its frame, which has {total - TOTAL.size} for it"
            )
        return RemoteProtocolError(f"a header has {header_bytes} bytes; at most {self._header_bytes_max} are possible")


def encode_frame(
    codec: Codec, header: bytes, *body: Buffer, frame_bytes_max: int = FRAME_BYTES_MAX
) -> list[Buffer]:
    """The buffers of one frame, in order; the parts of the body are passed on, not joined."""
    total = TOTAL.size + len(header) + sum(map(len, body))
    if len(header) > HEADER_BYTES_POSSIBLE:
        raise LocalProtocolError(f"a header of {len(header)} bytes; at most {HEADER_BYTES_POSSIBLE} can be announced")
    if TOTAL.size + total > frame_bytes_max:
        raise LocalProtocolError(f"a frame of {TOTAL.size + total} bytes; at most {frame_bytes_max} can be received")
    return [PREFIX.pack(total, codec << 24 | len(header)) + header, *filter(len, body)]


def _new_buffer(size: int) -> memoryview:
    # numpy leaves the pages untouched, so a frame that is announced but never sent takes no memory; bytearray zeroes.
    return np.empty(size, np.uint8).data
