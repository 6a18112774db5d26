"""What no transcript shows: where entries may stand, what a damaged node may do, and that peace costs little."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos.coregroup import SMALL, CoreGroup
from dledger.boot import ENVELOPE_BYTES, Boot, placement
from dledger.core import RaftCore, Role
from dledger.membership import Change, ChangeKind, Member, Membership, MembershipHistory, changed
from dledger.messages import Kind, Message
from dledger.ready import HardState
from model.ids import Incarnation, LogPosition, NodeId, Term

ONE, TWO, THREE = NodeId("1"), NodeId("2"), NodeId("3")
VOTERS = Membership(tuple(Member(name, Incarnation(1), voter=True) for name in (ONE, TWO, THREE)))


class NoLog:
    """A log nobody asks."""

    def boundary(self, start: int, bytes_max: int) -> int:
        raise AssertionError((start, bytes_max))


def damaged(lost_floor: int) -> RaftCore:
    """2 acknowledged up to `lost_floor` in term 3 and has only 100 bytes left."""
    boot = Boot(
        HardState(Term(3), ONE), LogPosition(0), Term(0), ((Term(1), LogPosition(0)),), LogPosition(100),
        LogPosition(0), ((LogPosition(-1), VOTERS),), LogPosition(0), LogPosition(lost_floor),
    )  # fmt: skip
    core = RaftCore(TWO, Incarnation(1), SMALL, boot, NoLog(), Random(1))
    settle(core)
    return core


def settle(core: RaftCore) -> list[Message]:
    """Do what it asks, with a disk that is always ready; what it said."""
    said: list[Message] = []
    while (ready := core.ready()) is not None:
        said += [*ready.messages, *ready.after_sync]
        if ready.mark is not None:
            core.synced(ready.mark)
    return said


def append(term: int, start: int, end: int, commit: int, prev_term: int) -> Message:
    return Message(
        Kind.APPEND, ONE, TWO, Term(term), Incarnation(1), LogPosition(start), Term(prev_term), LogPosition(end),
        LogPosition(commit), ((Term(term), LogPosition(start)),) if end > start else (),
    )  # fmt: skip


@given(st.integers(0, 5000), st.integers(48, 512))
def test_an_entry_never_crosses_a_segment_and_a_blank_always_fits(end: int, size: int) -> None:
    segment = 512
    room = segment - end % segment
    if room < ENVELOPE_BYTES or (segment - ENVELOPE_BYTES < size < segment):
        return  # no log ends there, no entry is that long
    blank, position = placement(LogPosition(end), size, segment)
    assert blank == 0 or blank >= ENVELOPE_BYTES
    assert position == end + blank
    assert position // segment == (position + size - 1) // segment
    left = -(position + size) % segment
    assert left == 0 or left >= ENVELOPE_BYTES


def test_a_node_that_lost_acknowledged_bytes_ends_the_term_in_which_it_acknowledged_them() -> None:
    core = damaged(300)
    assert (core.term, core.vote, core.fenced) == (4, None, True)
    core.step(Message(Kind.BEAT, ONE, TWO, Term(3), Incarnation(1)))
    assert [(message.kind, message.term) for message in settle(core)] == [(Kind.ACK, 4)]


def test_a_node_that_lost_acknowledged_bytes_neither_votes_nor_campaigns() -> None:
    core = damaged(300)
    core.step(Message(Kind.VOTE, ONE, TWO, Term(5), Incarnation(1), LogPosition(900), Term(4), flag=True))
    assert [message.granted for message in settle(core)] == [False]
    for _ in range(5 * SMALL.election_ticks_max):
        core.tick()
    assert core.role is Role.FOLLOWER


def test_it_is_whole_again_when_it_has_what_a_later_leader_committed() -> None:
    core = damaged(300)
    core.step(append(5, 100, 200, 100, 1))
    settle(core)
    assert core.fenced
    core.step(append(5, 200, 200, 200, 5))
    settle(core)
    assert not core.fenced


def test_it_is_whole_again_when_it_has_as_many_bytes_as_it_had() -> None:
    core = damaged(300)
    core.step(append(5, 100, 300, 0, 1))
    assert core.fenced
    settle(core)
    assert not core.fenced


def test_a_node_that_lost_nothing_keeps_its_term_and_its_vote() -> None:
    core = damaged(100)
    assert (core.term, core.vote, core.fenced) == (3, ONE, False)


def test_a_vote_that_was_given_to_another_log_does_not_count() -> None:
    """It may be a late answer to an earlier life of this node, which had a longer log and was wiped."""
    group = CoreGroup("123")
    group.campaign(ONE)
    granted = Message(Kind.VOTE_REPLY, TWO, ONE, Term(1), Incarnation(1), granted=True)
    group.deliver(granted._replace(position=LogPosition(500)))
    assert group.core(ONE).role is Role.CANDIDATE
    group.deliver(granted)
    assert group.core(ONE).role is Role.LEADER


def test_bytes_in_flight_are_bounded() -> None:
    group = CoreGroup("123", SMALL._replace(in_flight_bytes_max=500, append_bytes_max=200))
    group.campaign(ONE)
    group.pump()
    for number in range(50):
        group.propose(ONE, 100, f"x{number}")
    for target in (TWO, THREE):
        sent = sum(m.end - m.position for m in group.wire if m.kind is Kind.APPEND and m.target == target)
        assert 500 <= sent <= 700
    group.pump()
    assert group.core(ONE).commit == group.core(ONE).end


def test_heartbeats_leave_before_bulk() -> None:
    group = CoreGroup("123")
    group.campaign(ONE)
    group.pump()
    core = group.core(ONE)
    core.tick()
    core.tick()
    core.propose(100, "x")
    ready = core.ready()
    assert ready is not None
    assert [m.kind for m in ready.messages] == [Kind.BEAT, Kind.BEAT, Kind.APPEND, Kind.APPEND]


def test_an_idle_group_says_nothing_but_heartbeats() -> None:
    group = CoreGroup("123")
    group.campaign(ONE)
    group.run(20)
    for name in group.nodes:
        group.tick(name)
        group.tick(name)
    assert {message.kind for message in group.wire} == {Kind.BEAT}


def test_a_leader_cannot_make_itself_a_learner_and_nobody_can_remove_the_last_voter() -> None:
    group = CoreGroup("1")
    group.campaign(ONE)
    group.run(2)
    assert group.core(ONE).serving
    assert group.change(ONE, Change(ChangeKind.ADD_LEARNER, ONE, Incarnation(9))) is None
    assert group.change(ONE, Change(ChangeKind.REMOVE, ONE)) is None


def test_a_voters_new_incarnation_returns_as_a_learner() -> None:
    after = changed(VOTERS, Change(ChangeKind.ADD_LEARNER, TWO, Incarnation(2)))
    assert after is not None
    assert after.voters == {ONE, THREE}
    assert after.incarnations[TWO] == 2
    assert after.votes(ONE, Incarnation(1)) and not after.votes(ONE, Incarnation(2))
    promoted = changed(after, Change(ChangeKind.PROMOTE, TWO))
    assert promoted is not None and promoted.votes(TWO, Incarnation(2))


@pytest.mark.parametrize("kind", list(ChangeKind))
def test_a_change_that_changes_nothing_makes_no_sense(kind: ChangeKind) -> None:
    node = NodeId("9") if kind is not ChangeKind.ADD_LEARNER else ONE
    assert changed(VOTERS, Change(kind, node, Incarnation(1))) is None


@given(st.lists(st.integers(0, 60), unique=True, max_size=6), st.integers(10, 60), st.integers(0, 60))
def test_the_membership_history_is_that_of_the_entries_left(positions: list[int], head: int, cut: int) -> None:
    rows = [(LogPosition(-1), VOTERS)]
    rows += [(LogPosition(p), Membership((Member(NodeId(str(p)), Incarnation(1), True),))) for p in sorted(positions)]
    history = MembershipHistory(rows)
    history.drop_head(LogPosition(head))
    in_force = max(row for row in rows if row[0] < head)[0]
    left = [row for row in rows if row[0] >= in_force]
    assert list(history.rows) == left
    cut = max(cut, head)
    history.truncate(LogPosition(cut))
    left = [row for row in left if row[0] < cut]
    assert list(history.rows) == left
    assert history.in_force_at(LogPosition(cut)) == left[-1]
