"""EIO and ENOSPC at every disk operation of a scripted run: the replica stops and says so, the others go on.

One node's disk fails at its k-th create, write, sync, read ..., for every k. From then on the node says nothing that
anybody could count on; started again on a disk that works, it becomes equal to its peers."""

import errno
from collections.abc import Callable
from functools import cache, partial
from random import Random
from typing import Any

import pytest

from broker.housekeeping import Housekeeping
from broker.ports import Outcome, Phase, SendRequest, SendResult
from broker.replica import Replica
from broker.syncing import Synced, SyncRounds
from model.errors import NoRoom
from store.commitlog import CommitLog
from store.disk import DiskError
from tests.broker.group import COARSE, Asked, FaultyDisk, Group, disk_files, request

VICTIM = "n1"
STORE: dict[str, Any] = {"checkpoint_bytes": 2500, "scrub_bytes_per_second": 64 << 20}
SENDS = 7
STOPPING = ("create", "write", "sync", "replace", "remove", "rename")  # a failing read may also be mended from a peer


@cache
def images() -> dict[str, dict[str, bytes]]:
    """Disks of a group with a topic and a segment of messages."""
    group = Group(raft=COARSE, **STORE).formed()
    group.topic("t", 2)
    group.put(topic="t", queue=1, bodies=[b"x" * 900] * 2)
    group.put(topic="t", queue=1, bodies=[b"x" * 900] * 2)
    group.converge()
    group.stop()
    return {name: disk_files(node.disk) for name, node in group.nodes.items()}


def opened(*, leads: bool) -> Group:
    """A running group on copies of those disks."""
    disks = {}
    for number, (name, files) in enumerate(images().items()):
        disks[name] = FaultyDisk(Random(number))
        for file, data in files.items():
            disks[name].replace(file, data)
    group = Group(raft=COARSE, disks=disks, **STORE).start()
    group.lead(VICTIM if leads else "n0")
    group.converge()
    return group


class Script:
    """Sends over several segments, a topic that comes and goes, a dropped head; each request is repeated until done."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.disk: FaultyDisk = group.nodes[VICTIM].disk
        self.told: list[Any] = []  # answers that the victim gave after the strike

    def run(self) -> None:
        self._until_done(lambda leader, reply: leader.create_topic("u", 1, reply))
        for number in range(SENDS):
            sent = request("t", 0, [b"%d" % number * 400] * 3, producer=b"p", sequence=number, keys="k1 k2", tag="red")
            self._until_done(partial(_send, sent))
            if number == 2:
                self._until_done(lambda leader, reply: leader.send(request("u"), reply))
                self._until_done(lambda leader, reply: leader.delete_topic("u", reply))
            if number == 4:
                self._until_done(lambda leader, reply: leader.propose_log_start(4096, reply))
        self.group.step(4)

    def _until_done(self, act: Callable[[Replica, Callable[[SendResult], None]], None]) -> None:
        group = self.group
        for _ in range(30):
            leader, asked = group.lead(), Asked()

            def reply(result: SendResult, leader: Replica = leader, asked: Asked = asked) -> None:
                asked.append(result)
                if leader.node == VICTIM and self.disk.struck and result.outcome is not Outcome.REFUSED:
                    self.told.append(result)

            act(leader, reply)
            for _ in range(8):
                group.step()
                if asked:
                    break
            if asked.done:
                return
        raise AssertionError(f"never done: {group.describe()}")


def _send(sent: SendRequest, leader: Replica, reply: Callable[[SendResult], None]) -> None:
    leader.send(sent, reply)


@cache
def operations(leads: bool) -> dict[str, int]:
    """How often the victim's disk is asked for what, when nothing fails."""
    group = opened(leads=leads)
    disk = group.nodes[VICTIM].disk
    disk.arm("none", 0, 0)
    Script(group).run()
    return dict(disk.counts)


def strike(operation: str, number: int, *, leads: bool) -> Group:
    """One run with one failure: all that must hold until the victim has stopped."""
    group = opened(leads=leads)
    disk: FaultyDisk = group.nodes[VICTIM].disk
    disk.arm(operation, number, errno.EIO if number % 2 else errno.ENOSPC)
    after: list[int] = []
    disk.on_strike = lambda: after.append(len(group.carried))
    script = Script(group)
    script.run()
    where = f"{operation} {number} ({disk.struck})"
    if not disk.struck:  # a leader that moved on elsewhere asks its disk for less
        return group
    victim = group[VICTIM]
    if operation in STOPPING or victim.phase is Phase.STOPPED:
        assert not script.told, f"{where}: the victim answered {script.told}"
        late = [letter for letter in group.carried[after[0] :] if letter.source == VICTIM]
        assert victim.phase is Phase.STOPPED and not late, f"{where}: {victim.phase} {late}"
        assert victim.failure is not None and "errno" in victim.failure and len(victim.failure) > 60, victim.failure
    return group


def recover(group: Group, number: int) -> None:
    """The disk works again: the node becomes equal to its peers, and everything is there once."""
    if group[VICTIM].phase is Phase.STOPPED:
        (group.kill if number % 3 else group.crash)(VICTIM)
        group.start(VICTIM)
    group.assert_equal()
    for replica in group.up:
        assert replica.state.next_offsets[("t", 0)] == 3 * SENDS
        assert "u" not in replica.state.topics and replica.log.start == 4096


@pytest.mark.parametrize("leads", [False, True], ids=["follower", "leader"])
@pytest.mark.parametrize("operation", [*STOPPING, "pread"])
def test_a_failing_disk_stops_the_replica_and_nobody_else(operation: str, leads: bool) -> None:
    count = operations(leads)[operation]
    struck = 0
    for number in range(1, count + 1, 1 + count // 30):
        group = strike(operation, number, leads=leads)
        struck += bool(group.nodes[VICTIM].disk.struck)
        recover(group, number)
    assert struck >= min(count, 3), (struck, count)


def test_the_script_asks_the_disk_for_everything() -> None:
    for leads in (False, True):
        counts = operations(leads)
        assert all(counts[operation] for operation in (*STOPPING, "pread")), counts
        assert counts["write"] > 30 and counts["sync"] > 30, counts


def test_control_a_sync_whose_failure_is_ignored_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def finished(rounds: SyncRounds, result: Synced | Exception) -> None:
        rounds._running = False
        if isinstance(result, Synced):
            rounds._done(result)  # a failed round is simply forgotten: the next one "works"

    monkeypatch.setattr(SyncRounds, "_finished", finished)
    with pytest.raises(AssertionError):
        strike("sync", 3, leads=False)


# ---- a failed sync is never taken for one that worked ---------------------------------------------------------------


def lying_sync(group: Group) -> bytes:
    """The victim's sync fails, its process starts again over the same page cache, and then the power goes."""
    disk: FaultyDisk = group.nodes[VICTIM].disk
    disk.arm("sync", 1, errno.EIO)
    asked = group.ask(topic="t", bodies=[b"precious"])
    group.settle()  # within a tick: the first sync is the one of these bytes
    assert group[VICTIM].phase is Phase.STOPPED and asked.done
    syncs = disk.counts["sync"]
    group.step(5)
    assert disk.counts["sync"] == syncs, "the sync was tried again"
    with pytest.raises(DiskError):
        disk.sync(disk.ticket([disk.open("checkpoint")]))
    group.kill(VICTIM)
    group.start(VICTIM)
    group.converge()
    group.crash(VICTIM)
    return b"".join(disk.read(f"commitlog/{name}") for name in disk.list("commitlog"))


def test_bytes_of_a_failed_sync_are_written_again_before_they_are_counted_on() -> None:
    assert b"precious" in lying_sync(opened(leads=False))


def test_control_without_writing_them_again_they_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CommitLog, "_rewrite", lambda log, start: None)
    assert b"precious" not in lying_sync(opened(leads=False))


# ---- room for the next segment ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("leads", [False, True], ids=["follower", "leader"])
def test_a_full_disk_shows_when_the_next_segment_is_made_not_inside_an_entry(leads: bool) -> None:
    group = opened(leads=leads)
    victim, disk = group[VICTIM], group.nodes[VICTIM].disk
    size = victim.log.segment_bytes
    made = [int(name) for name in disk.list("commitlog")]
    assert made[-1] > victim.log.end, "one segment is made ahead"
    disk.no_room_for = "commitlog/"
    for number in range(9):
        if victim.phase is Phase.STOPPED:
            break
        group.ask(topic="t", bodies=[b"y" * 300] * 2, producer=b"q", sequence=number)
        group.step(2)
    assert victim.phase is Phase.STOPPED and victim.failure is not None
    assert f"commitlog/{made[-1] + size:020d}" in victim.failure and "full" in victim.failure, victim.failure
    assert made[-1] <= victim.log.end < made[-1] + size, "the log ended where a segment could be filled"
    disk.no_room_for = ""
    disk.kill()
    group.lead()
    group.start(VICTIM)
    group.assert_equal()


def test_control_without_a_segment_made_ahead_the_room_ends_at_the_boundary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Housekeeping, "turn", lambda house: None)
    group = opened(leads=False)
    victim, disk = group[VICTIM], group.nodes[VICTIM].disk
    made = [int(name) for name in disk.list("commitlog")]
    disk.no_room_for = "commitlog/"
    for number in range(12):
        group.ask(topic="t", bodies=[b"y" * 300] * 2, producer=b"q", sequence=number)
        group.step(2)
    assert victim.phase is Phase.STOPPED
    assert victim.log.end >= made[-1] + victim.log.segment_bytes - 2000, "found only when the room was used up"


def test_a_start_without_room_says_so_in_one_sentence_and_can_be_repeated() -> None:
    group = Group(raft=COARSE)
    disk = group.nodes["n0"].disk
    disk.full = True
    with pytest.raises(NoRoom, match="free space on the disk"):
        group.start("n0")
    disk.full = False
    group.formed()


def test_a_disk_that_fails_anywhere_in_a_start_is_named_and_the_next_start_works() -> None:
    number, named = 0, 0
    while True:
        number += 1
        group = opened(leads=False)
        group.kill(VICTIM)
        disk: FaultyDisk = group.nodes[VICTIM].disk
        disk.arm("change" if number % 2 else "pread", (number + 1) // 2, errno.EIO)
        try:
            group.start(VICTIM)
        except DiskError as error:
            named += "errno 5" in str(error)
        if not disk.struck:
            break
        group.kill(VICTIM)
        group.start(VICTIM)
        group.assert_equal()
    assert named > 20, named


def test_a_disk_that_fails_in_a_clean_stop_leaves_a_store_that_starts_again() -> None:
    for number in range(1, 100):
        group = opened(leads=False)
        group.put(topic="t", bodies=[b"x"], keys="k")
        group.settle()
        disk: FaultyDisk = group.nodes[VICTIM].disk
        disk.arm("change", number, errno.EIO)
        try:
            group.stop(VICTIM)
        except DiskError:
            group.nodes[VICTIM].replica = None
        if not disk.struck:
            assert number > 10, number
            return
        disk.kill()
        group.start(VICTIM)
        group.assert_equal()
    raise AssertionError("it never ran through")
