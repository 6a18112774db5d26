"""From a directory to what consensus may start with, after a crash at any disk operation."""

from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any

import pytest

from broker.opening import incomplete_queues, load_records, open_log, scan_log
from broker.ports import Phase
from broker.state.machine import StateMachine
from broker.writing import Writer
from model.errors import NotAStore
from store import identity, snapshot
from store.derived import fingerprint
from store.hardstate import DamagedState, HardState, Watermarks
from tests.broker.group import COARSE, FaultyDisk, Group, PowerCut, clone, disk_files, refuses

VICTIM = "n1"
STORE: dict[str, Any] = {"checkpoint_bytes": 2000}
SEEDS = 2  # of each power cut: which unsynced bytes reach the disk


# ---- an empty directory ----------------------------------------------------------------------------------------------


def test_an_empty_directory_becomes_a_store_of_nobody_with_a_new_incarnation() -> None:
    group = Group()
    one, two = (load_records(FaultyDisk(Random(0)), group.config("n0"), Random(seed)) for seed in (1, 2))
    assert one.identity.incarnation != two.identity.incarnation
    assert (one.hard_state, one.marks, one.snapshot) == (HardState(0, ""), Watermarks(0, 0, 0), None)


def test_an_empty_directory_whose_node_crashed_anywhere_in_its_first_start_can_be_started() -> None:
    for number in range(1, 200):
        for seed in range(SEEDS):
            group = Group(raft=COARSE)
            disk = group.nodes["n0"].disk
            disk.arm("change", number, 0)
            group.on_crash = lambda node, cut, seed=seed: node.disk.crash(Random(seed))
            crashed = _start(group, "n0", seed)
            group.start(*(name for name in group.nodes if name != "n0"))
            group.step(8)
            if not crashed and not disk.struck:
                assert number > 15, "the first start has more operations than that"
                return
            if group.nodes["n0"].replica is None:
                group.start("n0")
            group.lead()
            group.assert_equal()
    raise AssertionError("it never ran through")


def _start(group: Group, name: str, seed: int) -> bool:
    try:
        group.start(name)
    except PowerCut:
        group.nodes[name].disk.crash(Random(seed))
        return True
    return False


@pytest.mark.parametrize("gone, says", [
    (identity.NAMES, "no identity"),
    (("config/hardstate.0", "config/hardstate.1"), "the hard state of this store is missing"),
    (("checkpoint", "checkpoint.1"), "the checkpoint of this store is missing"),
])  # fmt: skip
def test_a_record_that_is_missing_is_damage_and_not_a_fresh_start(gone: tuple[str, ...], says: str) -> None:
    group = Group(raft=COARSE).formed()
    group.stop()
    disk = group.nodes["n0"].disk
    for name in gone:
        disk.remove(name)
    before = disk_files(disk)
    assert says in refuses(lambda: group.start("n0"))
    assert disk_files(disk).keys() == before.keys()


def test_a_snapshot_whose_both_copies_are_gone_bad_is_refused() -> None:
    group = Group(raft=COARSE).formed()
    group.stop()
    disk = group.nodes["n0"].disk
    for name in disk.list(snapshot.DIRECTORY):
        disk.flip_bit(f"{snapshot.DIRECTORY}/{name}", 40, 3)
    assert "no valid" in refuses(lambda: group.start("n0"))


def test_log_files_without_an_identity_are_not_a_store() -> None:
    disk = FaultyDisk(Random(0))
    disk.replace("commitlog/00000000000000000000", bytes(4096))
    with pytest.raises(NotAStore):
        load_records(disk, Group().config("n0"), Random(0))


# ---- what recovery finds ---------------------------------------------------------------------------------------------


def test_a_restart_finds_the_same_terms_memberships_and_end_whether_it_scans_all_or_a_part() -> None:
    group = Group(raft=COARSE, **STORE).formed("n0")
    group.topic()
    for number in range(8):
        group.put(bodies=[b"x" * 300] * 2)
        if number % 3 == 2:
            group.lead(f"n{number % 2 + 1}")
    group.converge()
    core = group["n0"].core
    assert core is not None
    terms = core.epochs.runs(core.epochs.start, core.end)
    assert len(terms) >= 3
    group.kill("n0")
    disk, config = group.nodes["n0"].disk, group.config("n0")
    records = load_records(disk, config, Random(0))
    assert records.snapshot is not None and records.snapshot.position > 4096
    for whole in (False, True):
        scanned = scan_log(disk, config, records, whole=whole)
        boot = open_log(disk, config, records, scanned).boot
        assert scanned.whole is whole and tuple(boot.runs) == terms
        assert (boot.end, boot.start, boot.commit) == (core.end, core.epochs.start, records.marks.commit)
        assert tuple(boot.memberships) == core.memberships.rows


def test_a_torn_tail_above_the_watermark_is_cut_and_below_it_is_damage() -> None:
    group = Group(raft=COARSE).formed()
    group.topic()
    group.put(bodies=[b"x" * 100])
    group.step(3)
    replica = group["n0"]
    end = replica.log.end
    group.kill("n0")
    disk, config = group.nodes["n0"].disk, group.config("n0")
    records = load_records(disk, config, Random(0))
    assert records.marks.durable == end
    disk.flip_bit("commitlog/00000000000000000000", end - 10, 0)
    damage = scan_log(disk, config, records, whole=True).result.damage
    assert damage is not None
    lower = records._replace(marks=records.marks._replace(durable=damage.position))
    found = scan_log(disk, config, lower, whole=True).result
    assert found.damage is None and found.end == damage.position < end


# ---- derived files that are missing or cut short ---------------------------------------------------------------------


def test_a_queue_with_live_messages_must_end_where_the_state_says() -> None:
    state = StateMachine()
    state.next_offsets = {("t", 0): 5, ("t", 1): 7, ("u", 0): 9}
    state.last_positions = {("t", 0): 5000, ("t", 1): 8192, ("u", 0): 4095}
    whole = {("t", 0): 5, ("t", 1): 7}
    assert incomplete_queues(state, whole, 4096) == []
    assert incomplete_queues(state, whole, 0) == [("u", 0)]
    assert incomplete_queues(state, {("t", 0): 4, ("t", 1): 8}, 4096) == [("t", 0), ("t", 1)]
    assert incomplete_queues(state, {}, 8192) == [("t", 1)]
    assert incomplete_queues(state, {}, 8193) == []


@cache
def _stopped() -> Group:
    """Two topics, the first part of the log dropped, one queue without a message above it; a clean stop."""
    group = Group(raft=COARSE, **STORE).formed("n0")
    group.topic("t", 3)
    group.topic("u", 1)
    group.put(topic="t", queue=2, bodies=[b"old"])
    for number in range(16):
        group.put(topic="t", queue=number % 2, bodies=[b"x" * 200] * 3, keys=f"k{number} k", tag="red")
    group.put(topic="u", bodies=[b"y"])
    group.lead().propose_log_start(4096)
    group.until(lambda: all(replica.log.start == 4096 for replica in group.up), what="the head is gone")
    group.assert_equal()
    group.stop()
    return group


def _again(change: Callable[[FaultyDisk], object]) -> tuple[Group, dict[str, int], dict[str, int]]:
    """A start of the victim after somebody changed its files: its group, its derived files before and just after."""
    old = _stopped()
    disks = {name: clone(node.disk, FaultyDisk(Random(0))) for name, node in old.nodes.items()}
    group = Group(raft=COARSE, disks=disks, scrub_bytes_per_second=0, **STORE)  # no audit
    before = fingerprint(disks[VICTIM])
    change(disks[VICTIM])
    group.start()
    group.lead()
    group.assert_equal()
    return group, before, fingerprint(disks[VICTIM])


def _cut(disk: FaultyDisk, name: str, size: int) -> None:
    disk.replace(name, disk.read(name)[:-size])


def _newest(disk: FaultyDisk, directory: str) -> str:
    return max(name for name in disk.files() if name.startswith(f"{directory}/"))


@pytest.mark.parametrize("change, says", [
    (lambda disk: disk.remove_tree("consumequeue"), "consumequeue/t/0 is missing"),
    (lambda disk: disk.remove_tree("consumequeue/u"), "consumequeue/u/0 is missing"),
    (lambda disk: disk.remove(_newest(disk, "consumequeue/t/1")), "consumequeue/t/1 ends at offset"),
    (lambda disk: _cut(disk, _newest(disk, "consumequeue/t/1"), 20), "consumequeue/t/1 ends at offset"),
    (lambda disk: _cut(disk, _newest(disk, "consumequeue/t/0"), 1), "consumequeue/t/0 ends at offset"),
    (lambda disk: disk.remove_tree("index"), "index: the 6 keys"),
    (lambda disk: disk.remove(_newest(disk, "index")), "index: the 6 keys"),
    (lambda disk: _cut(disk, _newest(disk, "index"), 20), "index: the 6 keys"),
], ids=["all queues", "a topic", "a last file", "a unit", "a byte", "the index", "an index file", "a key"])  # fmt: skip
def test_derived_files_that_are_missing_or_cut_short_are_rebuilt_at_the_start(
    change: Callable[[FaultyDisk], object], says: str
) -> None:
    group, before, after = _again(change)
    dropped = [dict(event.fields)["reason"] for event in group.nodes[VICTIM].events
               if event.name == "derived_files_dropped"]  # fmt: skip
    assert len(dropped) == 1 and str(dropped[0]).startswith(says)
    assert after == before
    group.stop(VICTIM)
    group.start(VICTIM)
    assert not group.nodes[VICTIM].saw("derived_files_dropped"), "once is enough"


def test_whole_derived_files_are_kept_whatever_the_log_start_took() -> None:
    group, before, after = _again(lambda disk: None)
    assert not group.nodes[VICTIM].saw("derived_files_dropped") and after == before
    assert group[VICTIM].state.last_positions["t", 2] < 4096 and group[VICTIM].derived.queue("t", 2) is None


def test_queues_of_a_topic_that_was_deleted_since_the_checkpoint_are_not_missed() -> None:
    group = Group(raft=COARSE, scrub_bytes_per_second=0).formed("n0")  # no audit
    group.topic("t", 2)
    group.put(topic="t", bodies=[b"x"] * 3)
    group.converge()
    group.stop()
    group.start()
    group.delete("t")
    group.converge()
    assert not any(name.startswith("consumequeue") for name in group.nodes[VICTIM].disk.files())
    group.kill(VICTIM)
    group.start(VICTIM)
    group.assert_equal()
    assert not group.nodes[VICTIM].saw("derived_files_dropped")


# ---- a hand-over that breaks off -------------------------------------------------------------------------------------


@cache
def images() -> dict[str, dict[str, bytes]]:
    """A group whose log begins above the end of n1's."""
    group = Group(raft=COARSE, **STORE).formed("n0")
    group.topic()
    group.put(bodies=[b"old" * 100] * 2, keys="k")
    group.converge()
    group.stop(VICTIM)
    for _ in range(9):
        group.put(bodies=[b"new" * 100] * 3, keys="k")
    group.lead().propose_log_start(8192)
    group.until(lambda: group.lead().log.start == 8192 and group["n2"].log.start == 8192, what="the head is dropped")
    group.step(3)
    group.stop("n0", "n2")
    return {name: disk_files(node.disk) for name, node in group.nodes.items()}


def handed_over(number: int, seed: int) -> tuple[Group, bool]:
    """n1 starts and loses power at its number-th disk operation; whether it came so far."""
    disks = {name: FaultyDisk(Random(seed)) for name in images()}
    for name, files in images().items():
        for file, data in files.items():
            disks[name].replace(file, data)
    group = Group(raft=COARSE, disks=disks, **STORE).start("n0", "n2")
    group.lead()
    disk = disks[VICTIM]
    group.on_crash = lambda node, cut: node.disk.crash(Random(seed))
    disk.arm("change", number, 0)
    if not _start(group, VICTIM, seed):
        group.until(lambda: group.nodes[VICTIM].replica is None or group.converged, what="handed over")
    disk.target = None  # what the test itself looks at is no part of the run
    return group, bool(disk.struck)


def every_power_cut(look: Callable[[Group], None]) -> int:
    number = 1
    while True:
        group, struck = handed_over(number, seed=number)
        if struck:
            look(group)
            group.start(VICTIM)
            replica = group[VICTIM]
            if replica.core is not None and replica.control is not None:
                has_all = replica.core.durable >= replica.control.position
                assert has_all or not replica.core._may_campaign(), "control state is ahead of the log: no leader"
        group.assert_equal()
        if not struck:
            return number
        number += 1


def test_a_hand_over_that_breaks_off_anywhere_leaves_the_old_state_or_the_new_one() -> None:
    seen: set[int] = set()

    def look(group: Group) -> None:
        found = snapshot.load_newest(group.nodes[VICTIM].disk)
        assert found is not None
        assert found.log_start in (0, 8192)
        seen.add(found.log_start)

    operations = every_power_cut(look)
    assert operations > 30 and seen == {0, 8192}, (operations, seen)


def test_the_hand_over_happens_and_gives_all_that_is_left_of_the_log() -> None:
    group, _ = handed_over(10**6, 0)
    assert group.nodes[VICTIM].saw("handed_over")
    assert group[VICTIM].log.start == 8192
    group.assert_equal()


@pytest.mark.parametrize("how", ["gone", "cut", "cut to nothing"])
@pytest.mark.parametrize("base", [8192, 12288])
def test_a_node_whose_old_segment_is_gone_or_cut_does_not_vote_before_it_has_it_back(base: int, how: str) -> None:
    group, _ = handed_over(10**6, 0)
    group.stop(VICTIM)
    disk, name = group.nodes[VICTIM].disk, f"commitlog/{base:020d}"
    data = disk.read(name)
    disk.remove(name)
    if how != "gone":
        disk.replace(name, data[: 50 if how == "cut" else 0])
    group.start(VICTIM)
    assert group[VICTIM].phase is Phase.REPAIRING
    group.assert_equal()
    assert disk.read(name) == data or base == 12288


def test_control_a_hand_over_that_keeps_the_old_watermark_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def install(writer: Writer, message: Any, derived: Any) -> Any:
        control = message.payload
        snapshot.write(writer._disk, control)
        derived.clear()
        writer._log.reset(control.log_start, control.base_chain)
        writer._marks.set(Watermarks(control.log_start, control.log_start, control.base_chain))
        return control

    monkeypatch.setattr(Writer, "install", install)

    def look(group: Group) -> None:
        records = load_records(group.nodes[VICTIM].disk, group.config(VICTIM), Random(0))
        control = records.snapshot
        assert control is not None
        assert control.log_start == 0 or records.marks.durable in (0, control.log_start), "the old log's mark"

    with pytest.raises(AssertionError, match="the old log's mark"):
        every_power_cut(look)


def test_an_identity_that_contradicts_its_copy_is_said_to_be_damaged() -> None:
    disk, other, config = FaultyDisk(Random(0)), FaultyDisk(Random(0)), Group().config("n0")
    load_records(disk, config, Random(1))
    load_records(other, config, Random(2))
    disk.replace(identity.NAMES[0], other.read(identity.NAMES[0]))
    with pytest.raises(DamagedState, match="contradict one another"):
        load_records(disk, config, Random(3))
