"""The producer's batch body: taken apart without a copy, refused as a whole when any size is wrong."""

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.errors import MessageIllegal, ResponseCode
from model.ports import Buffer
from remoting.batchbody import OVERHEAD, walk_batch

Row = tuple[int, bytes, bytes]


def twin(rows: list[Row]) -> bytes:
    def one(flag: int, body: bytes, properties: bytes) -> bytes:
        rest = struct.pack(">iiii", 0, 0, flag, len(body)) + body + struct.pack(">h", len(properties)) + properties
        return struct.pack(">i", 4 + len(rest)) + rest

    return b"".join(one(*row) for row in rows)


def rows_of(raw: Buffer) -> list[Row]:
    return [(flag, bytes(body), bytes(properties)) for flag, body, properties in zip(*walk_batch(raw), strict=True)]


ROWS = st.lists(
    st.tuples(st.integers(-(2**31), 2**31 - 1), st.binary(max_size=30), st.binary(max_size=20)), min_size=1, max_size=6
)


def test_bytes_written_by_hand() -> None:
    raw = bytes.fromhex("0000001a 00000000 00000000 00000007 00000001 62 0003 6b0176")
    assert len(raw) == 26
    assert rows_of(raw) == [(7, b"b", b"k\x01v")]


@given(ROWS)
def test_rows_come_out_as_they_went_in(rows: list[Row]) -> None:
    assert rows_of(memoryview(twin(rows))) == rows


def test_nothing_is_copied() -> None:
    raw = bytearray(twin([(1, b"abc", b"k\x01v")]))
    found = walk_batch(raw)
    raw[20:23] = b"xyz"
    assert found.bodies[0].tobytes() == b"xyz" and found.bodies[0].obj is raw


@pytest.mark.parametrize(
    "raw, says",
    [
        (b"", "a batch without messages"),
        (bytes(OVERHEAD - 1), "message 0, 0 bytes into the batch: 21 bytes are left"),
        (twin([(0, b"a", b"")]) + b"x", "message 1, 23 bytes into the batch: 1 bytes are left"),
        (bytes(OVERHEAD), "a size of 0; 22 to 22"),
        (struct.pack(">i", 23) + bytes(18), "a size of 23; 22 to 22"),
        (struct.pack(">i", 21) + bytes(18), "a size of 21; 22 to 22"),
        (struct.pack(">i", -1) + bytes(18), "a size of -1"),
        (struct.pack(">i", 2**31 - 1) + bytes(18), "a size of 2147483647"),
        (struct.pack(">i12xih", 22, 1, 0), "a body of 1 bytes does not fit into 22"),
        (struct.pack(">i12xih", 22, -1, 0), "a body of -1 bytes"),
        (struct.pack(">i12xih", 22, 0, 1), "properties of 1 bytes do not end with the message"),
        (struct.pack(">i12xih", 22, 0, -1), "properties of -1 bytes"),
        (struct.pack(">i12xihx", 23, 0, 0), "properties of 0 bytes do not end with the message"),
    ],
)
def test_wrong_sizes_are_refused_and_named(raw: bytes, says: str) -> None:
    with pytest.raises(MessageIllegal) as caught:
        walk_batch(raw)
    assert says in caught.value.happened and caught.value.code == ResponseCode.MESSAGE_ILLEGAL


def test_hostile_bytes_are_rows_that_fill_the_body_or_are_refused() -> None:
    chance = random.Random(7)
    good = twin([(1, b"abc", b"k\x01v"), (2, b"", b""), (3, b"defg", b"")])
    for _ in range(3000):
        mutant = bytearray(good)
        for _ in range(chance.randrange(1, 4)):
            mutant[chance.randrange(len(mutant))] = chance.choice([0, 1, 21, 22, 29, 127, 128, 255])
        raw = bytes(mutant[: chance.randrange(len(mutant)) if chance.random() < 0.2 else None])
        try:
            found = walk_batch(raw)
        except MessageIllegal:
            continue
        assert sum(OVERHEAD + len(b) + len(p) for b, p in zip(found.bodies, found.properties, strict=True)) == len(raw)
