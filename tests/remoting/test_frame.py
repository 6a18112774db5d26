"""Frames whole, byte by byte, cut anywhere, and garbage; limits before memory."""

import random
import struct
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.errors import LocalProtocolError, RemoteProtocolError
from remoting import frame
from remoting.codes import Codec
from remoting.frame import FRAME_BYTES_MAX, FrameReader, encode_frame

Plain = tuple[Codec, bytes, bytes]
Outcome = tuple[list[Plain], str | None]  # the frames, then what the error said
SMALL = {"frame_bytes_max": 4096, "header_bytes_max": 64, "buffer_bytes": 32}  # so that every path is walked at once


def read(pieces: Iterable[bytes], **limits: int) -> Outcome:
    """Everything a reader gives for these pieces, each written into its own buffer as a transport does."""
    reader, found = FrameReader(**limits), list[Plain]()
    try:
        for piece in pieces:
            while piece:
                room = reader.get_buffer(-1)
                count = min(len(room), len(piece))
                room[:count] = piece[:count]
                reader.buffer_updated(count)
                for each in reader.frames():  # not a list: what came before an error counts
                    found.append((each.codec, bytes(each.header), bytes(each.body)))
                piece = piece[count:]
    except RemoteProtocolError as error:
        return found, error.happened
    return found, None


def joined(codec: Codec, header: bytes, *body: bytes) -> bytes:
    return b"".join(encode_frame(codec, header, *body))


def cut(data: bytes, places: Iterable[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


FRAMES = st.lists(st.tuples(st.sampled_from(Codec), st.binary(max_size=40), st.binary(max_size=90)), max_size=6)
PLACES = st.lists(st.integers(0, 10**6), max_size=12)


def test_a_frame_is_length_codec_and_header_size_then_header_then_body() -> None:
    assert joined(Codec.JSON, b"{}", b"ab", b"", b"c") == bytes.fromhex("00000009 00000002") + b"{}abc"
    assert joined(Codec.BINARY, b"h") == bytes.fromhex("00000005 01000001") + b"h"
    assert joined(Codec.MSGPACK, b"", b"b") == bytes.fromhex("00000005 02000000") + b"b"


def test_bodies_are_passed_on_and_not_joined() -> None:
    body = bytearray(b"abc")
    parts = encode_frame(Codec.JSON, b"{}", body, memoryview(b""), memoryview(b"def"))
    assert len(parts) == 3 and parts[1] is body


@given(FRAMES, PLACES)
def test_cut_anywhere_the_same_frames_come_out(frames: list[Plain], places: list[int]) -> None:
    stream = b"".join(joined(*each) for each in frames)
    for pieces in ([stream], cut(stream, places), [stream[i : i + 1] for i in range(len(stream))]):
        assert read(pieces, **SMALL) == (frames, None)
    assert read([stream]) == (frames, None)


@given(FRAMES, st.binary(max_size=60), PLACES)
def test_garbage_behind_good_frames_gives_the_frames_and_then_the_same_error(
    frames: list[Plain], garbage: bytes, places: list[int]
) -> None:
    stream = b"".join(joined(*each) for each in frames) + garbage
    whole = read([stream], **SMALL)
    assert whole[0][: len(frames)] == frames
    assert read(cut(stream, places), **SMALL) == whole
    assert read([stream[i : i + 1] for i in range(len(stream))], **SMALL) == whole


def test_random_bytes_parse_or_raise_the_remote_error_and_nothing_else() -> None:
    chance = random.Random(3)
    for _ in range(2000):
        lengths = struct.pack(">iI", chance.choice([-1, 0, 3, 4, 9, 60, 2**31 - 1]), chance.randrange(1 << 26))
        read([lengths + chance.randbytes(chance.randrange(80))], **SMALL)


@pytest.mark.parametrize(
    "start, says",
    [
        ("7fffffff", "announces 2147483647 bytes"),
        ("80000000", "announces -2147483648 bytes"),
        ("ffffffff", "announces -1 bytes"),
        ("00000003", "announces 3 bytes"),
        ("00001000", "announces 4096 bytes"),  # 4100 with its length field
        ("00001000 00000000", "announces 4096 bytes"),
        (b"GET ".hex(), "begins with b'GET '"),
        (b"\x16\x03\x01\x02".hex(), "x16"),
        ("00000ffc 00000041", "a header has 65 bytes; at most 64"),
        ("00000010 0000000d", "a header of 13 bytes is longer than its frame, which has 12"),
        ("00000010 00ffffff", "longer than its frame"),
        ("00000010 03000000", "codec 3"),
        ("00000010 ff000000", "codec 255"),
    ],
)
def test_a_bad_length_is_refused_as_soon_as_it_is_seen_and_named(start: str, says: str) -> None:
    frames, error = read([bytes.fromhex(start)], **SMALL)
    assert frames == [] and error is not None and says in error


def test_the_largest_frame_is_taken_and_one_byte_more_is_not() -> None:
    largest = joined(Codec.JSON, b"{}", bytes(4096 - 8 - 2))
    assert read([largest], **SMALL)[0] == [(Codec.JSON, b"{}", bytes(4096 - 10))]
    assert FRAME_BYTES_MAX == 16_777_216
    encode_frame(Codec.JSON, b"", bytes(FRAME_BYTES_MAX - 8))
    with pytest.raises(LocalProtocolError, match="a frame of 16777217 bytes"):
        encode_frame(Codec.JSON, b"", bytes(FRAME_BYTES_MAX - 7))
    with pytest.raises(LocalProtocolError, match="header of 16777216"):
        encode_frame(Codec.JSON, bytes(1 << 24), frame_bytes_max=1 << 26)


def test_memory_is_taken_for_a_checked_length_only_and_given_back_with_its_frame(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes, make = list[int](), frame._new_buffer

    def noted(size: int) -> memoryview:
        sizes.append(size)
        return make(size)

    monkeypatch.setattr(frame, "_new_buffer", noted)
    reader = FrameReader(**SMALL)
    with pytest.raises(RemoteProtocolError):
        list(reader.feed(struct.pack(">iI", 1 << 30, 2)))
    assert sizes == [32]
    reader = FrameReader(**SMALL)
    assert len(list(reader.feed(joined(Codec.JSON, b"{}", bytes(1000))))) == 1
    assert sizes[1:] == [32, 1010]
    assert len(reader.get_buffer()) == 32
    assert list(reader.feed(b"\0\0")) == [] and len(reader.get_buffer()) == 30  # no trace of the long frame's length
    assert sizes[1:] == [32, 1010]


def test_an_unfinished_frame_moves_at_most_once() -> None:
    moves = 0

    class Counting(FrameReader):
        def _move(self, held: int) -> None:
            nonlocal moves
            moves += held > 3
            super()._move(held)

    chance = random.Random(5)
    for _ in range(200):
        bodies = [bytes(chance.randrange(200)) for _ in range(8)]
        stream = b"".join(joined(Codec.JSON, b"{}", body) for body in bodies)
        reader, moves, frames = Counting(**SMALL), 0, 0
        for piece in cut(stream, [chance.randrange(1 << 20) for _ in range(30)]):
            frames += len(list(reader.feed(piece)))
        assert frames == 8 and moves <= 8


def test_frames_are_read_only_views_of_one_buffer_and_many_come_from_one_read() -> None:
    reader, stream = FrameReader(), joined(Codec.JSON, b"{}", b"body") * 50
    reader.get_buffer()[: len(stream)] = stream
    reader.buffer_updated(len(stream))
    frames = list(reader.frames())
    assert len(frames) == 50 and {each.body.tobytes() for each in frames} == {b"body"}
    assert all(each.header.readonly and each.body.readonly and each.body.obj is frames[0].body.obj for each in frames)


def test_the_reader_says_whether_a_frame_has_begun() -> None:
    reader, stream = FrameReader(), joined(Codec.JSON, b"{}", b"body")
    assert list(reader.feed(stream[:5])) == [] and reader.unfinished_bytes == 5
    assert len(list(reader.feed(stream[5:]))) == 1 and reader.unfinished_bytes == 0


def test_whoever_stops_in_the_middle_goes_on_there() -> None:
    reader, stream = FrameReader(), joined(Codec.JSON, b"{}", b"1") + joined(Codec.JSON, b"{}", b"2")
    reader.get_buffer()[: len(stream)] = stream
    reader.buffer_updated(len(stream))
    assert next(iter(reader.frames())).body.tobytes() == b"1"
    with pytest.raises(AssertionError, match="not read to its end"):
        reader.get_buffer()
    assert [each.body.tobytes() for each in reader.frames()] == [b"2"]
