"""Consume queues against lists."""

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.simdisk import SimDisk
from store.consumequeue import (
    SCAN_UNITS_MAX,
    UNIT,
    UNIT_BYTES,
    ConsumeQueue,
    PullPlan,
    PullStatus,
    pack_units,
    queue_directory,
)
from store.handles import Handles
from store.hardstate import DamagedState

Unit = tuple[int, int, int]  # position, size, tag
PER_FILE = 7
WHERE = "consumequeue/t/0"


def open_queue(disk: SimDisk, per_file: int = PER_FILE) -> ConsumeQueue:
    return ConsumeQueue(disk, Handles(disk, limit=2), WHERE, per_file)


def put(queue: ConsumeQueue, first: int, units: list[Unit]) -> None:
    columns = [np.array([unit[at] for unit in units], np.int64) for at in range(3)]
    queue.append_columns(first, columns[0], columns[1], columns[2])


def some_units(random: Random, count: int, position: int = 100) -> list[Unit]:
    units = []
    for _ in range(count):
        position += random.choice((0, 0, 60))  # sometimes an envelope lies between
        size = random.randint(1, 90)
        units.append((position, size, random.choice((0, 1, -7, 2**31 - 1))))
        position += size
    return units


def dumb_plan(
    units: list[Unit], first: int, offset: int, count_max: int, bytes_max: int, tags: frozenset[int] | None, below: int
) -> PullPlan:
    end = first + len(units)
    if offset < first:
        return PullPlan(PullStatus.TOO_SMALL, (), first, 0)
    if offset > end:
        return PullPlan(PullStatus.BEYOND_END, (), end, 0)
    at = offset
    used = count = 0
    extents: list[tuple[int, int]] = []
    while at < end and at < offset + SCAN_UNITS_MAX and units[at - first][0] < below:
        position, size, tag = units[at - first]
        if tags is None or tag in tags:
            if count and (count >= count_max or used + size > bytes_max):
                break
            if extents and extents[-1][1] == position:
                extents[-1] = (extents[-1][0], position + size)
            else:
                extents.append((position, position + size))
            used += size
            count += 1
            if tags is None and count >= max(count_max, 1):
                at += 1
                break
        at += 1
    if count:
        return PullPlan(PullStatus.FOUND, tuple(extents), at, count)
    return PullPlan(PullStatus.NO_MATCH if at > offset else PullStatus.AT_END, (), at, 0)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../x", "a\0b", "a\n", "x" * 256, "tö", "a b"])
def test_a_name_that_is_not_one_plain_directory_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not the name of a queue"):
        queue_directory(name, 0)
    with pytest.raises(ValueError):
        queue_directory("t", -1)
    assert queue_directory("%RETRY%group|x.y-z_1", 3) == "consumequeue/%RETRY%group|x.y-z_1/3"


SIZES, TAGS = st.integers(1, 2**31 - 1), st.integers(-(2**31), 2**31 - 1)


@given(st.lists(st.tuples(st.integers(0, 2**62), SIZES, TAGS), max_size=20))
def test_the_plain_and_the_column_path_write_the_same_bytes(units: list[Unit]) -> None:
    columns = [np.array([unit[at] for unit in units], np.int64) for at in range(3)]
    assert pack_units(columns[0], columns[1], columns[2]) == b"".join(UNIT.pack(*unit) for unit in units)


def test_files_have_their_first_byte_offset_as_name_and_end_with_the_last_unit() -> None:
    disk = SimDisk(Random(1))
    units = some_units(Random(2), 17)
    put(open_queue(disk), 0, units)
    assert disk.files() == [f"{WHERE}/{first * UNIT_BYTES:020d}" for first in (0, 7, 14)]
    assert b"".join(map(disk.read, disk.files())) == b"".join(UNIT.pack(*unit) for unit in units)


def test_a_queue_that_begins_later_has_zeros_before_its_first_unit() -> None:
    disk = SimDisk(Random(1))
    queue = open_queue(disk)
    put(queue, 10, [(500, 5, 1)])
    assert (queue.min_offset, queue.max_offset) == (10, 11)
    assert disk.files() == [f"{WHERE}/{140:020d}"]
    assert disk.read(disk.files()[0]) == bytes(60) + UNIT.pack(500, 5, 1)
    again = open_queue(disk)
    assert (again.min_offset, again.max_offset) == (10, 11)


def test_a_gap_is_damage() -> None:
    queue = open_queue(SimDisk(Random(1)))
    put(queue, 0, [(0, 5, 0)])
    for first in (0, 2):
        with pytest.raises(DamagedState, match=f"ends at offset 1, but the log goes on at {first}"):
            put(queue, first, [(9, 5, 0)])


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 40), st.integers(1, 30), st.booleans())
def test_reads_and_plans_equal_those_of_a_list(seed: int, first: int, count: int, reopen: bool) -> None:
    random = Random(seed)
    disk = SimDisk(Random(1))
    queue = open_queue(disk)
    units = some_units(random, count)
    at = 0
    while at < count:
        step = random.randint(1, 12)
        put(queue, first + at, units[at : at + step])
        at += step
    if reopen:
        queue = open_queue(disk)
    assert (queue.min_offset, queue.max_offset) == (first, first + count)
    assert [unit.tolist() for _, piece in queue.units() for unit in piece] == units
    for _ in range(20):
        offset, count_max = random.randint(max(0, first - 2), first + count + 2), random.randint(1, 12)
        bytes_max = random.choice((1, 50, 300, 10**6))
        below = random.choice((10**9, random.randint(0, units[-1][0] + 9)))
        tags = random.choice((None, frozenset((1,)), frozenset((-7, 0)), frozenset((5,)), frozenset((0, 1, -7, 5, 6))))
        arguments = (offset, count_max, bytes_max, tags, below)
        assert queue.plan_read(*arguments) == dumb_plan(units, first, *arguments), arguments


def test_a_pull_scans_no_more_than_its_bound() -> None:
    queue = open_queue(SimDisk(Random(1)), per_file=300)
    put(queue, 0, [(100 * at, 100, 9 if at == 1000 else 1) for at in range(1200)])
    wanted = frozenset((9,))
    assert queue.plan_read(0, 32, 10**6, wanted, 10**9) == PullPlan(PullStatus.NO_MATCH, (), SCAN_UNITS_MAX, 0)
    found = queue.plan_read(SCAN_UNITS_MAX, 32, 10**6, wanted, 10**9)
    assert (found.status, found.extents, found.next_offset) == (PullStatus.FOUND, ((100_000, 100_100),), 1200)
    assert queue.plan_read(0, 5000, 10**9, None, 10**9).count == SCAN_UNITS_MAX


def test_every_flip_of_a_unit_gives_a_plan_or_a_clear_error() -> None:
    units = some_units(Random(5), 6)
    disk = SimDisk(Random(1))
    put(open_queue(disk), 0, units)
    name = disk.files()[0]
    data = disk.read(name)
    for at in range(len(data)):
        disk.replace(name, data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :])
        queue = open_queue(disk)
        for offset in range(queue.min_offset, queue.max_offset):
            try:
                plan = queue.plan_read(offset, 9, 10**6, None, 10**6)
                assert plan.next_offset <= 6
            except DamagedState:
                pass


def rebuilt(units: list[Unit], first: int, log_start: int, to: int) -> dict[str, bytes]:
    """What the rule says the files are: a rebuild from the log."""
    disk = SimDisk(Random(1))
    live = [(first + at, unit) for at, unit in enumerate(units) if log_start <= unit[0] and unit[0] + unit[1] <= to]
    if live:
        put(open_queue(disk), live[0][0], [unit for _, unit in live])
    return {name: disk.read(name) for name in disk.files()}


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 20), st.integers(1, 40), st.integers(0, 2**32))
def test_dropping_the_head_leaves_what_a_rebuild_from_there_gives(seed: int, first: int, count: int, cut: int) -> None:
    units = some_units(Random(seed), count)
    disk = SimDisk(Random(1))
    queue = open_queue(disk)
    put(queue, first, units)
    end = units[-1][0] + units[-1][1]
    for log_start in sorted(Random(cut).randint(1, end + 5) for _ in range(3)):
        if queue.drop_below(log_start):
            queue.remove()
        assert {name: disk.read(name) for name in disk.files()} == rebuilt(units, first, log_start, end)
        live = [at for at, unit in enumerate(units) if unit[0] >= log_start]
        if not live:
            return
        assert (queue.min_offset, queue.max_offset) == (first + live[0], first + count)
    put(queue, first + count, [(end + 50, 9, 9)])
    units.append((end + 50, 9, 9))
    assert {name: disk.read(name) for name in disk.files()} == rebuilt(units, first, log_start, end + 59)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32))
def test_after_a_crash_the_queue_is_cut_back_to_what_a_rebuild_gives(seed: int) -> None:
    """Synced up to a point, more appended and the head dropped without a sync, power cut, recovery."""
    random = Random(seed)
    units = some_units(random, random.randint(2, 40))
    first, synced = random.randint(0, 10), random.randint(1, len(units) - 1)
    disk = SimDisk(Random(seed))
    handles = Handles(disk)
    queue = ConsumeQueue(disk, handles, WHERE, PER_FILE)
    put(queue, first, units[:synced])
    ticket = handles.flush()
    disk.sync(ticket.files)
    for directory in ticket.directories:
        disk.sync_dir(directory)
    checkpoint = units[synced - 1][0] + units[synced - 1][1]
    at = synced
    while at < len(units):
        step = random.randint(1, 9)
        put(queue, first + at, units[at : at + step])
        at += step
    log_start = random.choice((0, random.randint(1, checkpoint)))
    queue.drop_below(log_start)
    disk.crash()
    queue = open_queue(disk)
    if queue.cut_back(checkpoint, log_start):
        queue.remove()
    else:
        assert queue.max_offset == first + synced
    assert {name: disk.read(name) for name in disk.files()} == rebuilt(units[:synced], first, log_start, checkpoint)


def test_recovery_reads_far_enough_back_through_a_long_lost_tail() -> None:
    disk = SimDisk(Random(1))
    queue = open_queue(disk, per_file=20_000)
    put(queue, 0, [(100 * at, 100, 1) for at in range(9_000)])
    name = disk.files()[0]
    disk.open(name).write_at(9_000 * UNIT_BYTES, bytes(9_000 * UNIT_BYTES + 13))
    again = open_queue(disk, per_file=20_000)
    assert not again.cut_back(700_000, 100_000)
    assert (again.min_offset, again.max_offset) == (1_000, 7_000)
    assert disk.read(name)[:20_000] == bytes(20_000)
    assert len(disk.read(name)) == 140_000


@pytest.mark.parametrize("damage", ["zero", "lost file", "short file"])
def test_lost_units_below_the_checkpoint_are_damage_and_not_a_torn_tail(damage: str) -> None:
    disk = SimDisk(Random(1))
    put(open_queue(disk), 0, [(100 * at, 100, 1) for at in range(18)])
    names = disk.files()
    if damage == "zero":
        disk.open(names[2]).write_at(20, bytes(20))
    elif damage == "lost file":
        disk.remove(names[1])
    else:
        disk.open(names[1]).truncate(60)
    with pytest.raises(DamagedState, match="rebuild"):
        open_queue(disk).cut_back(1800, 0)


def test_few_handles_are_enough_for_many_files() -> None:
    disk = SimDisk(Random(1))
    handles = Handles(disk, limit=3)
    queues = [ConsumeQueue(disk, handles, f"consumequeue/t/{at}", 4) for at in range(20)]
    for queue in queues:
        put(queue, 0, [(100 * at, 100, 1) for at in range(9)])
    assert handles.dirty_count == 60
    ticket = handles.flush()
    assert (handles.dirty_count, len(ticket.directories), handles.open_count) == (0, 20, 3)
    assert [len(queue.read_units(2, 7)) for queue in queues] == [7] * 20
    assert handles.open_count == 3
