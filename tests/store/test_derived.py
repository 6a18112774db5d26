"""Queues and index together: whatever happened, they equal a rebuild from the log, byte for byte."""

from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.simdisk import SimDisk
from store.config import StoreConfig
from store.derived import Derived, differences, fingerprint
from store.disk import Disk
from store.entry import ENVELOPE_BYTES
from store.hardstate import DamagedState
from store.preamble import Preamble, SubBatch, pack_preamble, parse_preamble
from store.realdisk import RealDisk
from tests.store.powercut import PowerCut, PowerCutDisk

CONFIG = StoreConfig(segment_bytes=4096, queue_file_units=8, index_slots=16, index_units=32)
TOPICS = ("a", "b", "%RETRY%g")


class Entry(NamedTuple):
    position: int
    time_ms: int
    preamble: Preamble
    deletes: str | None  # a topic that goes after this entry

    @property
    def end(self) -> int:
        return self.position + ENVELOPE_BYTES + self.preamble.messages_at + int(self.preamble.lengths.sum())


class Log(NamedTuple):
    entries: list[Entry]


def make_preamble(random: Random, offsets: dict[tuple[str, int], int], counts: list[int]) -> Preamble:
    batches = []
    for count in counts:
        topic, queue = random.choice(TOPICS), random.randrange(2)
        first = offsets.get((topic, queue), 0)
        offsets[topic, queue] = first + count
        batches.append(SubBatch(topic, queue, count, first))
    total = sum(counts)
    lengths = [random.randint(20, 60) for _ in range(total)]
    key_counts = [random.choice((0, 0, 1, 3)) for _ in range(total)]
    keys = [random.choice((7, random.getrandbits(31))) for _ in range(sum(key_counts))]
    head = pack_preamble(b"", batches, lengths, [random.getrandbits(20) for _ in range(total)], key_counts, keys)
    return parse_preamble(head + bytes(sum(lengths)))


def make_log(random: Random, count: int) -> Log:
    entries: list[Entry] = []
    offsets: dict[tuple[str, int], int] = {}
    position, time_ms = 0, 1_700_000_000_000
    for _ in range(count):
        shape = [random.choice((1, 1, 2, 12)) for _ in range(random.choice((0, 1, 1, 4)))]
        preamble = make_preamble(random, offsets, shape)
        entry = Entry(position, time_ms, preamble, None)
        if entry.end // CONFIG.segment_bytes > position // CONFIG.segment_bytes:
            position = (position // CONFIG.segment_bytes + 1) * CONFIG.segment_bytes
        topic = random.choice(TOPICS) if random.random() < 0.05 else None
        entry = entry._replace(position=position, deletes=topic)
        if topic is not None:
            offsets = {key: offset for key, offset in offsets.items() if key[0] != topic}
        entries.append(entry)
        position, time_ms = entry.end, time_ms + random.choice((0, 3, 1500))
    return Log(entries)


def advance(derived: Derived, log: Log, start: int, end: int) -> None:
    """What the broker does: dispatch committed entries, then their commands."""
    for entry in log.entries:
        if start <= entry.position < end:
            derived.dispatch(entry.position, entry.time_ms, entry.preamble)
            if entry.deletes is not None:
                derived.delete_topic(entry.deletes)


def replay(derived: Derived, log: Log, start: int, end: int) -> None:
    """A rebuild long after: which topics were deleted where is known from the state, commands are not run again."""
    gone = {entry.deletes: entry.position for entry in log.entries if entry.position < end}
    for entry in log.entries:
        if start <= entry.position < end:
            shown = {topic for topic in TOPICS if entry.position > gone.get(topic, -1)}
            derived.dispatch(entry.position, entry.time_ms, entry.preamble, shown.__contains__)


def rebuilt(log: Log, start: int, end: int) -> dict[str, int]:
    disk = SimDisk(Random(0))
    derived = Derived(disk, CONFIG)
    replay(derived, log, start, end)
    return derived.fingerprint()


def checkpoint(derived: Derived) -> None:
    derived.sync(derived.flush())


def segment_floor(position: int) -> int:
    return position - position % CONFIG.segment_bytes


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 60))
def test_derived_files_equal_a_rebuild_also_after_deletions_and_dropped_heads(seed: int, count: int) -> None:
    random = Random(seed)
    log = make_log(random, count)
    disk = SimDisk(Random(1))
    derived = Derived(disk, CONFIG)
    done = start = 0
    for _ in range(4):
        to = random.choice([entry.end for entry in log.entries if entry.end > done] or [done])
        advance(derived, log, done, to)
        done = to
        start = random.randrange(start, segment_floor(done) + 1, CONFIG.segment_bytes)
        derived.drop_below(start)
        assert differences(derived.fingerprint(), rebuilt(log, start, done)) == []
        if random.random() < 0.3:
            derived.close()
            derived = Derived(disk, CONFIG)


def recover(disk: Disk, log: Log, checkpoint_at: int, log_start: int, end: int) -> Derived:
    """What a start does, up to `end`."""
    derived = Derived(disk, CONFIG)
    go_on = derived.cut_back(checkpoint_at, log_start)
    assert go_on == (checkpoint_at if derived.damage is None else log_start)
    if derived.damage is not None:
        assert fingerprint(disk) == {}
        replay(derived, log, go_on, checkpoint_at)
    advance(derived, log, checkpoint_at, end)
    return derived


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 50))
def test_after_a_power_cut_at_any_step_recovery_equals_a_rebuild(seed: int, count: int) -> None:
    random = Random(seed)
    log = make_log(random, count)
    sim = SimDisk(Random(seed))
    ends = [entry.end for entry in log.entries]
    saved = start = done = 0
    disk = PowerCutDisk(sim, random.choice((5, 20, 60, 200)))
    derived = Derived(disk, CONFIG)
    durable_start = 0
    try:
        while done < ends[-1]:
            to = random.choice([end for end in ends if end > done])
            advance(derived, log, done, to)
            done = to
            if random.random() < 0.5:
                checkpoint(derived)
                saved = done
                durable_start = random.randrange(durable_start, segment_floor(saved) + 1, CONFIG.segment_bytes)
                derived.drop_below(durable_start)
                start = durable_start
    except PowerCut:
        start = durable_start
    sim.crash()
    for _ in range(2):  # a second crash falls into the recovery
        derived = recover(sim, log, saved, start, ends[-1])
        assert differences(derived.fingerprint(), rebuilt(log, start, ends[-1])) == []
        sim.crash()
    if all(entry.deletes is None for entry in log.entries if entry.position >= saved):
        derived = recover(sim, log, saved, start, saved)
        assert differences(derived.fingerprint(), rebuilt(log, start, saved)) == []


def test_a_topic_that_was_deleted_before_the_checkpoint_stays_deleted_after_a_crash() -> None:
    for seed in range(40):
        random = Random(seed)
        disk = SimDisk(Random(seed))
        derived = Derived(disk, CONFIG)
        preamble = make_preamble(random, {}, [9, 9, 9])
        derived.dispatch(0, 1, preamble)
        checkpoint(derived)
        for topic in TOPICS:
            derived.delete_topic(topic)
        ticket = derived.flush()
        assert "consumequeue" in ticket.directories  # on a real disk the queues' own directories are gone by now
        derived.sync(ticket)
        disk.crash()
        assert [name for name in disk.files() if name.startswith("consumequeue")] == []


def test_a_queue_that_was_damaged_below_the_checkpoint_is_thrown_away_and_dispatched_again() -> None:
    log = make_log(Random(3), 40)
    disk = SimDisk(Random(3))
    derived = Derived(disk, CONFIG)
    advance(derived, log, 0, log.entries[-1].end)
    checkpoint(derived)
    end = log.entries[-1].end
    noticed = 0
    for name in disk.files():
        for at in range(0, len(disk.read(name)), 11):
            copy = SimDisk(Random(1))
            for other in disk.files():
                copy.replace(other, disk.read(other))
            copy.flip_bit(name, at, at % 8)
            again = Derived(copy, CONFIG)
            go_on = again.cut_back(end, 0)
            assert (go_on == 0) == (again.damage is not None)
            noticed += again.damage is not None
    assert noticed > 0


def test_a_rebuild_that_a_crash_cut_short_is_begun_again_and_not_taken_for_complete() -> None:
    for seed in range(60):
        random = Random(seed)
        log = make_log(random, 20)
        end = log.entries[-1].end
        disk = SimDisk(Random(seed))
        derived = Derived(disk, CONFIG)
        advance(derived, log, 0, end)
        checkpoint(derived)
        name = next(name for name in disk.files() if name.startswith("consumequeue"))
        disk.replace(name, b"")
        if random.random() < 0.5:
            disk.replace(name, bytes(40))
        derived = Derived(disk, CONFIG)
        derived.clear()
        advance(derived, log, 0, log.entries[random.randrange(20)].end)
        if random.random() < 0.5:
            disk.crash()
        else:
            disk.kill()
        again = Derived(disk, CONFIG)
        assert again.cut_back(end, 0) == 0
        assert again.damage is not None
        advance(again, log, 0, end)
        checkpoint(again)
        disk.kill()
        last = Derived(disk, CONFIG)
        assert last.cut_back(end, 0) == end
        assert differences(last.fingerprint(), rebuilt(log, 0, end)) == []


def test_a_shortened_queue_is_noticed_when_the_log_goes_on() -> None:
    disk = SimDisk(Random(1))
    derived = Derived(disk, CONFIG)
    offsets: dict[tuple[str, int], int] = {}
    derived.dispatch(0, 1, make_preamble(Random(5), offsets, [5]))
    disk.open(next(name for name in disk.files() if name.startswith("consumequeue"))).truncate(40)
    derived = Derived(disk, CONFIG)
    ((topic, queue),) = offsets
    single = make_preamble(Random(5), {}, [1])._replace(batches=(SubBatch(topic, queue, 1, 5),))
    with pytest.raises(DamagedState, match="the log goes on at 5"):
        derived.dispatch(1000, 1, single)
    checkpoint(derived)  # a checkpoint without a rebuild does not end the doubt
    disk.kill()
    derived = Derived(disk, CONFIG)
    assert derived.cut_back(1000, 0) == 0
    assert fingerprint(disk) == {}


@given(st.integers(0, 2**32), st.lists(st.integers(0, 9), max_size=4))
def test_small_and_large_entries_give_the_same_bytes(seed: int, counts: list[int]) -> None:
    """One entry of many messages, or the same messages an entry each: units are equal."""
    random = Random(seed)
    whole = make_preamble(random, {}, counts)
    together, apart = Derived(SimDisk(Random(1)), CONFIG), Derived(SimDisk(Random(1)), CONFIG)
    together.dispatch(0, 5, whole)
    at = row = key = 0
    for batch in whole.batches:
        for number in range(batch.count):
            keys = int(whole.key_counts[row])
            single = whole._replace(
                batches=(SubBatch(batch.topic, batch.queue, 1, batch.first_offset + number),),
                lengths=whole.lengths[row : row + 1], tags=whole.tags[row : row + 1],
                key_counts=whole.key_counts[row : row + 1], keys=whole.keys[key : key + keys],
            )
            apart.dispatch(at, 5, single)
            at, row, key = at + int(whole.lengths[row]), row + 1, key + keys
    queues = [name for name in together.fingerprint() if name.startswith("consumequeue")]
    assert queues == [name for name in apart.fingerprint() if name.startswith("consumequeue")]
    for name in queues:
        assert together.fingerprint()[name] == apart.fingerprint()[name]


def test_opening_reads_no_file_and_a_queue_opens_with_its_first_use() -> None:
    disk = SimDisk(Random(1))
    derived = Derived(disk, CONFIG)
    advance(derived, make_log(Random(8), 30), 0, 10**9)
    disk.fail_next("pread", 5)
    again = Derived(disk, CONFIG)
    disk.faults.clear()
    assert [(topic, queue, unit.max_offset) for topic, queue, unit in again.queues()] == [
        (topic, queue, unit.max_offset) for topic, queue, unit in derived.queues()
    ]


def test_fingerprints_that_differ_are_told_by_name() -> None:
    assert differences({"a": 1, "b": 2}, {"b": 3, "c": 4}) == [
        "a: only here", "b: 00000002 here, 00000003 there", "c: missing here",
    ]


def test_a_real_directory_behaves_the_same(tmp_path: Path) -> None:
    log = make_log(Random(11), 60)
    end = log.entries[-1].end
    disk = RealDisk(tmp_path)
    derived = Derived(disk, CONFIG)
    advance(derived, log, 0, end)
    checkpoint(derived)
    start = segment_floor(end // 2)
    derived.drop_below(start)
    assert derived.dirty_count >= 0
    derived.close()
    middle = next(entry.end for entry in log.entries if entry.end > end * 3 // 4)
    again = Derived(disk, CONFIG)
    assert again.cut_back(middle, start) == middle
    assert differences(again.fingerprint(), rebuilt(log, start, middle)) == []
    advance(again, log, middle, end)
    checkpoint(again)
    assert differences(again.fingerprint(), rebuilt(log, start, end)) == []
    again.clear()
    checkpoint(again)
    assert fingerprint(disk) == {}


def test_many_messages_in_one_entry_cross_files() -> None:
    disk = SimDisk(Random(1))
    derived = Derived(disk, CONFIG)
    lengths = np.full(50, 30, ">u4")
    tags, counts, keys = np.arange(50).astype(">i8"), np.zeros(50, "u1"), np.zeros(0, ">i4")
    columns = Preamble(b"", (SubBatch("a", 0, 50, 3),), lengths, tags, counts, keys, 99)
    derived.dispatch(1000, 1, columns)
    queue = derived.queue("a", 0)
    assert queue is not None and derived.queue("a", 1) is None
    assert (queue.min_offset, queue.max_offset) == (3, 53)
    units = queue.read_units(3, 99)
    assert units["position"].tolist() == [1000 + 48 + 99 + 30 * at for at in range(50)]
    assert units["tag"].tolist() == list(range(50))
