"""Retention and full disks at the level of a replica: the leader proposes where the log begins, sends are refused."""

import pytest

from broker.housekeeping import HOUR_MS, RETENTION_EVERY_MS
from broker.ports import Outcome
from model.errors import DiskAlmostFull, NoRoom
from tests.broker.group import COARSE, Group

DAY_MS = 24 * HOUR_MS


def filled() -> Group:
    group = Group(raft=COARSE).formed("n0")
    group.topic("t", 1)
    for _ in range(20):
        group.put(topic="t", queue=0, bodies=[b"x" * 300] * 3)
    assert group["n0"].log.end > 4 * 4096
    return group


def wait(group: Group) -> None:
    group.step(2 * RETENTION_EVERY_MS // group.raft.tick_ms)


def test_aged_segments_go_on_every_node_in_the_hour_of_cleaning() -> None:
    group = filled()
    today = group.clock.now // DAY_MS * DAY_MS
    group.clock.now = today + 5 * DAY_MS + 3 * HOUR_MS  # old enough, but not the hour
    wait(group)
    assert {replica.log.start for replica in group.up} == {0}
    group.clock.now = today + 6 * DAY_MS + 4 * HOUR_MS
    wait(group)
    starts = {replica.log.start for replica in group.up}
    assert len(starts) == 1 and starts.pop() >= 2 * 4096
    group.put(topic="t", queue=0)
    group.converge()


@pytest.mark.parametrize(("share", "drops", "refuses"), [(0.80, False, False), (0.86, True, False), (0.91, True, True)])
def test_a_filling_disk_drops_the_oldest_segment_and_then_refuses_sends(
    monkeypatch: pytest.MonkeyPatch, share: float, drops: bool, refuses: bool
) -> None:
    group = filled()
    monkeypatch.setattr(group.nodes["n0"].disk, "usage", lambda: share)
    wait(group)
    assert (group["n2"].log.start > 0) is drops
    asked = group.ask(topic="t", queue=0)
    group.step(20)
    result = asked.only
    assert (result.outcome is Outcome.REFUSED) is refuses
    assert isinstance(result.error, DiskAlmostFull) is refuses
    monkeypatch.undo()  # space returned: sends are taken again without hands
    wait(group)
    assert group.put(topic="t", queue=0).outcome is Outcome.DONE


def test_a_node_without_room_refuses_to_start_and_touches_nothing_until_space_returns() -> None:
    group = filled()
    group.stop("n1")
    disk = group.nodes["n1"].disk
    before = {name: disk.durable_bytes(name) for name in disk.files()}
    disk.full = True
    with pytest.raises(NoRoom, match="nothing was touched"):
        group.start("n1")
    assert {name: disk.durable_bytes(name) for name in disk.files()} == before
    disk.full = False
    group.start("n1")
    group.converge()


def test_a_clean_stop_on_a_full_disk_ends_like_a_crash_and_frees_the_directory() -> None:
    group = filled()
    node = group.nodes["n1"]
    node.disk.fail_next("sync", 28)
    replica = group["n1"]
    replica.stop()
    assert replica.failure is not None and "disk is full" in replica.failure
    node.replica = None
    node.disk.kill()
    group.start("n1")
    group.converge()


def test_a_topic_deleted_above_the_checkpoint_is_not_taken_for_damage_after_a_kill() -> None:
    group = Group(raft=COARSE, checkpoint_bytes=1 << 20).formed("n0")
    group.topic("gone", 1)
    group.put(topic="gone", queue=0)
    group.stop("n1")  # a checkpoint with the topic
    group.start("n1")
    group.converge()
    group.delete("gone")
    group.converge()
    group.kill("n1")
    group.cut("n1")  # nobody tells it what is committed: the deletion stays unapplied while the audit could look
    group.start("n1")
    group.step(4000 // group.raft.tick_ms)
    assert not group.nodes["n1"].saw("damage_met")
    group.heal()
    group.converge()
