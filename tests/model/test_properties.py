"""Property strings and Java's hash, against dumb twins and known values."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model import properties
from model.errors import MessageIllegal, ResponseCode

ASCII = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=40)
PROPERTY_TEXT = st.text(
    st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=12
)


def twin_hash(text: str) -> int:
    raw, total = text.encode("utf-16-be", "surrogatepass"), 0
    for i in range(0, len(raw), 2):
        total = 31 * total + raw[i] * 256 + raw[i + 1]
    total %= 2**32
    return total - 2**32 if total >= 2**31 else total


@given(st.text(max_size=80))
def test_java_hash_equals_its_definition_over_utf16_units(text: str) -> None:
    assert properties.java_hash(text) == twin_hash(text)


@pytest.mark.parametrize(
    "text, value",
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("TagA", 2598919),
        ("polygenelubricants", -(2**31)),
        ("\U0001f600", 1772899),
    ],
)
def test_java_hash_gives_the_values_java_gives(text: str, value: int) -> None:
    assert properties.java_hash(text) == value


@given(
    st.integers(0, 20).flatmap(lambda n: st.lists(ASCII.map(lambda t: t.ljust(n)[:n]), min_size=1, max_size=8)), ASCII
)
def test_hashing_rows_equals_hashing_each_text(texts: list[str], before: str) -> None:
    rows = np.frombuffer("".join(texts).encode(), np.uint8).reshape(len(texts), -1)
    assert properties.java_hash_rows(rows, before).tolist() == [twin_hash(before + text) for text in texts]


@given(st.lists(st.sampled_from([-(2**31), -1, 0, 1, 2**31 - 1, -(2**31) + 1]), max_size=6))
def test_folding_rows_equals_folding_each(values: list[int]) -> None:
    folded = properties.fold_hash_rows(np.array(values, np.int32)).tolist()
    assert folded == [properties.fold_hash(value) for value in values]
    assert all(value >= 0 for value in folded)


def test_a_missing_tag_hashes_to_zero_and_the_smallest_hash_folds_to_zero() -> None:
    assert properties.tag_hash(None) == properties.tag_hash("") == 0
    assert properties.tag_hash("polygenelubricants") == -(2**31)
    assert properties.fold_hash(-(2**31)) == 0
    assert properties.index_hash("topic", "key") == abs(twin_hash("topic#key"))


@given(st.dictionaries(PROPERTY_TEXT, PROPERTY_TEXT, max_size=6))
def test_what_is_encoded_is_parsed_again(pairs: dict[str, str]) -> None:
    raw = properties.encode(pairs)
    assert properties.parse(raw) == pairs
    assert properties.parse(memoryview(raw + b"\x02")) == pairs  # older clients end with a separator


@given(st.binary(max_size=60) | st.text("ab\x01\x02 é", max_size=30).map(str.encode))
def test_any_bytes_can_be_parsed_and_give_no_empty_names_or_values(raw: bytes) -> None:
    assert all(name and value for name, value in properties.parse(raw).items())


@pytest.mark.parametrize(
    "pair", [("", "v"), ("n", ""), ("n\x01", "v"), ("n\x02", "v"), ("n", "v\x02"), ("n", "\ud800"), ("n", "v" * 32767)]
)
def test_what_readers_would_lose_is_refused(pair: tuple[str, str]) -> None:
    with pytest.raises(MessageIllegal) as caught:
        properties.encode(dict([pair]))
    assert caught.value.code is ResponseCode.MESSAGE_ILLEGAL


def test_index_keys_are_the_unique_key_and_each_word_of_keys() -> None:
    assert properties.index_keys({"KEYS": " a  b ", "UNIQ_KEY": "U"}) == ["U", "a", "b"]
    assert properties.index_keys({"TAGS": "t"}) == []
