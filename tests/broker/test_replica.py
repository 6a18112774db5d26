"""A whole group of Replicas, end to end: what a client, an administrator and an operator see."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from broker import composing
from broker.config import BrokerConfig
from broker.leading import Leading
from broker.ports import Outcome, Phase
from broker.replica import Replica
from dledger.core import Role
from dledger.membership import Change, ChangeKind
from dledger.messages import Kind, Message
from dledger.ready import Event
from model.ids import NodeId
from store import identity
from store.consumequeue import PullStatus
from store.preamble import SubBatch, pack_preamble
from store.realdisk import RealDisk
from tests.broker.group import COARSE, Asked, Group, HandClock, HandLane, refuses


def ready(**settings: Any) -> Group:
    group = Group(**settings).formed("n0")
    group.topic()
    return group


def others(group: Group) -> list[str]:
    leader = group.lead().node
    return [name for name in group.nodes if name != leader]


# ---- sends -----------------------------------------------------------------------------------------------------------


def test_a_send_is_stored_once_on_every_node_and_its_answer_says_where() -> None:
    group = ready()
    first, second = group.put(bodies=[b"a", b"b"]), group.put(bodies=[b"c"])
    assert (first.offset, second.offset) == (0, 2)
    group.assert_equal()
    for replica in group.up:
        log = replica.log.read(0, replica.log.end)
        assert [log.count(body) for body in (b"\x01a\x01t", b"\x01b\x01t", b"\x01c\x01t")] == [1, 1, 1]
        queue = replica.derived.queue("t", 0)
        assert queue is not None and queue.max_offset == 3
        assert int(queue.read_units(2, 1)[0]["position"]) == second.position


def test_an_answer_comes_only_when_a_majority_has_it_on_disk() -> None:
    group = ready()
    leader, followers = group.lead(), others(group)
    for name in followers:
        group.nodes[name].sync_lane.run = lambda: False  # type: ignore[method-assign]
    asked = group.ask(leader)
    group.settle()
    assert asked == []
    assert all(group[name].log.end == leader.log.end for name in followers), "they have it, but not on disk"
    del group.nodes[followers[0]].sync_lane.run
    group.step(2)
    assert asked.done


def test_a_retry_after_a_failover_gets_the_first_answer_again() -> None:
    group = ready()
    sent = {"bodies": [b"once"], "producer": b"p", "sequence": 0}
    first = group.put(**sent)
    for seed in range(3):
        old = group.lead().node
        group.crash(old, seed=seed)
        assert group.put(**sent) == first
        group.start(old)
    group.assert_equal()
    assert group.lead().state.next_offsets[("t", 0)] == 1


def test_control_without_dedup_a_retry_is_stored_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Leading, "judge", lambda leading, request: None)
    group = ready()
    sent = {"bodies": [b"once"], "producer": b"p", "sequence": 0}
    assert group.put(**sent) != group.put(**sent)


def test_a_retry_while_the_first_is_pending_attaches_to_it() -> None:
    group = ready()
    leader = group.lead()
    for name in others(group):
        group.cut(leader.node, name)
    sent = {"bodies": [b"once"], "producer": b"p", "sequence": 0}
    first = group.ask(leader, **sent)
    group.settle()
    second = group.ask(leader, **sent)
    group.settle()
    assert first == second == []
    group.heal()
    group.until(lambda: first and second, what="both answers")
    assert first.only == second.only and first.done
    assert group.lead().state.next_offsets[("t", 0)] == 1


def test_a_pipeline_keeps_its_order_over_a_failover() -> None:
    group = ready()
    leader = group.lead()
    for sequence in range(4):
        group.ask(leader, bodies=[b"%d" % sequence], producer=b"p", sequence=sequence)
    group.settle()
    group.crash(leader.node)
    for sequence in range(8):  # the client repeats what it has no answer for, in order
        assert group.put(bodies=[b"%d" % sequence], producer=b"p", sequence=sequence).offset == sequence


def test_a_follower_refuses_and_names_the_leader() -> None:
    group = ready()
    follower = group[others(group)[0]]
    refused = group.ask(follower).only
    assert refused.outcome is Outcome.REFUSED and refused.error.leader == group.lead().node
    assert refused.error.retriable and refused.error.stale_route


def test_a_new_leader_serves_nothing_before_its_own_no_op_is_applied() -> None:
    group = ready()
    old = group.lead().node
    group.crash(old)
    answers = (Kind.ACK, Kind.BEAT_REPLY)
    group.lost = lambda letter: isinstance(letter.body, Message) and letter.body.kind in answers
    group.until(lambda: any(r.core is not None and r.core.role is Role.LEADER for r in group.up), what="elected")
    leader = next(r for r in group.up if r.core is not None and r.core.role is Role.LEADER)
    asked, read = group.ask(leader), group.read(leader)
    group.settle()
    assert asked == [] and read[0].outcome is Outcome.REFUSED
    group.heal()
    group.until(lambda: asked, what="an answer")


# ---- leadership, reads -----------------------------------------------------------------------------------------------


def test_an_isolated_leader_steps_down_and_acknowledges_nothing_more() -> None:
    group = ready()
    old = group.lead()
    group.cut(old.node)
    asked = group.ask(old)
    group.until(lambda: group.nodes[old.node].saw("stepped_down"), 100, what="it steps down")
    late = group.ask(old)
    assert late.only.outcome is Outcome.REFUSED and asked == []
    group.lead()
    group.heal()
    group.assert_equal()


def test_leadership_is_handed_over_without_an_election_timeout() -> None:
    group = ready()
    target = others(group)[0]
    term = group.lead().core.term  # type: ignore[union-attr]
    assert group.lead().transfer(NodeId(target))
    assert not group.lead().transfer(NodeId("nobody"))
    group.step(2)
    leader = group.leader
    assert leader is not None and leader.node == target and leader.core is not None and leader.core.term == term + 1


def test_a_read_index_covers_everything_acknowledged_before_it_was_asked_for() -> None:
    group = ready()
    group.put()
    end = group.lead().log.end
    read = group.read(group.lead())
    assert read == [], "a majority must confirm first"
    group.step()
    assert read[0].outcome is Outcome.DONE and read[0].position >= end
    assert group.read(group[others(group)[0]])[0].outcome is Outcome.REFUSED


def test_a_deposed_leader_never_confirms_a_read() -> None:
    group = ready()
    old = group.lead()
    group.cut(old.node)
    read = group.read(old)
    group.until(lambda: group.leader is not None and group.leader.node != old.node, what="a new leader")
    group.put(bodies=[b"newer"])
    group.step(100)
    assert [result.outcome for result in read] == [Outcome.REFUSED]


def test_members_can_be_removed_and_added_back_one_at_a_time() -> None:
    group = ready()
    leader, gone = group.lead(), others(group)[0]
    heard: list[bool] = []
    leader.change_membership(Change(ChangeKind.REMOVE, NodeId(gone)), heard.append)
    leader.change_membership(Change(ChangeKind.REMOVE, NodeId(others(group)[1])), heard.append)
    assert heard == [False], "one change at a time"
    group.step(3)
    assert heard == [False, True] and NodeId(gone) not in leader.core.membership.nodes  # type: ignore[union-attr]
    group.put()
    leader.change_membership(Change(ChangeKind.ADD_LEARNER, NodeId(gone), group[gone].incarnation), heard.append)
    group.until(lambda: group.votes(gone), what="it votes again")
    group.assert_equal()


# ---- topics and queues -----------------------------------------------------------------------------------------------


def test_a_topic_that_was_deleted_and_made_again_shows_nothing_old_on_any_node_also_after_a_rebuild() -> None:
    group = ready()
    group.put(bodies=[b"old"] * 5)
    group.delete("t")
    group.topic("t")
    group.put(bodies=[b"new"])
    group.assert_equal()
    group["n1"].derived.distrust()
    group.stop("n1")
    group.start("n1")
    group.assert_equal()
    for replica in group.up:
        queue = replica.derived.queue("t", 0)
        assert queue is not None and queue.max_offset == 1
        plan = queue.plan_read(0, 10, 1 << 20, None, replica.applied)
        assert plan.status is PullStatus.FOUND and plan.count == 1


def test_rot_in_a_queue_file_is_found_while_the_node_runs_and_the_queue_is_rebuilt() -> None:
    group = ready()
    group.put(bodies=[b"x"] * 5, keys="k")
    group.assert_equal()
    victim = others(group)[0]
    group.nodes[victim].disk.flip_bit("consumequeue/t/0/00000000000000000000", 2 * 20 + 15, 4)  # a tag
    group.until(lambda: group.nodes[victim].saw("damage_met"), 200, what="the audit finds it")
    group.assert_equal()
    assert group.nodes[victim].saw("derived_files_dropped")


def test_a_leader_whose_queues_are_rebuilt_hands_over_and_loses_nothing() -> None:
    group = ready()
    group.put(bodies=[b"x"] * 5)
    leader = group.lead().node
    group.nodes[leader].disk.flip_bit("consumequeue/t/0/00000000000000000000", 8, 1)
    group.until(lambda: group.nodes[leader].saw("damage_met"), 200, what="the audit finds it")
    assert group.put(bodies=[b"y"]).offset == 5
    group.assert_equal()


def test_rot_in_a_cold_segment_is_found_by_the_scrubber_and_mended_from_a_peer() -> None:
    group = ready()
    for _ in range(12):
        group.put(bodies=[b"x" * 300] * 2)
    group.assert_equal()
    victim = others(group)[0]
    disk = group.nodes[victim].disk
    before = disk.read("commitlog/00000000000000000000")
    disk.flip_bit("commitlog/00000000000000000000", 700, 4)
    group.until(lambda: group.nodes[victim].saw("repaired"), 300, what="it is mended")
    group.assert_equal()
    assert disk.read("commitlog/00000000000000000000") == before


# ---- the log's head --------------------------------------------------------------------------------------------------


def test_the_log_start_moves_on_every_node_and_a_follower_that_slept_is_handed_over() -> None:
    group = ready(checkpoint_bytes=2000)
    sleeper = others(group)[0]
    group.put(bodies=[b"old"] * 3)
    group.stop(sleeper)
    for number in range(10):
        group.put(bodies=[b"x" * 400] * 2, producer=b"p", sequence=number, keys="k")
    group.lead().propose_log_start(9000)
    group.until(lambda: all(replica.log.start == 8192 for replica in group.up), what="the head is gone")
    below = [name for name in group.nodes["n0"].disk.list("commitlog") if int(name) < 8192]
    assert len(below) <= 1, "at most one file is kept, to be used again"
    group.start(sleeper)
    group.until(lambda: group.nodes[sleeper].saw("handed_over"), what="a hand-over")
    group.assert_equal()
    assert group[sleeper].log.start == 8192
    assert group.put(bodies=[b"x" * 400] * 2, producer=b"p", sequence=9).offset == 21, "the dedup table came along"
    group.lead(sleeper)
    group.put(bodies=[b"led by it"])
    group.assert_equal()


# ---- stop and start --------------------------------------------------------------------------------------------------


def test_a_clean_stop_leaves_nothing_to_scan_and_says_so() -> None:
    group = ready()
    group.put(bodies=[b"x"] * 3)
    group.converge()
    assert group.nodes["n1"].disk.exists("abort")
    end = group["n1"].log.end
    group.stop()
    for node in group.nodes.values():
        assert not node.disk.exists("abort")
    group.start()
    assert [replica.control.position for replica in group.up if replica.control is not None] == [end] * 3
    assert all(replica.applied == end for replica in group.up)
    group.lead()
    group.put()
    group.assert_equal()


def test_a_power_cut_of_all_nodes_loses_nothing_that_was_acknowledged() -> None:
    group = ready(checkpoint_bytes=3000)
    for seed in range(12):
        result = group.put(bodies=[b"%d" % seed * 50] * 3, producer=b"p", sequence=seed)
        assert result.offset == 3 * seed
        group.crash(seed=seed)
        group.start()
        group.lead()
    group.assert_equal()
    assert group.lead().state.next_offsets[("t", 0)] == 36


def test_control_if_sync_did_nothing_a_power_cut_would_lose_acknowledged_messages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lost = 0
    for seed in range(6):
        group = ready()
        group.step(5)
        with monkeypatch.context() as patch:
            patch.setattr(type(group.nodes["n0"].disk), "sync", lambda disk, ticket: None)
            group.put(bodies=[b"precious"])
            group.crash(seed=seed)
        group.start()
        try:
            lost += ("t", 0) not in group.lead().state.next_offsets
        except AssertionError:  # or there is no group any more
            lost += 1
    assert lost


# ---- what a node cannot follow ---------------------------------------------------------------------------------------


def test_an_entry_of_a_newer_release_stops_every_node_with_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    group = ready()
    monkeypatch.setattr(composing, "pack_preamble", lambda *columns: b"\x63" + pack_preamble(*columns)[1:])
    group.ask()
    group.step(20)
    for replica in group.up:
        assert replica.phase is Phase.STOPPED and replica.failure is not None
        assert "preamble version 99" in replica.failure and "newer release" in replica.failure


def test_an_entry_that_contradicts_the_state_stops_every_node(monkeypatch: pytest.MonkeyPatch) -> None:
    group = ready()
    monkeypatch.setattr(Leading, "number", lambda leading, sent: SubBatch(sent.topic, sent.queue, 1, 77))
    asked = group.ask()
    group.step(20)
    assert asked == []
    for replica in group.up:
        assert replica.phase is Phase.STOPPED and "the state expects 0" in str(replica.failure)


# ---- real disks ------------------------------------------------------------------------------------------------------


def on_disk(path: Path, raft: Any = COARSE) -> Group:
    return Group(disks={name: RealDisk(path / name) for name in ("n0", "n1", "n2")}, raft=raft)


def tree(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


def test_the_same_on_real_disks_with_a_clean_stop_and_a_start(tmp_path: Path) -> None:
    group = on_disk(tmp_path).formed()
    group.topic()
    for sequence in range(8):
        group.put(bodies=[b"x" * 400] * 2, producer=b"p", sequence=sequence, keys="k")
    group.assert_equal()
    group.stop()
    names = {name.split("/")[0] for name in tree(tmp_path / "n0")}
    assert names == {"commitlog", "consumequeue", "index", "config", "checkpoint", "checkpoint.1", "lock"}
    again = on_disk(tmp_path).start()
    again.lead()
    assert again.put(bodies=[b"x" * 400] * 2, producer=b"p", sequence=7).offset == 14
    again.assert_equal()
    again.stop()


def replica(path: Path, config: BrokerConfig) -> Replica:
    heard: list[Event] = []
    return Replica(
        config, RealDisk(path), HandLane(), HandLane(), Group(), HandClock(), Random(0), heard.append
    )  # fmt: skip


def test_a_second_process_on_one_directory_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    group = on_disk(tmp_path).formed()
    group.topic()
    second = replica(tmp_path / "n0", group.config("n0"))
    assert "in use by another process" in refuses(second.start)
    group.put()
    group.stop()
    second = replica(tmp_path / "n0", group.config("n0"))
    second.start()
    second.stop()


@pytest.mark.parametrize("changed, says", [
    ({"node": "n1"}, "its node is 'n0', not 'n1'"), ({"cluster": "other"}, "cluster is 'c', not 'other'"),
    ({"group": "h"}, "group is 'g', not 'h'"), ({"cluster": "x", "group": "y"}, "cluster is 'c'"),
])  # fmt: skip
def test_a_directory_of_another_node_or_cluster_is_refused_and_not_touched(
    tmp_path: Path, changed: dict[str, str], says: str
) -> None:
    group = on_disk(tmp_path).formed()
    group.stop()
    before = tree(tmp_path)
    refused = refuses(replica(tmp_path / "n0", group.config("n0", **changed)).start)
    assert says.replace("its node", "node") in refused and "nothing in it was touched" in refused
    assert tree(tmp_path) == before
    assert group.start("n0")["n0"].phase is Phase.RUNNING, "and its lock is free"
    group.stop("n0")


def test_a_directory_with_another_segment_size_is_refused(tmp_path: Path) -> None:
    group = on_disk(tmp_path).formed()
    group.stop()
    other = Group(segment_bytes=8192).config("n0")
    assert "segment_bytes is 4096, not 8192" in refuses(replica(tmp_path / "n0", other).start)


def test_a_directory_of_a_newer_release_is_refused_and_not_touched(tmp_path: Path) -> None:
    group = on_disk(tmp_path).formed()
    group.stop()
    for name in identity.NAMES:
        file = tmp_path / "n0" / name
        file.write_text(json.dumps({**json.loads(file.read_text()), "format": 99, "colour": "blue"}))
    before = tree(tmp_path)
    assert "format 99" in refuses(replica(tmp_path / "n0", group.config("n0")).start)
    assert tree(tmp_path) == before


def test_control_a_refused_start_would_be_seen_if_it_wrote_anything(tmp_path: Path) -> None:
    group = on_disk(tmp_path).formed()
    group.stop()
    before = tree(tmp_path)
    group.start("n0")
    assert tree(tmp_path) != before
    group.stop("n0")


def test_answers_of_one_request_are_never_more_than_one() -> None:
    group = ready()
    asked: list[Asked] = []
    for seed in range(6):
        leader = group.lead()
        asked += [group.ask(leader, bodies=[b"%d" % number]) for number in range(3)]
        group.settle()
        if seed % 2:
            group.crash(leader.node, seed=seed)
            group.lead()
            group.start(leader.node)
    group.assert_equal()
    assert all(len(one) <= 1 for one in asked) and sum(one.done for one in asked) >= 9


def test_a_node_can_be_stopped_in_every_phase() -> None:
    group = Group(raft=COARSE).start("n0")
    assert group["n0"].phase is Phase.FORMING
    group.stop("n0")
    group.formed("n0")
    group.topic()
    group.put(bodies=[b"x"])
    group.step(3)
    group.kill("n1")
    group.cut("n1")
    group.nodes["n1"].disk.flip_bit("commitlog/00000000000000000000", 200, 1)
    group.start("n1")
    assert group["n1"].phase is Phase.REPAIRING
    group.stop("n1")
    group.heal()
    group.start("n1")
    group.assert_equal()
    stopped = group["n1"]
    group.stop("n1")
    stopped.stop()
    stopped.tick()
    assert stopped.turn() is False and stopped.phase is Phase.STOPPED and stopped.failure is None
