"""One test per important sentence of the Raft paper (extended version); the docstring of each is the sentence.

Section numbers are the paper's. Where this core departs on purpose (prevote, no lease reads, byte positions), the test
says what holds instead."""

from random import Random

from chaos.coregroup import SMALL, CoreGroup
from dledger.core import Role
from dledger.membership import Change, ChangeKind
from dledger.messages import Kind, Message
from model.ids import LogPosition, NodeId, Term

ONE, TWO, THREE = NodeId("1"), NodeId("2"), NodeId("3")


def group_of(count: int = 3) -> CoreGroup:
    return CoreGroup([str(number + 1) for number in range(count)], white_box=True)


def led(count: int = 3) -> CoreGroup:
    """A group in which 1 leads and its no-op is committed everywhere."""
    group = group_of(count)
    group.campaign(ONE)
    group.pump()
    group.run(2)
    assert group.core(ONE).serving
    return group


def said(group: CoreGroup, kind: Kind) -> list[Message]:
    return [message for message in group.wire if message.kind is kind]


def test_5_1_a_server_with_a_stale_term_updates_it() -> None:
    """If one server's current term is smaller than the other's, then it updates its current term."""
    group = led()
    group.deliver(Message(Kind.BEAT, TWO, THREE, Term(7), group.nodes[TWO].incarnation))
    assert (group.core(THREE).term, group.nodes[THREE].disk.hard.term) == (7, 7)


def test_5_1_a_leader_that_discovers_a_higher_term_reverts_to_follower() -> None:
    """If a candidate or leader discovers that its term is out of date, it immediately reverts to follower state."""
    group = led()
    group.deliver(Message(Kind.ACK, TWO, ONE, Term(5), group.nodes[TWO].incarnation, LogPosition(-1)))
    assert (group.core(ONE).role, group.core(ONE).term) == (Role.FOLLOWER, 5)


def test_5_1_a_request_with_a_stale_term_is_rejected_and_its_sender_hears_why() -> None:
    """If a server receives a request with a stale term number, it rejects the request."""
    group = led()
    before = group.core(TWO).end
    group.core(TWO).step(Message(Kind.BEAT, THREE, TWO, Term(0)))
    group.pump()
    assert (group.core(TWO).end, group.core(TWO).leader) == (before, ONE)


def test_5_2_servers_start_as_followers() -> None:
    """When servers start up, they begin as followers."""
    assert {group_of().core(name).role for name in (ONE, TWO, THREE)} == {Role.FOLLOWER}


def test_5_2_heartbeats_keep_followers_quiet() -> None:
    """Leaders send periodic heartbeats to all followers in order to maintain their authority."""
    group = led()
    group.run(500)
    assert (group.core(ONE).role, group.core(ONE).term) == (Role.LEADER, 1)


def test_5_2_a_follower_that_hears_nothing_begins_an_election() -> None:
    """If a follower receives no communication over the election timeout, it begins an election (prevote first)."""
    group = group_of()
    for _ in range(SMALL.election_ticks_max + 1):
        group.tick(TWO)
    assert {message.target for message in said(group, Kind.PREVOTE)} == {ONE, THREE}
    assert group.core(TWO).term == 0


def test_5_2_a_candidate_increments_its_term_and_votes_for_itself() -> None:
    """To begin an election, a follower increments its current term. It then votes for itself and asks for votes."""
    group = group_of()
    group.campaign(TWO)
    assert group.nodes[TWO].disk.hard == (1, TWO)
    assert {message.target for message in said(group, Kind.VOTE)} == {ONE, THREE}


def test_5_2_a_candidate_wins_with_votes_from_a_majority() -> None:
    """A candidate wins an election if it receives votes from a majority of the servers in the full cluster."""
    group = group_of(5)
    group.campaign(ONE)
    votes = said(group, Kind.VOTE)
    group.wire = []
    for vote, role in zip(votes[:2], (Role.CANDIDATE, Role.LEADER), strict=True):
        group.deliver(vote)
        group.pump()
        assert group.core(ONE).role is role


def test_5_2_each_server_votes_for_at_most_one_candidate_in_a_term() -> None:
    """Each server will vote for at most one candidate in a given term, on a first-come-first-served basis."""
    group = group_of()
    group.campaign(ONE)
    group.campaign(TWO)
    votes = [message for message in said(group, Kind.VOTE) if message.target == THREE]
    group.wire = []
    for vote in votes:
        group.deliver(vote)
    assert [message.granted for message in said(group, Kind.VOTE_REPLY)] == [True, False]


def test_5_2_a_candidate_returns_to_follower_when_another_leads_its_term() -> None:
    """If the leader's term is at least as large as the candidate's, the candidate returns to follower state."""
    group = group_of()
    group.campaign(ONE)
    group.campaign(TWO)
    group.wire = [m for m in group.wire if m.source == ONE or m.target == ONE]
    group.deliver(next(m for m in group.wire if (m.source, m.target, m.kind) == (ONE, THREE, Kind.VOTE)))
    group.pump()
    assert (group.core(ONE).role, group.core(TWO).role, group.core(TWO).leader) == (Role.LEADER, Role.FOLLOWER, ONE)


def test_5_2_election_timeouts_are_random_so_split_votes_are_resolved() -> None:
    """Raft uses randomized election timeouts to ensure that split votes are rare and are resolved quickly."""
    random, terms = Random(1), []
    for seed in range(30):
        group = CoreGroup("12345", white_box=True, seed=random.randrange(10_000) + seed)
        group.run(4 * SMALL.election_ticks_max)
        leaders = [name for name in group.nodes if group.core(name).role is Role.LEADER]
        assert len(leaders) == 1
        terms.append(group.core(leaders[0]).term)
    assert sum(terms) / len(terms) < 1.5


def test_5_3_a_leader_appends_and_replicates_in_parallel() -> None:
    """The leader appends the command to its log, then issues AppendEntries in parallel to each of the other servers."""
    group = led()
    group.nodes[ONE].syncs_itself = False
    group.propose(ONE, 100, "x")
    assert {message.target for message in said(group, Kind.APPEND)} == {TWO, THREE}


def test_5_3_an_entry_is_committed_once_a_majority_has_it_and_all_before_it_too() -> None:
    """A log entry is committed once the leader that created it has replicated it on a majority of the servers."""
    group = led(5)
    group.propose(ONE, 100, "x")
    for append in [m for m in said(group, Kind.APPEND) if m.target in (TWO, THREE)]:
        group.wire.remove(append)
        assert group.core(ONE).commit < group.core(ONE).end
        group.deliver(append)
        for ack in said(group, Kind.ACK):
            group.wire.remove(ack)
            group.deliver(ack)
    assert group.core(ONE).commit == group.core(ONE).end


def test_5_3_followers_learn_the_commit_from_later_messages() -> None:
    """The leader includes the highest index it knows to be committed, so that the other servers eventually find out."""
    group = led()
    group.propose(ONE, 100, "x")
    group.pump()
    assert {group.core(name).commit for name in group.nodes} == {group.core(ONE).end}


def test_5_3_a_leader_retries_for_ever() -> None:
    """If followers crash or run slowly, or if packets are lost, the leader retries AppendEntries indefinitely."""
    group = led()
    group.crash(THREE)
    group.propose(ONE, 100, "x")
    group.run(300)
    group.start(THREE)
    group.run(40)
    assert group.core(THREE).commit == group.core(ONE).end


def test_5_3_a_follower_refuses_what_does_not_follow_its_log() -> None:
    """If the follower does not find an entry with the same index and term, then it refuses the new entries."""
    group = led()
    core = group.core(TWO)
    group.deliver(Message(
        Kind.APPEND, ONE, TWO, core.term, group.nodes[ONE].incarnation, LogPosition(core.end + 48), core.term,
        LogPosition(core.end + 48), payload=(),
    ))  # fmt: skip
    assert [message.hint_end for message in said(group, Kind.REJECT)] == [core.end]


def test_5_3_a_leader_never_overwrites_or_deletes_in_its_own_log() -> None:
    """A leader never overwrites or deletes entries in its own log."""
    group = led()
    group.propose(ONE, 100, "x")
    before = list(group.nodes[ONE].disk.entries)
    group.run(20)
    assert group.nodes[ONE].disk.entries[: len(before)] == before


def test_5_4_1_a_vote_is_denied_to_a_candidate_with_an_older_log() -> None:
    """The voter denies its vote if its own log is more up-to-date: the later last term, then the longer log."""
    group = led()
    core = group.core(TWO)
    for term, end, granted in ((0, core.end + 500, False), (1, core.end - 1, False), (1, core.end, True)):
        group.wire = []
        candidacy = Message(Kind.VOTE, THREE, TWO, Term(core.term + 1), position=LogPosition(end), flag=True)
        group.deliver(candidacy._replace(position_term=Term(term)))
        assert [message.granted for message in said(group, Kind.VOTE_REPLY)] == [granted]


def test_5_4_2_only_entries_of_the_current_term_are_committed_by_counting() -> None:
    """Raft never commits log entries from previous terms by counting replicas. (Figure 8 is a transcript.)"""
    group = led()
    group.cuts = {(ONE, THREE), (TWO, ONE)}
    group.propose(ONE, 100, "x")
    group.pump()
    group.crash(ONE)
    group.cuts = set()
    group.campaign(TWO)
    group.pump()
    assert group.core(TWO).commit == group.core(TWO).end


def test_5_5_a_repeated_message_changes_nothing() -> None:
    """Raft RPCs are idempotent."""
    group = led()
    group.propose(ONE, 100, "x")
    append = next(m for m in said(group, Kind.APPEND) if m.target == TWO)
    group.pump()
    before = list(group.nodes[TWO].disk.entries)
    group.deliver(append)
    group.deliver(append)
    assert group.nodes[TWO].disk.entries == before


def test_6_a_membership_is_used_as_soon_as_it_is_in_the_log() -> None:
    """Once a given server adds the new configuration entry to its log, it uses that configuration for all decisions."""
    group = led()
    group.cuts = {(ONE, TWO), (ONE, THREE)}
    group.change(ONE, Change(ChangeKind.REMOVE, THREE))
    assert group.core(ONE).membership.voters == {ONE, TWO}
    assert group.core(TWO).membership.voters == {ONE, TWO, THREE}


def test_6_new_servers_join_without_a_vote() -> None:
    """New servers join the cluster as non-voting members (the leader replicates to them, but they are not counted)."""
    group = led()
    group.join(NodeId("4"))
    group.change(ONE, Change(ChangeKind.ADD_LEARNER, NodeId("4"), group.nodes[NodeId("4")].incarnation))
    group.run(6)
    assert group.core(NodeId("4")).end == group.core(ONE).end
    group.cuts = {(ONE, TWO), (ONE, THREE)}
    group.propose(ONE, 100, "x")
    group.pump()
    assert group.core(NodeId("4")).end == group.core(ONE).end > group.core(ONE).commit


def test_6_a_leader_that_removes_itself_leads_until_that_is_committed() -> None:
    """The leader steps down once it has committed Cnew; it replicates but does not count itself in majorities."""
    group = led()
    group.change(ONE, Change(ChangeKind.REMOVE, ONE))
    assert group.core(ONE).role is Role.LEADER
    group.pump()
    assert group.core(ONE).role is Role.FOLLOWER
    assert [name for name in (TWO, THREE) if group.core(name).role is Role.LEADER]


def test_6_servers_disregard_votes_while_they_hear_a_leader() -> None:
    """If a server receives a RequestVote within the minimum election timeout of hearing from a current leader, it does
    not update its term or grant its vote."""
    group = led()
    candidacy = Message(Kind.VOTE, THREE, TWO, Term(9), position=LogPosition(10_000), position_term=Term(8))
    group.deliver(candidacy)
    assert (group.core(TWO).term, group.core(TWO).vote) == (1, ONE)
    for _ in range(SMALL.election_ticks_min):
        group.tick(TWO)
    group.deliver(candidacy)
    assert (group.core(TWO).term, group.core(TWO).vote) == (9, THREE)


def test_7_a_follower_behind_the_log_start_gets_a_snapshot() -> None:
    """The leader must send snapshots to followers that lag behind when it has discarded the next entry they need."""
    group = led()
    group.crash(THREE)
    for number in range(6):
        group.propose(ONE, 2000, f"x{number}")
    group.run(4)
    group.move_start(ONE, LogPosition(SMALL.segment_bytes))
    group.start(THREE)
    group.run(40)
    assert (group.core(THREE).epochs.start, group.core(THREE).end) == (SMALL.segment_bytes, group.core(ONE).end)


def test_8_a_leader_commits_a_noop_at_the_start_of_its_term() -> None:
    """Raft handles this by having each leader commit a blank no-op entry into the log at the start of its term."""
    group = group_of()
    group.campaign(ONE)
    group.pump()
    assert [entry.payload for entry, _ in group.oracle.committed] == ["noop@1"]


def test_8_a_read_waits_for_heartbeats_with_a_majority() -> None:
    """A leader must check whether it has been deposed before processing a read-only request."""
    group = led()
    assert group.read(ONE, "r")
    assert group.reads == {}
    group.pump()
    assert group.reads == {"r": group.core(ONE).commit}
