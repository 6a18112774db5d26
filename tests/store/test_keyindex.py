"""The key index against a list."""

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from chaos.simdisk import SimDisk, SimFile
from store.handles import Handles
from store.hardstate import DamagedState
from store.keyindex import HEADER, UNIT, UNIT_BYTES, KeyIndex, _Table, file_name

SLOTS, PER_FILE, SEGMENT = 13, 24, 1000
Key = tuple[int, int, int]  # hash, position, time
Entry = tuple[list[tuple[int, int]], int]  # (hash, position) of each key, time
T0 = 1_700_000_000_123


def open_index(disk: SimDisk) -> KeyIndex:
    return KeyIndex(disk, Handles(disk, limit=2), SLOTS, PER_FILE, SEGMENT)


def put(index: KeyIndex, entry: Entry) -> None:
    keys, time_ms = entry
    index.put_many(np.array([key[0] for key in keys]), np.array([key[1] for key in keys]), time_ms)


def some_entries(random: Random, count: int) -> list[Entry]:
    entries, position, time_ms = [], random.randint(0, 200), T0
    for _ in range(count):
        keys = []
        messages = random.choice((1, 1, 2, 5, 11))
        if position % SEGMENT + 20 * messages > SEGMENT:
            position += SEGMENT - position % SEGMENT
        for _ in range(messages):
            hashes = [random.choice((5, 18, random.getrandbits(31))) for _ in range(random.choice((1, 1, 3)))]
            keys += [(hash_, position) for hash_ in hashes]
            position += 20
        entries.append((keys, time_ms))
        position += random.choice((0, 60, 300))
        time_ms += random.choice((0, 1, 700, 5000))
    return entries


def flat(entries: list[Entry]) -> list[Key]:
    return [(hash_, position, time_ms) for keys, time_ms in entries for hash_, position in keys]


def content(disk: SimDisk) -> dict[str, bytes]:
    return {name: disk.read(name) for name in disk.files()}


def rebuilt(entries: list[Entry], log_start: int = 0) -> dict[str, bytes]:
    disk = SimDisk(Random(1))
    index = open_index(disk)
    for entry in entries:
        if entry[0][0][1] >= log_start:
            put(index, entry)
    return content(disk)


def dumb_lookup(keys: list[Key], hash_: int, begin: int, end: int, most: int) -> list[int]:
    return [at for found, at, time_ms in reversed(keys) if found == hash_ and begin <= time_ms <= end][:most]


def test_the_layout_is_the_one_in_the_books() -> None:
    disk = SimDisk(Random(1))
    index = open_index(disk)
    put(index, ([(5, 100), (18, 100), (6, 120)], T0))  # 5 and 18 share a slot
    put(index, ([(5, 300)], T0 + 2500))
    name = "index/20231114221320123-00000000000000000100"
    assert file_name(T0, 100) == name
    units = [(5, 100, 0, 0), (18, 100, 0, 1), (6, 120, 0, 0), (5, 300, 2, 2)]
    tail = bytes(UNIT_BYTES) + b"".join(UNIT.pack(*unit) for unit in units)
    assert disk.read(name) == bytes(HEADER.size + 4 * SLOTS) + tail
    put(index, ([(1, 1000)], T0 + 9000))  # the next segment: the first file is complete
    slots = np.zeros(SLOTS, ">i4")
    slots[5], slots[6] = 4, 3
    assert disk.read(name) == HEADER.pack(T0, T0 + 2000, 100, 300, 2, 5) + slots.tobytes() + tail


def test_a_full_file_ends_before_the_entry_that_does_not_fit_and_a_huge_entry_gets_its_own() -> None:
    disk = SimDisk(Random(1))
    index = open_index(disk)
    for first, count in ((0, 20), (100, 4), (200, 60), (300, 1)):
        put(index, ([(7, first + at) for at in range(count)], T0))
    assert [name[-20:] for name in disk.files()] == [f"{first:020d}" for first in (0, 100, 200, 300)]
    assert index.lookup(7, T0, T0, 1000) == [300, *range(259, 199, -1), *range(103, 99, -1), *range(19, -1, -1)]


@given(st.lists(st.lists(st.integers(0, 2**31 - 1) | st.integers(0, 40), min_size=1, max_size=40), max_size=12))
def test_a_batch_of_keys_is_chained_as_if_they_came_one_by_one(calls: list[list[int]]) -> None:
    together, alone, number = _Table(SLOTS), _Table(SLOTS), 1
    for hashes in calls:
        expected = [alone.chain_one(hash_, at) for at, hash_ in enumerate(hashes, number)]
        assert together.chain(np.array(hashes, ">i4"), number).tolist() == expected
        number += len(hashes)
        assert together.used == alone.used
        assert np.array_equal(together.newest, alone.newest) and np.array_equal(together.touched, alone.touched)


def test_only_a_slot_that_repeats_costs_a_sort(monkeypatch: pytest.MonkeyPatch) -> None:
    sorts: list[int] = []
    argsort = np.argsort

    def counting(values: NDArray[np.intp], **how: Any) -> NDArray[np.intp]:
        sorts.append(len(values))
        return argsort(values, **how)

    monkeypatch.setattr(np, "argsort", counting)
    table = _Table(SLOTS)
    assert table.chain(np.array([3, 5, 4], ">i4"), 1).tolist() == [0, 0, 0]
    assert table.chain(np.array([5, 3, 9], ">i4"), 4).tolist() == [2, 1, 0]
    assert sorts == []
    assert table.chain(np.array([5, 3, 5 + SLOTS, 8], ">i4"), 7).tolist() == [4, 5, 7, 0]
    assert sorts == [4] and (table.used, int(table.newest[5])) == (5, 9)


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 40), st.booleans())
def test_lookups_equal_those_of_a_list(seed: int, count: int, reopen: bool) -> None:
    random = Random(seed)
    entries = some_entries(random, count)
    disk = SimDisk(Random(1))
    index = open_index(disk)
    for entry in entries:
        put(index, entry)
    if reopen:
        index = open_index(disk)
    keys = flat(entries)
    seen = [key for _, _, units in index.units() for key in zip(units["hash"], units["position"], strict=True)]
    assert seen == [(hash_, position) for hash_, position, _ in keys]
    for _ in range(15):
        hash_ = random.choice((5, 18, random.choice(keys)[0], 31))
        begin, end = sorted(random.choice(keys)[2] + random.choice((-1, 0, 1, 999)) for _ in range(2))
        least = dumb_lookup(keys, hash_, begin, end, 10**6)
        most = dumb_lookup(keys, hash_, begin - 999, end + 999, 10**6)
        found = index.lookup(hash_, begin, end, 10**6)
        assert set(least) <= set(found) <= set(most)  # times are kept to the second
        assert found == sorted(found, reverse=True)
        assert index.lookup(hash_, begin, end, 3) == found[:3]
        assert index.lookup(hash_, 0, 2**62, 5) == dumb_lookup(keys, hash_, 0, 2**62, 5)


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 40))
def test_dropping_segments_leaves_what_a_rebuild_from_there_gives(seed: int, count: int) -> None:
    entries = some_entries(Random(seed), count)
    disk = SimDisk(Random(1))
    index = open_index(disk)
    for entry in entries:
        put(index, entry)
    last = flat(entries)[-1][1]
    for log_start in range(0, last + 2 * SEGMENT, SEGMENT):
        index.drop_below(log_start)
        assert content(disk) == rebuilt(entries, log_start)
    put(index, ([(3, last + 5000)], T0 * 2))
    assert len(disk.files()) == 1


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32), st.booleans())
def test_after_a_crash_the_index_is_what_a_rebuild_gives_or_asks_for_one(seed: int, power_cut: bool) -> None:
    random = Random(seed)
    entries = some_entries(random, random.randint(2, 30))
    synced = random.randint(1, len(entries) - 1)
    disk = SimDisk(Random(seed))
    handles = Handles(disk)
    index = KeyIndex(disk, handles, SLOTS, PER_FILE, SEGMENT)
    for entry in entries[:synced]:
        put(index, entry)
    ticket = handles.flush()
    disk.sync(ticket.files)
    for directory in ticket.directories:
        disk.sync_dir(directory)
    for entry in entries[synced:]:
        put(index, entry)
    checkpoint = entries[synced][0][0][1] - random.randint(0, 20)
    checkpoint = max(checkpoint, flat(entries[:synced])[-1][1] + 20)
    log_start = random.randint(0, checkpoint // SEGMENT) * SEGMENT
    if power_cut:
        disk.crash()
    else:
        disk.kill()
    index = open_index(disk)
    try:
        index.cut_back(checkpoint, log_start)
    except DamagedState:
        assert power_cut or flat(entries[:synced])[-1][1] % 256 == 0  # a genuine unit that looks torn
        return
    assert content(disk) == rebuilt(entries[:synced], log_start)
    for entry in entries[synced:]:
        put(index, entry)
    assert content(disk) == rebuilt(entries, log_start)


def test_a_rebuild_after_a_torn_tail_is_the_exception() -> None:
    asked = 0
    for seed in range(300):
        disk = SimDisk(Random(seed))
        handles = Handles(disk)
        index = KeyIndex(disk, handles, SLOTS, PER_FILE, SEGMENT)
        put(index, ([(1, 0x111), (2, 0x131)], T0))
        ticket = handles.flush()
        disk.sync(ticket.files)
        disk.sync_dir("index")
        put(index, ([(seed, 0x1C5)], T0))
        disk.crash()
        index = open_index(disk)
        try:
            index.cut_back(0x180, 0)
            assert content(disk) == rebuilt([([(1, 0x111), (2, 0x131)], T0)])
        except DamagedState:
            asked += 1
    assert asked < 30


def test_a_unit_torn_inside_its_position_is_never_taken_for_an_old_one() -> None:
    """Position 0x1234 cut to 0x1200 looks as if it were below the checkpoint 0x1210."""
    for kept in range(UNIT_BYTES):
        disk = SimDisk(Random(1))
        index = KeyIndex(disk, Handles(disk), SLOTS, PER_FILE, 1 << 20)
        put(index, ([(1, 0x1101)], T0))
        whole = content(disk)
        put(index, ([(2, 0x1234)], T0))
        file = disk.open(disk.files()[0])
        file.write_at(file.size - UNIT_BYTES + kept, bytes(UNIT_BYTES - kept))
        index = KeyIndex(disk, Handles(disk), SLOTS, PER_FILE, 1 << 20)
        if kept == 11:
            with pytest.raises(DamagedState, match="rebuild"):
                index.cut_back(0x1210, 0)
        else:
            index.cut_back(0x1210, 0)
            assert content(disk) == whole


def test_every_flip_and_cut_gives_candidates_or_a_clear_error() -> None:
    entries = some_entries(Random(4), 8)
    whole = rebuilt(entries)
    assert len(whole) > 1
    last = flat(entries)[-1][1]
    for name, data in whole.items():
        for at in range(len(data)):
            for damaged in (data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :], data[:at]):
                disk = SimDisk(Random(1))
                for other, right in whole.items():
                    disk.replace(other, damaged if other == name else right)
                index = open_index(disk)
                try:
                    for hash_ in (5, 18):
                        index.lookup(hash_, 0, 2**62, 100)
                    open_index(disk).cut_back(last + 20, 0)
                except DamagedState:
                    pass


def test_a_table_of_the_default_size_is_never_written_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimDisk(Random(1))
    index = KeyIndex(disk, Handles(disk), 5_000_000, 20_000_000, SEGMENT)
    put(index, ([(3, 0)], T0))
    writes: list[int] = []
    monkeypatch.setattr(SimFile, "write_at", lambda self, at, data: writes.append(len(data)))
    put(index, ([(4, SEGMENT)], T0))
    assert sorted(writes) == [UNIT_BYTES, HEADER.size, 4096]


def test_an_index_tells_whether_it_ends_with_the_keys_of_an_entry() -> None:
    disk = SimDisk(Random(1))
    assert not open_index(disk).ends_with(1, 0)
    put(open_index(disk), ([(5, 100), (6, 100), (7, 121)], T0))
    index = open_index(disk)
    index.cut_back(1000, 0)
    assert index.ends_with(3, 60) and index.ends_with(1, 121) and index.ends_with(2, 100)
    assert not index.ends_with(4, 60) and not index.ends_with(2, 101)


@pytest.mark.parametrize("damage", ["short", "header"])
def test_damage_of_a_complete_file_is_found_at_the_start(damage: str) -> None:
    disk = SimDisk(Random(1))
    index = open_index(disk)
    for position in (100, 300, 1000):
        put(index, ([(5, position)], T0))
    name = disk.files()[0]
    if damage == "short":
        disk.open(name).truncate(len(disk.read(name)) - UNIT_BYTES)
    else:
        disk.flip_bit(name, 39, 0)
    with pytest.raises(DamagedState, match="rebuild"):
        open_index(disk).cut_back(2000, 0)
