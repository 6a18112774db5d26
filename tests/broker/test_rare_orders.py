"""Orders of events that random runs meet once in a hundred seeds or never, each told step by step."""

from random import Random
from unittest.mock import patch

from broker import applying
from broker.mail import Poster
from broker.ports import Letter, Outcome, ReadResult
from dledger.membership import Change, ChangeKind
from dledger.messages import Kind, Message
from model.ids import Incarnation, LogPosition, NodeId, Term
from store.commitlog import CommitLog
from store.entry import EntryKind
from tests.broker.group import FaultyDisk, Group, HandLane, Node

SEGMENT = 4096


def test_the_own_no_op_is_written_before_a_newer_leaders_append_cuts_it() -> None:
    group = Group().formed("n0")
    group.topic()
    group.lost = lambda letter: letter.target == "n1" and _is(letter, Kind.VOTE_REPLY)
    group.cut("n0")
    group.until(lambda: _sent(group, Kind.VOTE_REPLY), 2000, what="n2 votes for n1")
    vote = _sent(group, Kind.VOTE_REPLY)[0]
    group.heal()
    group.cut("n1")
    group.carried.clear()
    for _ in range(500):  # n1 stands still, and hears neither that it was elected nor that others lead since
        group["n0"].tick()
        group["n2"].tick()
        group.settle()
    append = next(letter for letter in _sent(group, Kind.APPEND) if letter.body.payload)  # type: ignore[union-attr]
    group["n1"].receive(vote)
    group["n1"].receive(append)
    group["n1"].turn()
    group.heal()
    group.assert_equal()


def _is(letter: Letter, kind: Kind) -> bool:
    return isinstance(letter.body, Message) and letter.body.kind is kind


def _sent(group: Group, kind: Kind) -> list[Letter]:
    """What was sent to n1, whether it arrived or not."""
    return [letter for letter in group.carried if letter.target == "n1" and _is(letter, kind)]


def test_a_read_waits_until_a_backlog_of_committed_entries_is_applied() -> None:
    group = Group(("n0",)).formed("n0")
    group.topic()
    for number in range(6):
        group.put(producer=b"p", sequence=number)
    group.kill("n0")
    with patch.object(applying, "APPLY_BYTES_MAX", 1):  # one entry a turn
        group.start("n0")
        node, replica, answers = group.nodes["n0"], group["n0"], list[ReadResult]()
        while not answers:
            replica.tick()
            node.sync_lane.run()
            assert replica.core is not None
            if replica.core.serving and replica.applied < replica.core.commit:
                replica.read_index(answers.append)
            replica.turn()
    waited = [answer for answer in answers if answer.outcome is Outcome.DONE]
    assert all(replica.applied >= answer.position for answer in waited) and waited


def test_old_bytes_are_read_once_at_a_time_however_often_they_are_asked_for() -> None:
    log = CommitLog.open_at(FaultyDisk(Random(0)), SEGMENT, 0, 0, 0, 0)
    while log.end < 4 * SEGMENT:
        log.append_entry(1, 1, EntryKind.DATA, bytes(464))
    lane, sent = HandLane(), Group()
    poster = Poster(
        NodeId("n0"), Incarnation(1), sent, lane, log, lambda start: None,  # type: ignore[arg-type, return-value]
        lambda function: function, lambda damage: None,
    )  # fmt: skip
    append = Message(Kind.APPEND, NodeId("n0"), NodeId("n1"), Term(1), end=LogPosition(512))
    for _ in range(3):
        poster.post(append)
    assert len(lane.jobs) == 1, "a disk that is slow would get slower by every repeated question"
    lane.run()
    assert len(sent.carried) == 1
    poster.post(append)
    assert len(lane.jobs) == 1


def test_a_wiped_voter_returns_to_a_leader_that_its_configuration_never_named() -> None:
    group = Group().formed("n0")
    group.topic()
    group.nodes["n3"] = Node("n3", FaultyDisk(Random(3)))
    group.start("n3", config=group.config("n3", voters=("n0", "n1", "n2", "n3")))
    leader, changed = group.lead(), list[bool]()
    group.until(lambda: group["n3"].core is not None, what="n3 found the group")
    leader.change_membership(Change(ChangeKind.ADD_LEARNER, NodeId("n3"), group["n3"].incarnation), changed.append)
    group.until(lambda: changed, what="n3 learns")
    group.converge()
    leader.change_membership(Change(ChangeKind.PROMOTE, NodeId("n3")), changed.append)
    group.until(lambda: len(changed) == 2, what="n3 votes")
    group.lead("n3")
    group.wipe("n2")
    group.start("n2")
    group.until(lambda: group.votes("n2"), what="n2 votes again")
