"""The columns before the messages."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.entry import CorruptEntry
from store.preamble import SubBatch, pack_preamble, parse_preamble, preamble_bytes

NAMES = st.text(min_size=1, max_size=20)
BATCHES = st.lists(
    st.builds(
        SubBatch,
        NAMES,
        st.integers(0, 100),
        st.integers(0, 4),
        st.integers(0, 2**60),
        st.binary(max_size=255),
        st.integers(-1, 2**60),
    ),
    max_size=5,
)


@given(BATCHES, st.binary(max_size=30), st.data())
def test_what_is_packed_is_parsed(batches: list[SubBatch], control: bytes, data: st.DataObject) -> None:
    count = sum(batch.count for batch in batches)
    lengths = data.draw(st.lists(st.integers(0, 50), min_size=count, max_size=count))
    tags = data.draw(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=count, max_size=count))
    key_counts = data.draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    keys = data.draw(st.lists(st.integers(0, 2**31 - 1), min_size=sum(key_counts), max_size=sum(key_counts)))
    packed = pack_preamble(control, batches, lengths, tags, key_counts, keys)
    assert len(packed) == preamble_bytes(control, batches, count, len(keys))
    body = packed + b"m" * sum(lengths)
    parsed = parse_preamble(memoryview(body))
    assert (parsed.control, parsed.batches) == (control, tuple(batches))
    assert parsed.lengths.tolist() == lengths and parsed.tags.tolist() == tags
    assert parsed.key_counts.tolist() == key_counts and parsed.keys.tolist() == keys
    assert parsed.messages_at == parsed.size == len(packed)


def sample() -> bytes:
    batches = [SubBatch("topic", 3, 2, 100, b"producer", 7), SubBatch("t2", 0, 1, 0)]
    return pack_preamble(b"\x90", batches, [5, 6, 7], [1, -2, 3], [1, 0, 2], [10, 20, 30]) + bytes(18)


def test_columns_are_views_of_the_body() -> None:
    body = bytearray(sample())
    parsed = parse_preamble(body)
    before = parsed.tags.tolist()
    body[parsed.messages_at - 12 - 3 - 24] ^= 0x40
    assert parsed.tags.tolist() != before
    assert parsed.lengths.dtype == np.dtype(">u4")


def test_every_cut_is_refused() -> None:
    body = sample()
    for size in range(len(body)):
        with pytest.raises(CorruptEntry):
            parse_preamble(body[:size])
    with pytest.raises(CorruptEntry, match="lengths"):
        parse_preamble(body + b"x")


def test_every_flipped_byte_is_refused_or_parsed_but_never_breaks() -> None:
    body = sample()
    refused = 0
    for at in range(len(body)):
        for bit in range(8):
            bad = bytearray(body)
            bad[at] ^= 1 << bit
            try:
                parse_preamble(bad)
            except CorruptEntry:
                refused += 1
    assert refused > 200


def test_a_newer_version_is_refused_by_name() -> None:
    with pytest.raises(CorruptEntry, match="version 9"):
        parse_preamble(b"\x09" + sample()[1:])


def test_an_entry_may_carry_control_alone() -> None:
    parsed = parse_preamble(pack_preamble(b"commands", [], [], [], [], []))
    assert (parsed.control, parsed.batches, len(parsed.lengths)) == (b"commands", (), 0)
