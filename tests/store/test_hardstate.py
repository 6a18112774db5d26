"""The records that must never be lost or mixed."""

from random import Random

import pytest

from chaos.simdisk import SimDisk, SimFile
from store.disk import Disk
from store.hardstate import SLOT_BYTES, DamagedState, HardState, HardStateFile, WatermarkFile, Watermarks
from tests.store.powercut import crash_everywhere

OLD, NEW = HardState(4, "n2"), HardState(5, "n1")
A, B = HardStateFile.NAMES


def saved(*states: HardState) -> SimDisk:
    disk = SimDisk(Random(1))
    record = HardStateFile(disk)
    for state in states:
        record.save(state)
    return disk


def put(disk: Disk, name: str, data: bytes) -> None:
    disk.replace(name, data)


def test_a_fresh_directory_has_no_hard_state_and_is_not_touched() -> None:
    disk = SimDisk(Random(1))
    assert HardStateFile(disk).load() is None
    assert WatermarkFile(disk).load() is None
    assert disk.files() == []


def test_what_was_saved_last_is_loaded() -> None:
    disk = saved(OLD, NEW, HardState(6, ""), HardState(2**62, "knöten"))
    assert HardStateFile(disk).load() == HardState(2**62, "knöten")
    marks = WatermarkFile(disk)
    marks.save(Watermarks(10, 7, 1))
    marks.save(Watermarks(2**60, 2**59, 2**32 - 1))
    assert WatermarkFile(disk).load() == Watermarks(2**60, 2**59, 2**32 - 1)
    assert disk.files() == ["checkpoint", "checkpoint.1", A, B]


def test_both_slots_are_durable_and_equal_when_save_returns() -> None:
    disk = saved(OLD, NEW)
    assert disk.durable_bytes(A) == disk.durable_bytes(B)
    disk.crash()
    assert HardStateFile(disk).peek() == NEW


@pytest.mark.parametrize("before", [(), (OLD,), (HardState(3, "x"), OLD)])
def test_a_crash_at_any_step_of_a_save_leaves_the_old_or_the_new_pair(before: tuple[HardState, ...]) -> None:
    old = before[-1] if before else None

    def prepare(disk: SimDisk) -> None:
        for state in before:
            HardStateFile(disk).save(state)

    for disk, finished in crash_everywhere(prepare, lambda disk: HardStateFile(disk).save(NEW)):
        found = HardStateFile(disk).load()
        assert found == NEW if finished else found in (old, NEW)


def test_a_crash_while_loading_a_half_saved_pair_never_goes_back() -> None:
    """Slot A is new, B old; the node that loaded the new one may act on it, so no later crash may show the old one."""

    def prepare(disk: SimDisk) -> None:
        ahead = saved(OLD, NEW)
        put(disk, A, ahead.read(A))
        put(disk, B, saved(OLD).read(B))

    def change(disk: Disk) -> None:
        record = HardStateFile(disk)
        assert record.load() == NEW
        record.save(HardState(6, "n3"))

    for disk, finished in crash_everywhere(prepare, change):
        found = HardStateFile(disk).load()
        assert found == HardState(6, "n3") if finished else found in (NEW, HardState(6, "n3"))


def test_a_crash_while_one_slot_is_damaged_never_loses_the_other() -> None:
    def prepare(disk: SimDisk) -> None:
        whole = saved(OLD)
        put(disk, A, whole.read(A))
        put(disk, B, whole.read(B)[:100])

    for disk, finished in crash_everywhere(prepare, lambda disk: HardStateFile(disk).save(NEW)):
        found = HardStateFile(disk).load()
        assert found == NEW if finished else found in (OLD, NEW)


@pytest.mark.parametrize("first, second", [(A, B), (B, A)])
def test_the_slot_that_is_no_good_is_written_first(
    first: str, second: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device may lose a sector that it was writing when the power went: never the only good one."""
    for content in (saved(OLD).read(first), b"damaged"):
        disk = saved(OLD, NEW)
        put(disk, first, content)
        order: list[str] = []
        with monkeypatch.context() as patch:
            patch.setattr(SimFile, "write_at", lambda self, at, data, order=order: order.append(self.name))
            patch.setattr(SimDisk, "replace", lambda self, name, data, order=order: order.append(name))
            assert HardStateFile(disk).load() == NEW
        assert order == [first, second]


def test_loading_makes_both_slots_equal_before_anyone_acts() -> None:
    disk = saved(OLD, NEW)
    put(disk, B, saved(OLD).read(B))
    record = HardStateFile(disk)
    assert record.load() == NEW
    assert disk.durable_bytes(A) == disk.durable_bytes(B)
    disk.flip_bit(A, 20, 3)
    assert HardStateFile(disk).load() == NEW


@pytest.mark.parametrize("name", [A, B])
def test_one_flipped_byte_or_a_cut_of_one_file_is_repaired(name: str) -> None:
    whole = saved(OLD, NEW)
    data = whole.read(name)
    assert len(data) == SLOT_BYTES
    for at in range(SLOT_BYTES):
        for damaged in (data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :], data[:at]):
            put(whole, name, damaged)
            record = HardStateFile(whole)
            assert record.load() == NEW
            assert record.damaged == (name,)
            assert whole.read(name) == data


def test_a_lost_file_is_repaired() -> None:
    disk = saved(OLD, NEW)
    disk.remove(A)
    record = HardStateFile(disk)
    assert record.peek() == NEW
    assert not disk.exists(A)
    assert record.load() == NEW
    assert record.damaged == (A,)
    assert disk.read(A) == disk.read(B)


@pytest.mark.parametrize("at", range(0, SLOT_BYTES, 7))
def test_two_damaged_slots_are_a_clear_error_and_stay_as_they_are(at: int) -> None:
    disk = saved(OLD, NEW)
    disk.flip_bit(A, at, 1)
    disk.flip_bit(B, SLOT_BYTES - 1 - at, 2)
    before = disk.read(A), disk.read(B)
    with pytest.raises(DamagedState, match="no valid copy"):
        HardStateFile(disk).load()
    with pytest.raises(DamagedState):
        HardStateFile(disk).save(NEW)
    assert (disk.read(A), disk.read(B)) == before


def test_slots_that_contradict_one_another_are_damage() -> None:
    disk = saved(OLD)
    put(disk, B, saved(NEW).read(B))
    with pytest.raises(DamagedState, match="contradict"):
        HardStateFile(disk).load()


def test_a_checkpoint_in_the_place_of_a_hard_state_is_damage() -> None:
    disk = saved(OLD)
    WatermarkFile(disk).save(Watermarks(1, 1, 1))
    for name in (A, B):
        put(disk, name, disk.read("checkpoint"))
    with pytest.raises(DamagedState):
        HardStateFile(disk).load()


def test_every_flip_and_cut_of_the_checkpoint_is_repaired_or_a_clear_error() -> None:
    disk = SimDisk(Random(3))
    marks = Watermarks(123456, 123000, 99)
    WatermarkFile(disk).save(marks)
    data = disk.read("checkpoint")
    for at in range(len(data)):
        put(disk, "checkpoint", data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :])
        assert WatermarkFile(disk).peek() == marks
        put(disk, "checkpoint.1", data[:at])
        with pytest.raises(DamagedState):
            WatermarkFile(disk).peek()
        put(disk, "checkpoint.1", data)
