"""The dictionary: durable before it is seen, bounded, and never silently empty."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.errors import NewerFormat, OutcomeUnknown, Refused, StartError
from namesrv.config import KvLimits
from namesrv.kvconfig import DamagedSettings, KvConfig, decode, encode


class Memory:
    """A keeper that can be told to fail, before or after the bytes have changed."""

    def __init__(self, data: bytes | None = None) -> None:
        self.data = data
        self.saves = 0
        self.fails: Exception | None = None

    def load(self) -> bytes | None:
        return self.data

    def save(self, data: bytes) -> None:
        if isinstance(self.fails, Refused):
            raise self.fails
        self.data = data
        self.saves += 1
        if self.fails is not None:
            raise self.fails


def fresh(keeper: Memory, **limits: int) -> KvConfig:
    return KvConfig(keeper, KvLimits(**limits))


def test_what_was_put_is_there_in_the_next_life() -> None:
    keeper = Memory()
    kv = fresh(keeper)
    kv.put("ORDER_TOPIC_CONFIG", "orders", "b0:4;b1:4")
    kv.put("x", "k", "Größe")
    kv.put("x", "k2", "")
    for life in (kv, fresh(keeper)):
        assert life.get("ORDER_TOPIC_CONFIG", "orders") == "b0:4;b1:4"
        assert life.table("x") == {"k": "Größe", "k2": ""}
        assert life.namespaces() == ("ORDER_TOPIC_CONFIG", "x")
        assert life.get("x", "nothing") is None and life.get("nothing", "k") is None and life.table("nothing") == {}


def test_a_namespace_goes_with_its_last_key_and_deleting_nothing_writes_nothing() -> None:
    keeper = Memory()
    kv = fresh(keeper)
    kv.delete("x", "k")
    assert keeper.saves == 0
    kv.put("x", "k", "v")
    kv.put("x", "k", "v")
    assert keeper.saves == 1
    kv.delete("x", "k")
    assert kv.namespaces() == fresh(keeper).namespaces() == ()


def test_a_change_that_could_not_be_saved_is_not_seen() -> None:
    keeper = Memory()
    kv = fresh(keeper)
    kv.put("x", "k", "old")
    keeper.fails = Refused("no room")
    with pytest.raises(Refused):
        kv.put("x", "k", "new")
    with pytest.raises(Refused):
        kv.delete("x", "k")
    assert kv.get("x", "k") == "old"


def test_after_an_unknown_outcome_the_old_value_is_written_again_and_not_taken_for_granted() -> None:
    keeper = Memory()
    kv = fresh(keeper)
    kv.put("x", "k", "old")
    keeper.fails = OutcomeUnknown("the directory could not be synced")
    with pytest.raises(OutcomeUnknown):
        kv.put("x", "k", "new")
    with pytest.raises(OutcomeUnknown):
        kv.put("y", "k", "new")
    keeper.fails = None
    kv.put("x", "k", "old")
    assert fresh(keeper).get("x", "k") == "old" and fresh(keeper).namespaces() == ("x",)
    keeper.fails = OutcomeUnknown("again")
    with pytest.raises(OutcomeUnknown):
        kv.put("y", "k", "new")
    keeper.fails = None
    kv.delete("y", "k")
    assert fresh(keeper).namespaces() == ("x",)


@pytest.mark.parametrize(
    "namespace, key, value",
    [("", "k", "v"), ("n", "", "v"), ("n" * 256, "k", "v"), ("n", "é" * 128, "v"), ("n", "k", "v" * 101),
     ("n", "k", "\ud800"), ("\ud800", "k", "v")],
)
def test_what_is_too_long_or_no_text_is_refused(namespace: str, key: str, value: str) -> None:
    keeper = Memory()
    with pytest.raises(Refused):
        fresh(keeper, value_bytes_max=100).put(namespace, key, value)
    assert keeper.saves == 0


def test_the_whole_has_a_bound_and_deleting_makes_room() -> None:
    keeper = Memory()
    kv = fresh(keeper, file_bytes_max=1024, value_bytes_max=500)
    kv.put("n", "a", "v" * 500)
    with pytest.raises(Refused, match=r"kv\.file_bytes_max"):
        kv.put("n", "b", "v" * 500)
    kv.delete("n", "a")
    kv.put("n", "b", "v" * 500)
    assert keeper.data is not None and len(keeper.data) <= 1024


def test_the_file_is_this() -> None:
    assert encode({"n": {"k": "v"}}) == (
        b'{\n  "checksum": "ff505d35",\n  "format": 1,\n  "tables": {\n    "n": {\n      "k": "v"\n    }\n  }\n}\n'
    )


GOOD = encode({"n": {"k": "v", "l": "w"}})


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", b"null", b"\xff", GOOD[:-1], GOOD + b"\n", b"[" * 100_000, GOOD.replace(b'"v"', b'"x"'),
     GOOD.replace(b'"v"', b"1"), GOOD.replace(b'"v"', b'"\\ud800"'), GOOD.replace(b'"format": 1', b'"format": 0'),
     json.dumps({"tables": []}).encode(), json.dumps({"tables": {"n": []}}).encode()],
)
def test_a_damaged_file_stops_the_start_with_code_2(data: bytes) -> None:
    with pytest.raises(DamagedSettings) as caught:
        fresh(Memory(data))
    assert caught.value.exit_code == 2
    assert "backup" in str(caught.value)


def test_a_file_of_a_newer_release_is_not_called_damaged() -> None:
    with pytest.raises(NewerFormat):
        decode(GOOD.replace(b'"format": 1', b'"format": 2'))


@given(st.integers(0, len(GOOD) - 1), st.integers(0, 7))
def test_no_flipped_bit_goes_unnoticed(at: int, bit: int) -> None:
    spoiled = bytearray(GOOD)
    spoiled[at] ^= 1 << bit
    with pytest.raises(StartError):
        decode(bytes(spoiled))


TEXT = st.text(max_size=5)


@given(st.dictionaries(TEXT, st.dictionaries(TEXT, TEXT, min_size=1, max_size=3), max_size=3))
def test_every_dictionary_survives_its_file(tables: dict[str, dict[str, str]]) -> None:
    assert decode(encode(tables)) == tables
