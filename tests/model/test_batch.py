"""Batches: the plain and the numpy way agree, byte for byte and verdict for verdict."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from model import batch, message
from model.errors import MessageIllegal
from model.properties import encode, index_hash, tag_hash

STORED = message.STORED.pack(1_700_000_000_123, message.pack_host("10.1.2.3", 10911))
EVEN = st.integers(0, 40).flatmap(
    lambda size: st.lists(st.binary(min_size=size, max_size=size), min_size=1, max_size=40)
)
UNEVEN = st.lists(st.binary(max_size=40), min_size=1, max_size=40)
BODIES = EVEN | UNEVEN


def plain_verdict(buffer: bytes | bytearray, lengths: np.ndarray, topic: bytes, queue: int) -> bool:
    try:
        batch.check_plain(buffer, lengths, topic, queue)
    except MessageIllegal:
        return False
    return True


@given(BODIES, st.integers(0, 7), st.integers(0, 2**60), st.integers(0, 2**61))
def test_both_ways_of_stamping_write_the_same_bytes(
    bodies: list[bytes], queue: int, offset: int, position: int
) -> None:
    raw = message.build_many("topic", bodies, encode({"TAGS": "x"}), queue=1, flag=-1)
    plain, vector, lengths = bytearray(raw), bytearray(raw), message.walk(raw)
    batch.stamp_plain(plain, lengths, queue, offset, position, STORED)
    batch.stamp_numpy(memoryview(vector), lengths, queue, offset, position, STORED)
    assert plain == vector
    at = 0
    for number, view in enumerate(message.views(plain)):
        head = view.head
        assert (head.queue, head.queue_offset, head.position) == (queue, offset + number, position + at)
        assert (head.store_ms, message.host_text(head.store_host)) == (1_700_000_000_123, "10.1.2.3:10911")
        assert bytes(view.body) == bodies[number] and view.intact() and view.tag == "x" and head.flag == -1
        at += head.size


@pytest.mark.parametrize("count", [1, batch.NUMPY_FROM - 1, batch.NUMPY_FROM, batch.NUMPY_FROM + 1])
def test_stamping_into_a_part_of_a_larger_buffer_leaves_the_rest_alone(count: int) -> None:
    raw = message.build_many("t", [b"x" * (i % 3) for i in range(count)])
    lengths = message.walk(raw)
    whole = bytearray(b"<<<" + raw + b">>>")
    batch.check(memoryview(whole)[3:-3], lengths, "t", 0)
    batch.stamp(memoryview(whole)[3:-3], lengths, queue=2, first_offset=5, position=9, store_ms=1, store_host=bytes(8))
    assert whole[:3] == b"<<<" and whole[-3:] == b">>>"
    assert [view.head.queue_offset for view in message.views(memoryview(whole)[3:-3])] == list(range(5, 5 + count))


@given(BODIES, st.booleans())
def test_good_batches_pass_both_checks_in_either_byte_order(bodies: list[bytes], native: bool) -> None:
    raw = message.build_many("topic", bodies, encode({"KEYS": "k"}), queue=4)
    lengths = message.walk(raw).astype("=u4") if native else message.walk(raw)
    assert batch.check_numpy(raw, lengths, b"topic", 4)
    assert plain_verdict(raw, lengths, b"topic", 4)
    assert not batch.check_numpy(raw, lengths, b"topiC", 4) and not plain_verdict(raw, lengths, b"topiC", 4)
    assert not batch.check_numpy(raw, lengths, b"topic", 5) and not plain_verdict(raw, lengths, b"topic", 5)
    assert not batch.check_numpy(raw + b"x", lengths, b"topic", 4) and not plain_verdict(
        raw + b"x", lengths, b"topic", 4
    )


def test_equal_sizes_with_unequal_bodies_pass_both_checks() -> None:
    raw = message.build_many("t", [b"12345", b"1234"] * 20, [b"", b"x"] * 20)
    assert len(set(message.walk(raw).tolist())) == 1
    assert batch.check_numpy(raw, message.walk(raw), b"t", 0)
    batch.check(raw, message.walk(raw), "t", 0)


@given(BODIES, st.data())
def test_both_checks_agree_about_any_damage(bodies: list[bytes], data: st.DataObject) -> None:
    raw = bytearray(message.build_many("topic", bodies, encode({"TAGS": "x"}), queue=1))
    lengths = message.walk(raw)
    number = data.draw(st.integers(0, len(bodies) - 1))
    start = int(lengths[:number].sum())
    # Aim at the fields that matter, which random positions would mostly miss.
    fields = [
        0,
        4,
        message.QUEUE_AT,
        message.SYSTEM_FLAG_AT,
        message.BODY_SIZE_AT,
        message.BODY_AT + len(bodies[number]),
    ]
    at = start + data.draw(st.sampled_from(fields)) + data.draw(st.integers(0, 11))
    raw[min(at, len(raw) - 1)] ^= data.draw(st.integers(1, 255))
    assert batch.check_numpy(raw, lengths, b"topic", 1) == plain_verdict(raw, lengths, b"topic", 1)


@given(st.binary(max_size=600), st.lists(st.integers(0, 2**32 - 1) | st.integers(80, 300), min_size=1, max_size=6))
def test_garbage_with_any_lengths_column_is_refused(raw: bytes, lengths: list[int]) -> None:
    column = np.array(lengths, ">u4")
    assert not batch.check_numpy(raw, column, b"t", 0)
    assert not plain_verdict(raw, column, b"t", 0)


@given(BODIES, st.data())
def test_a_lying_lengths_column_is_refused_by_both_checks(bodies: list[bytes], data: st.DataObject) -> None:
    raw = message.build_many("t", bodies)
    lengths = message.walk(raw).copy()
    lengths[data.draw(st.integers(0, len(bodies) - 1))] += data.draw(st.integers(1, 50))
    assert not batch.check_numpy(raw, lengths, b"t", 0)
    assert not plain_verdict(raw, lengths, b"t", 0)


def test_the_error_names_the_culprit_also_in_a_large_batch() -> None:
    raw = bytearray(message.build_many("t", [b"x"] * 100))
    raw[93 * 57 + 4] ^= 1
    with pytest.raises(MessageIllegal, match="message 57, 5301 bytes into the batch: size 93 and magic"):
        batch.check(raw, message.walk(raw), "t", 0)


def twin_columns(raw: bytes) -> tuple[list[int], list[int], list[int], list[int]]:
    views = list(message.views(raw))
    keys = [index_hash(view.topic, key) for view in views for key in view.keys]
    return (
        [view.head.size for view in views],
        [tag_hash(view.tag) for view in views],
        [len(v.keys) for v in views],
        keys,
    )


WORD = st.text("abc \x01é", min_size=1, max_size=6)
PAIRS = st.dictionaries(st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "color"]), WORD, max_size=4)


@given(st.lists(PAIRS, min_size=1, max_size=3), st.integers(1, 30))
def test_columns_equal_what_the_views_say(pairs: list[dict[str, str]], times: int) -> None:
    properties = [encode(each) for each in pairs] * times
    raw = message.build_many("topic", [b"b"] * len(properties), properties)
    found = batch.columns(raw)
    assert [array.dtype.str for array in found] == [">u4", ">i8", "|u1", ">i4"]
    assert tuple(array.tolist() for array in found) == twin_columns(raw)


@given(st.lists(st.tuples(*[st.text("abcd", min_size=4, max_size=4)] * 4), min_size=32, max_size=40))
@example([("same", "same", "same", "same")] * 40)
def test_columns_of_messages_that_are_alike_equal_what_the_views_say(values: list[tuple[str, str, str, str]]) -> None:
    pairs = [{"UNIQ_KEY": a, "color": b, "KEYS": f"{c} {a}", "TAGS": d} for a, b, c, d in values]
    raw = message.build_many("topic", [value[0].encode() for value in values], [encode(each) for each in pairs])
    assert batch._columns_alike(raw, message.walk(raw)) is not None  # else the fast way is not what is tested here
    assert tuple(array.tolist() for array in batch.columns(raw)) == twin_columns(raw)


@pytest.mark.parametrize(
    "odd",
    [
        {"TAGS": "a\x01c", "KEYS": "k k"},
        {"TAGS": "abc", "KEYS": "kkk"},
        {"TAGZ": "abc", "KEYS": "k k"},
        {"TAGS": "é" + "c", "KEYS": "k k"},
    ],
)
def test_one_message_unlike_the_others_is_still_read_right(odd: dict[str, str]) -> None:
    usual = encode({"TAGS": "abc", "KEYS": "k k"})
    raw = message.build_many("topic", [b""] * 50, [usual] * 49 + [encode(odd)])
    assert len(set(message.walk(raw).tolist())) == 1
    assert tuple(array.tolist() for array in batch.columns(raw)) == twin_columns(raw)


@pytest.mark.parametrize("count", [1, 40])
def test_columns_refuse_malformed_messages_and_too_many_keys(count: int) -> None:
    raw = bytearray(message.build_many("topic", [b"x"] * count))
    raw[4] ^= 1
    with pytest.raises(MessageIllegal, match="message 0"):
        batch.columns(raw)
    many = encode({"KEYS": " ".join("k" * 256)})
    with pytest.raises(MessageIllegal, match="256 keys"):
        batch.columns(message.build_many("topic", [b"x"] * count, many))


def test_an_empty_batch_is_checked_stamped_and_described() -> None:
    nothing = message.walk(b"")
    batch.check(b"", nothing, "t", 0)
    batch.stamp(bytearray(), nothing, queue=0, first_offset=0, position=0, store_ms=0, store_host=bytes(8))
    assert [len(array) for array in batch.columns(b"")] == [0, 0, 0, 0]
