"""The envelope: every byte counts, and entries only fit where they were written."""

import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from store.entry import (
    ENVELOPE,
    ENVELOPE_BYTES,
    MAGIC,
    CorruptEntry,
    EntryKind,
    chain_after,
    inspect,
    pack,
    peek,
    verify,
)


def log_of(bodies: list[bytes], start: int = 0, chain: int = 0, term: int = 1, kind: int = 1) -> tuple[bytes, int]:
    out = b""
    for number, body in enumerate(bodies):
        envelope, chain = pack(start + len(out), term, 1000 + number, kind, body, chain)
        out += envelope + body
    return out, chain


def test_the_envelope_has_the_documented_layout() -> None:
    body = b"hello"
    envelope, chain = pack(4096, 7, 123456, EntryKind.NOOP, body, 99)
    assert ENVELOPE_BYTES == 48
    assert struct.unpack(">IIqqqiIII", envelope) == (
        0x444C4D51, 53, 123456, 7, 4096, 2, chain, crc32c(body), 5,
    )
    assert chain == crc32c(envelope[:36] + envelope[40:], 99) == chain_after(envelope, 0, 99)
    header = peek(b"xx" + envelope, 2, 4096)
    assert header == (4096, 53, 7, 123456, 2, chain, crc32c(body), 5)
    assert header.end == 4149


def test_every_flipped_byte_of_an_entry_is_noticed() -> None:
    data, _ = log_of([b"some body"], start=100, chain=5)
    assert verify(data, 0, 100, 5).size == len(data)
    for at in range(len(data)):
        for bit in (0, 7):
            bad = bytearray(data)
            bad[at] ^= 1 << bit
            with pytest.raises(CorruptEntry):
                verify(bad, 0, 100, 5)


def test_an_entry_fits_only_its_position_and_its_predecessor() -> None:
    data, _ = log_of([b"body"], start=100, chain=5)
    assert verify(data, 0, 100, None).position == 100
    with pytest.raises(CorruptEntry, match="belongs at 100"):
        verify(data, 0, 200, 5)
    with pytest.raises(CorruptEntry, match="chain"):
        verify(data, 0, 100, 6)


def test_cut_entries_are_refused() -> None:
    data, _ = log_of([b"body"])
    for size in range(len(data)):
        with pytest.raises(CorruptEntry):
            verify(data[:size], 0, 0, 0)
        if size:
            with pytest.raises(CorruptEntry):
                inspect(data[:size], 0)


def test_unknown_kinds_and_contradicting_sizes_are_refused() -> None:
    for fields, reason in (
        ((MAGIC, 48, 0, 0, 0, 0, 0, 0, 0), "kind 0"),
        ((MAGIC, 48, 0, 0, 0, 5, 0, 0, 0), "kind 5"),
        ((MAGIC, 49, 0, 0, 0, 1, 0, 0, 0), "contradict"),
        ((MAGIC, 47, 0, 0, 0, 1, 0, 0, 2**32 - 1), "contradict"),
        ((0, 48, 0, 0, 0, 1, 0, 0, 0), "magic"),
    ):
        with pytest.raises(CorruptEntry, match=reason):
            peek(ENVELOPE.pack(*fields), 0, 0)
        with pytest.raises(CorruptEntry, match=reason):
            inspect(ENVELOPE.pack(*fields), 0)


@given(st.lists(st.tuples(st.binary(max_size=40), st.integers(0, 2), st.sampled_from(EntryKind)), max_size=12))
def test_inspect_tells_terms_memberships_and_the_chain(entries: list[tuple[bytes, int, EntryKind]]) -> None:
    data, chain, term = b"", 77, 3
    runs: list[tuple[int, int]] = []
    memberships = []
    for number, (body, more, kind) in enumerate(entries):
        term += more
        position = 500 + len(data)
        if not runs or runs[-1][0] != term:
            runs.append((term, position))
        if kind is EntryKind.MEMBERSHIP:
            memberships.append((position, body))
        envelope, chain = pack(position, term, 10 * number, kind, body, chain)
        data += envelope + body
    extent = inspect(memoryview(data), 500)
    expected_chain = chain if entries else 0
    last = 10 * (len(entries) - 1) if entries else 0
    assert extent == (500, 500 + len(data), tuple(runs), tuple(memberships), expected_chain, last)


def test_inspect_refuses_a_break_in_the_chain_and_falling_terms() -> None:
    first, chain = log_of([b"a"], term=5)
    second, _ = log_of([b"b"], start=len(first), chain=chain + 1, term=5)
    with pytest.raises(CorruptEntry, match="chain") as caught:
        inspect(first + second, 0)
    assert caught.value.position == len(first)
    older, _ = log_of([b"b"], start=len(first), chain=chain, term=4)
    with pytest.raises(CorruptEntry, match="term 4 after term 5"):
        inspect(first + older, 0)
    negative, _ = log_of([b"b"], term=-1)
    with pytest.raises(CorruptEntry):
        inspect(negative, 0)


def test_every_flipped_byte_of_a_payload_is_noticed_except_the_first_chain() -> None:
    data, _ = log_of([b"one", b"", b"three"])
    for at in range(len(data)):
        bad = bytearray(data)
        bad[at] ^= 0x10
        # The first envelope's time and term are covered by its chain alone, which needs the predecessor to check;
        # a second entry vouches for the first one's chain field itself.
        if 8 <= at < 24:
            verify(bad, 0, 0, None)
            with pytest.raises(CorruptEntry):
                inspect(bad, 0, chain_before=0)
            continue
        with pytest.raises(CorruptEntry):
            inspect(bad, 0)
