"""Whose store a directory is."""

import json
from dataclasses import replace
from random import Random

import pytest

from chaos.simdisk import SimDisk
from model.errors import NewerFormat, WrongStore
from store import identity
from store.config import StoreConfig
from store.hardstate import DamagedState
from store.identity import NAMES, StoreIdentity
from tests.store.powercut import crash_everywhere

SHAPE: dict[str, int] = {"segment_bytes": 4096, "queue_file_units": 8, "index_slots": 16, "index_units": 24}
OURS = StoreIdentity(cluster="c", group="g", node="n1", incarnation=2**63 - 1, **SHAPE)


def store() -> SimDisk:
    disk = SimDisk(Random(1))
    identity.create(disk, OURS)
    return disk


def test_an_empty_directory_has_no_identity() -> None:
    disk = SimDisk(Random(1))
    assert identity.load(disk) is None
    assert disk.files() == []


def test_what_was_created_is_loaded_and_people_can_read_it() -> None:
    disk = store()
    assert identity.load(disk) == OURS
    assert json.loads(disk.read(NAMES[0]))["node"] == "n1"
    assert sorted(disk.files()) == sorted(NAMES)


def test_a_crash_at_any_step_of_create_leaves_nothing_or_the_identity() -> None:
    for disk, finished in crash_everywhere(lambda _: None, lambda disk: identity.create(disk, OURS), seeds=4):
        found = identity.load(disk)
        assert found == OURS if finished else found in (None, OURS)
        identity.mend(disk, OURS)
        assert {disk.read(name) for name in NAMES} == {identity.encode(OURS)}


@pytest.mark.parametrize("key, value", [("cluster", "d"), ("group", "h"), ("node", "n2")])
def test_another_store_is_refused_by_name_of_the_difference(key: str, value: str) -> None:
    wanted = {"cluster": "c", "group": "g", "node": "n1"}
    identity.check(OURS, **wanted, store=StoreConfig(**SHAPE))
    with pytest.raises(WrongStore, match=f"{key} is .* not {value!r}") as refusal:
        identity.check(OURS, **(wanted | {key: value}), store=StoreConfig(**SHAPE))
    assert "life of a group" not in str(refusal.value)


@pytest.mark.parametrize("key", SHAPE)
def test_a_knob_that_shapes_files_is_fixed_for_the_life_of_a_group(key: str) -> None:
    other = StoreConfig(**(SHAPE | {key: 8192}))
    with pytest.raises(WrongStore, match=rf"{key} is {SHAPE[key]}, not 8192 \({key}: fixed for the life of a group\)"):
        identity.check(OURS, cluster="c", group="g", node="n1", store=other)


def test_a_knob_that_shapes_no_file_may_change() -> None:
    other = StoreConfig(**SHAPE, checkpoint_bytes=5000, retention_hours=1)
    identity.check(OURS, cluster="c", group="g", node="n1", store=other)


def test_every_difference_is_named_at_once() -> None:
    with pytest.raises(WrongStore, match=r"cluster .*node .*queue_file_units .*index_slots .*index_units"):
        identity.check(OURS, cluster="x", group="g", node="y", store=StoreConfig(segment_bytes=4096))


def test_an_identity_tells_the_knobs_its_files_were_made_with() -> None:
    assert OURS.shape == StoreConfig(**SHAPE)
    assert identity.new("c", "g", "n1", OURS.incarnation, OURS.shape) == OURS


@pytest.mark.parametrize("name", NAMES)
def test_every_flip_and_cut_of_one_copy_is_harmless_and_mended(name: str) -> None:
    disk = store()
    data = disk.read(name)
    for at in range(len(data)):
        for damaged in (data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :], data[:at]):
            disk.replace(name, damaged)
            assert identity.load(disk) == OURS
            assert disk.read(name) == damaged
            assert identity.mend(disk, OURS) == (name,)
            assert disk.read(name) == data


def test_damage_in_both_copies_is_a_clear_error() -> None:
    disk = store()
    data = disk.read(NAMES[0])
    for at in range(len(data)):
        damaged = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        for name, content in zip(NAMES, (damaged, data[:at]), strict=True):
            disk.replace(name, content)
        with pytest.raises(DamagedState):
            identity.load(disk)


@pytest.mark.parametrize("garbage", [b"", b"[]", b"\xff\xfe", b"{" * 100_000, b'{"format": 1}', b"7" * 10_000])
def test_garbage_is_a_clear_error(garbage: bytes) -> None:
    disk = store()
    for name in NAMES:
        disk.replace(name, garbage)
    with pytest.raises(DamagedState):
        identity.load(disk)


def test_copies_of_two_nodes_are_a_clear_error() -> None:
    disk = store()
    disk.replace(NAMES[1], identity.encode(replace(OURS, node="n2")))
    with pytest.raises(DamagedState, match="contradict"):
        identity.load(disk)


def test_a_newer_format_is_refused_and_nothing_is_touched() -> None:
    disk = store()
    newer = json.dumps({"format": 2, "shape": "unknown today"}).encode()
    for name in NAMES:
        disk.replace(name, newer)
    with pytest.raises(NewerFormat, match="format 2"):
        identity.load(disk)
    assert {disk.read(name) for name in NAMES} == {newer}
