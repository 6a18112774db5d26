"""RaftCore: the consensus of one group as a pure state machine with the byte position as index.

Inputs: tick, step, propose, change, synced, transfer, read_index, link_lost, log_start_moved. Output: `ready()`.

Laws, each with its counter-example in docs/DIVERGENCE.md and tests/dledger/transcripts/:
- The prefix match is on the term of byte prev-1; a blank belongs to the term of the leader that wrote it.
- An ack is min(durable, proved in this term) and waits for the durable term; a vote and a vote request wait for
  everything written before them. Appends do not wait.
- Truncation happens only at the first byte whose term differs, never below commit.
- Commit needs a majority of disks and a current-term byte before it; a follower's commit is at most what it proved.
Does not know: clocks, disks, sockets, what an entry contains. Nothing here logs: facts leave as events."""

from collections.abc import Callable, Sequence
from enum import Enum
from random import Random
from typing import Any

from dledger.boot import ENVELOPE_BYTES, Boot, CoreConfig, LogReader, placement
from dledger.epochs import EpochTable
from dledger.membership import Change, ChangeKind, Membership, MembershipHistory, changed
from dledger.messages import NOTHING_PROVED, Kind, Message
from dledger.outbox import Outbox
from dledger.progress import Mode, Progress
from dledger.quorum import has_majority, majority_position
from dledger.reads import PendingReads
from dledger.ready import HardState, Ready, SyncMark, Write, WriteKind
from dledger.timer import ElectionTimer
from model.ids import Incarnation, LogPosition, NodeId, Term

__all__ = ["ENVELOPE_BYTES", "Boot", "CoreConfig", "LogReader", "RaftCore", "Role", "placement"]


class Role(Enum):
    """What this node is in its term."""

    FOLLOWER = "follower"
    PRECANDIDATE = "precandidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


class RaftCore:
    """One node's view of its group."""

    def __init__(
        self, node: NodeId, incarnation: Incarnation, config: CoreConfig, boot: Boot, log: LogReader, random: Random
    ) -> None:
        self.node = node
        self.incarnation = incarnation
        self._config = config
        self._log = log
        self.epochs = EpochTable(boot.start, boot.base_term, boot.runs, boot.end)
        self.memberships = MembershipHistory(boot.memberships)
        self.term = boot.hard_state.term
        self.vote = boot.hard_state.vote
        if self.epochs.last_term > self.term:  # a log of a term that was never recorded proves that the term existed
            self.term, self.vote = self.epochs.last_term, None
        self._lost_floor = boot.lost_floor if boot.lost_floor > boot.end else LogPosition(0)
        if self._lost_floor:  # the leader of the old term still counts acks that are no longer true: that term must end
            self.term, self.vote = Term(self.term + 1), None
        self.role = Role.FOLLOWER
        self.leader: NodeId | None = None
        self.durable = boot.end
        self.commit = boot.commit
        self._control_floor = boot.control_floor
        self._proved = NOTHING_PROVED
        self._generation = 0
        self._hard_version = 1 if (self.term, self.vote) != boot.hard_state else 0
        self._hard_durable = 0
        self._hard_sent = 0
        self._timer = ElectionTimer(config, random)
        self._votes: set[NodeId] = set()
        self.progress: dict[NodeId, Progress] = {}
        self._beat = 0
        self._beat_due = False
        self._commit_told = self.commit
        self._transferee: NodeId | None = None
        self._transfer_deadline = 0
        self._reads = PendingReads()
        self._out = Outbox()
        self._commit_said = self.commit
        assert self.epochs.start <= self.commit <= self.epochs.end, (self.epochs.start, self.commit, self.epochs.end)

    # ---- what others may ask -------------------------------------------------------------------------------------

    @property
    def end(self) -> LogPosition:
        """Where the log ends."""
        return self.epochs.end

    @property
    def membership(self) -> Membership:
        """The membership in force: the newest in the log."""
        return self.memberships.latest

    @property
    def fenced(self) -> bool:
        """Whether this node may not vote or campaign: it lost acknowledged bytes, or belongs to nothing yet.

        A voter whose log is still behind the control state it was handed may vote: it never acknowledged those bytes,
        and with its vote refused a group of two that crashes during a hand-over could never elect anybody again."""
        return self._lost_floor > 0 or not self.membership.members

    @property
    def transferring(self) -> bool:
        """Whether leadership is being handed over: proposals are refused meanwhile."""
        return self._transferee is not None

    @property
    def serving(self) -> bool:
        """Leader whose own term has a committed byte: only then is everything before it known to be committed."""
        return self.role is Role.LEADER and self.epochs.term_before(self.commit) == self.term

    # ---- inputs --------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """One unit of time has passed."""
        waited_enough = self._timer.tick()
        if self.role is Role.LEADER:
            self._tick_leader()
        elif waited_enough:
            self._timer.rearm()
            if self._may_campaign():
                self._prevote()

    def step(self, message: Message) -> None:
        """A message arrived; anything may arrive late, twice, out of order or never."""
        kind = message.kind
        if kind is Kind.PREVOTE or kind is Kind.VOTE:
            pass  # these decide themselves what their term means here
        elif message.term > self.term and not (kind is Kind.PREVOTE_REPLY and message.granted):
            self._follow(message.term, None)
        elif message.term < self.term:
            if kind in _FROM_LEADERS:  # tell a deposed leader; the answer proves nothing
                self._say(Kind.ACK, message.source, position=NOTHING_PROVED, end=NOTHING_PROVED)
            return
        _HANDLERS[kind](self, message)

    def propose(self, size: int, token: object, kind: WriteKind = WriteKind.DATA) -> LogPosition | None:
        """Append an entry of `size` bytes; its position, or None when this node cannot lead it."""
        if self.role is not Role.LEADER or self._transferee is not None:
            return None
        return self._append_own(size, token, kind)

    def change(self, change: Change, size_of: Callable[[Membership], int]) -> Membership | None:
        """Write a membership change; None when it cannot be done now (not serving, one in flight, nonsense)."""
        in_flight = self.memberships.latest_position >= self.commit
        if not self.serving or in_flight or self._transferee is not None:
            return None
        if change.kind is ChangeKind.ADD_LEARNER and change.node == self.node:
            return None  # a leader is not wiped
        if change.kind is ChangeKind.PROMOTE and not self._caught_up(change.node):
            return None  # the next commit might have to wait until it has everything
        after = changed(self.membership, change)
        if after is None:
            return None
        position = self._append_own(size_of(after), after, WriteKind.MEMBERSHIP)
        self.memberships.append(position, after)
        self._renew_progress()
        self._out.event("membership_written", position=position, voters=",".join(sorted(after.voters)))
        return after

    def synced(self, mark: SyncMark) -> None:
        """Everything up to `mark` is on disk."""
        self._hard_durable = max(self._hard_durable, mark.hard_version)
        if mark.generation == self._generation and mark.end > self.durable:
            self.durable = mark.end
            self._maybe_unfence()
        if self.role is Role.LEADER:
            self._advance_commit()
        elif self.role is Role.CANDIDATE:
            self._count_vote(self.node)
        elif self.leader is not None and self._proved >= 0:
            self._ack(Kind.ACK, 0)

    def transfer(self, target: NodeId) -> bool:
        """Hand leadership to `target` once it has everything; proposals stop until then."""
        if not self.serving or target == self.node or target not in self.membership.voters:
            return False
        self._transferee = target
        self._transfer_deadline = self._timer.now + self._config.election_ticks_min
        self._out.event("transfer_started", target=target)
        self._maybe_campaign_now(target)
        return True

    def read_index(self, token: object) -> bool:
        """Ask for a position that a linearizable read may be served from; False when this node does not serve."""
        if not self.serving:
            return False
        self._reads.ask(self._beat + 1, self.commit, token)
        self._beat_due = True
        return True

    def link_lost(self, peer: NodeId) -> None:
        """The connection to `peer` broke: a hint, much faster than a timeout, and never a proof."""
        if self.role is Role.LEADER:
            if peer in self.progress:
                self.progress[peer].lost(self._timer.now)
        elif peer == self.leader:
            self._timer.leader_link_lost()
            self._out.event("leader_link_lost", leader=peer)

    def log_start_moved(self, to: LogPosition) -> None:
        """The shell dropped the log below `to`, a committed and durable segment boundary."""
        assert to <= min(self.commit, self.durable), (to, self.commit, self.durable)
        if to > self.epochs.start:
            self.epochs.drop_head(to)
            self.memberships.drop_head(to)

    def ready(self) -> Ready | None:
        """Everything to be done since the last call; None when there is nothing."""
        if self.role is Role.LEADER:
            self._send_owed()
        hard_state = None
        if self._hard_version > self._hard_sent:
            hard_state, self._hard_sent = HardState(self.term, self.vote), self._hard_version
        out = self._out
        dirty = bool(out.writes) or hard_state is not None
        if not dirty and out.empty and self.commit == self._commit_said:
            return None
        self._out, self._commit_said = Outbox(), self.commit
        mark = SyncMark(self.end, self._generation, self._hard_version) if dirty or out.after_sync else None
        return Ready(
            out.handover, out.truncate_to, out.writes, hard_state, mark, out.messages, out.after_sync,
            self.commit, out.reads, out.events,
        )  # fmt: skip

    # ---- elections -----------------------------------------------------------------------------------------------

    def _may_campaign(self) -> bool:
        if self.fenced or self.durable < self._control_floor:
            return False
        # A voter of any membership from the last known-committed one on: else two nodes deadlock on a removal.
        return any(m.votes(self.node, self.incarnation) for m in self.memberships.since(self.commit))

    def _prevote(self) -> None:
        self.role, self.leader, self._votes = Role.PRECANDIDATE, None, set()
        self._out.event("prevote", term=self.term + 1, end=self.end)
        for peer in self._electors():
            self._say(
                Kind.PREVOTE, peer, term=Term(self.term + 1), position=self.end, position_term=self.epochs.last_term
            )
        self._count_prevote(self.node)

    def _count_prevote(self, voter: NodeId) -> None:
        self._votes.add(voter)
        if has_majority(self.membership.voters, self._votes):
            self._campaign(transfer=False)

    def _campaign(self, *, transfer: bool) -> None:
        assert self._may_campaign()
        self.role, self.leader, self._votes = Role.CANDIDATE, None, set()
        self._set_hard_state(Term(self.term + 1), self.node)
        self._proved = NOTHING_PROVED
        self._timer.rearm(campaigning=True)
        self._out.event("campaign", term=self.term, end=self.end, last_term=self.epochs.last_term)
        for peer in self._electors():
            self._say(
                Kind.VOTE, peer, position=self.end, position_term=self.epochs.last_term, flag=transfer, after_sync=True
            )

    def _count_vote(self, voter: NodeId) -> None:
        if self._hard_durable < self._hard_version:
            return  # the own vote counts when it is on disk, like everybody's
        self._votes.update((voter, self.node))
        if has_majority(self.membership.voters, self._votes):
            self._lead()

    def _lead(self) -> None:
        assert self.role is Role.CANDIDATE, self.role
        self.role, self.leader = Role.LEADER, self.node
        self._timer.leading()
        self.progress = {}
        self._renew_progress()
        self._commit_told = self.commit
        self._out.event("leader_elected", term=self.term, end=self.end)
        self._append_own(ENVELOPE_BYTES, None, WriteKind.NOOP)  # so that older terms commit without client traffic
        self._beat_due = True

    def _follow(self, term: Term, leader: NodeId | None) -> None:
        if self.role is Role.LEADER:
            self._out.event("stepped_down", term=self.term, new_term=term)
            self._out.reads.extend(self._reads.refused())
            self._transferee, self.progress = None, {}
        if term > self.term:
            self._set_hard_state(term, None)
            self._proved = NOTHING_PROVED
            self._timer.leader_forgotten()
        if self.role is not Role.FOLLOWER or leader != self.leader:
            self._timer.rearm()
        self.role, self.leader = Role.FOLLOWER, leader

    def _follow_leader(self, message: Message) -> None:
        """A message of this term's leader: there is only one, so everything it says can be believed."""
        assert self.role is not Role.LEADER, (self.node, message)
        if self.leader != message.source or self.role is not Role.FOLLOWER:
            self._follow(self.term, message.source)
            self._out.event("following", term=self.term, leader=message.source)
        self._timer.leader_heard()

    def _leased(self) -> bool:
        return self.role is Role.LEADER or self._timer.leased

    def _log_allows(self, message: Message) -> bool:
        return (message.position_term, message.position) >= (self.epochs.last_term, self.end)

    def _on_prevote(self, message: Message) -> None:
        granted = (
            message.term > self.term and not self.fenced and not self._leased() and self._log_allows(message)
        )
        self._say(
            Kind.PREVOTE_REPLY, message.source, term=message.term if granted else self.term, granted=granted
        )

    def _on_prevote_reply(self, message: Message) -> None:
        if self.role is Role.PRECANDIDATE and message.granted and message.term == self.term + 1:
            if self._counts(message):
                self._count_prevote(message.source)

    def _on_vote(self, message: Message) -> None:
        if message.term < self.term:
            self._say(Kind.VOTE_REPLY, message.source)
            return
        if self._leased() and not message.flag and self.leader != message.source:
            return  # a leader is alive here; a real vote would only depose it
        if message.term > self.term:
            self._follow(message.term, None)
        if self.fenced or self.vote not in (None, message.source) or not self._log_allows(message):
            self._say(Kind.VOTE_REPLY, message.source)
            return
        if self.vote is None:
            self._set_hard_state(self.term, message.source)
        if self.role is Role.PRECANDIDATE:
            self._follow(self.term, None)  # having helped another, its own straw poll is over
        self._timer.wait_on()
        self._out.event("voted", term=self.term, candidate=message.source)
        self._say(
            Kind.VOTE_REPLY, message.source, position=message.position, position_term=message.position_term,
            granted=True, after_sync=True,
        )  # fmt: skip

    def _on_vote_reply(self, message: Message) -> None:
        # A vote is given to a log: one won by an earlier life of this node, with a longer log, is not ours.
        own_log = (message.position_term, message.position) == (self.epochs.last_term, self.end)
        if self.role is Role.CANDIDATE and message.granted and own_log and self._counts(message):
            self._count_vote(message.source)

    def _on_campaign_now(self, message: Message) -> None:
        if self.role is not Role.LEADER and self._may_campaign():
            self._out.event("told_to_campaign", by=message.source)
            self._campaign(transfer=True)

    # ---- the follower's side -------------------------------------------------------------------------------------

    def _on_append(self, message: Message) -> None:
        self._follow_leader(message)
        if not self.membership.members:
            self._reject(message, fresh=True)
            return
        prev, end = message.position, message.end
        if prev > self.commit:  # below commit every leader agrees with us
            if prev > self.end or self.epochs.term_before(prev) != message.position_term:
                self._reject(message, fresh=False)
                return
        self._take_bytes(message, max(prev, self.commit))
        self._proved = max(self._proved, end, self.commit)
        self._follow_commit(message.commit)
        if self.durable >= self._proved:
            self._ack(Kind.ACK, 0)  # nothing new to sync; otherwise the finished sync answers

    def _take_bytes(self, message: Message, start: LogPosition) -> None:
        """Write what is new of the message's extent; truncate only at the first byte whose term differs."""
        overlap = min(message.end, self.end)
        if start < overlap:
            different = self.epochs.first_difference(message.runs, start, overlap)
            if different is not None:
                self._truncate(different)
        if message.end <= self.end:
            return
        position = self.end
        self._out.writes.append(
            Write(position, message.end, message.runs[-1][0], WriteKind.RAW, message.payload, message.position)
        )
        for index, (term, at) in enumerate(message.runs):
            run_end = message.runs[index + 1][1] if index + 1 < len(message.runs) else message.end
            if run_end > self.end:
                self.epochs.append(term, LogPosition(max(at, self.end)), run_end)
        for at, membership in message.memberships:
            if at >= position:
                self.memberships.append(at, membership)

    def _truncate(self, to: LogPosition) -> None:
        assert to >= self.commit, ("truncation below commit", to, self.commit)
        assert not self._out.writes, "a truncation is durable before bytes are written over the old ones"
        self._out.event("truncated", to=to, end=self.end)
        self.epochs.truncate(to)
        self.memberships.truncate(to)
        self.durable = min(self.durable, to)
        self._generation += 1
        self._out.truncate_to = to

    def _reject(self, message: Message, *, fresh: bool) -> None:
        hint_term, hint_end = self.epochs.hint(message.position, message.position_term)
        self._out.event("rejected", prev=message.position, hint_term=hint_term, hint_end=hint_end, fresh=fresh)
        self._say(
            Kind.REJECT, message.source, position=message.position, position_term=message.position_term,
            end=self.end, hint_term=hint_term, hint_end=hint_end, flag=fresh,
        )  # fmt: skip

    def _on_beat(self, message: Message) -> None:
        self._follow_leader(message)
        self._follow_commit(message.commit)
        self._ack(Kind.BEAT_REPLY, message.beat)

    def _follow_commit(self, leader_commit: LogPosition) -> None:
        """Only what was proved in this term is known to be the leader's."""
        if min(leader_commit, self._proved) > self.commit:
            self.commit = min(leader_commit, self._proved)
        self._maybe_unfence()

    def _maybe_unfence(self) -> None:
        """A node that lost acknowledged bytes is whole again when it has as many, or what the group committed since."""
        if not self._lost_floor:
            return
        # This term began after the loss (see __init__), so its leader was elected without this node's vote and has
        # whatever was committed through this node's old acks.
        rejoined = self.epochs.term_before(self.commit) == self.term
        if self.durable >= self._lost_floor or (rejoined and self.durable >= self.commit and self._proved >= 0):
            self._lost_floor = LogPosition(0)
            self._out.event("unfenced", durable=self.durable)

    def _ack(self, kind: Kind, beat: int) -> None:
        assert self.leader is not None
        proved = self._proved
        durable = min(self.durable, proved)
        if self._hard_durable < self._hard_version or proved < 0:
            if kind is Kind.ACK:
                return  # an ack of a term that is not on disk would be forgotten by a crash
            durable = NOTHING_PROVED
        self._say(kind, self.leader, position=durable, end=proved if durable >= 0 else NOTHING_PROVED, beat=beat)

    def _on_handover(self, message: Message) -> None:
        self._follow_leader(message)
        start = message.position
        fresh = not self.membership.members
        if not fresh and start <= self.commit:
            self._proved = max(self._proved, self.commit)
        elif not fresh and start <= self.end and self.epochs.term_before(start) == message.position_term:
            self._proved = max(self._proved, start)  # the tail may be committed through us: keep it
            self.commit = max(self.commit, start)
        else:
            assert not self._out.writes and self._out.truncate_to is None, "a Ready is emptied before each message"
            self.epochs = EpochTable(start, message.position_term, (), start)
            self.memberships = MembershipHistory(message.memberships)
            self._generation += 1
            self.durable = self.commit = self._proved = start
            self._control_floor = message.end
            self._out.handover = message
            self._out.event("handed_over", start=start, control=message.end)
        self._ack(Kind.ACK, 0)

    # ---- the leader's side ---------------------------------------------------------------------------------------

    def _tick_leader(self) -> None:
        if self._transferee is not None and self._timer.now >= self._transfer_deadline:
            self._out.event("transfer_gave_up", target=self._transferee)
            self._transferee = None
        if self._timer.now % self._config.heartbeat_ticks:
            return
        self._beat_due = True
        for progress in self.progress.values():
            progress.check_silence(self._timer.now, self._config.heartbeat_ticks)
        alive = {n for n, p in self.progress.items() if self._timer.now - p.heard < self._config.election_ticks_min}
        if not has_majority(self.membership.voters, {*alive, self.node}):
            self._out.event("quorum_lost", term=self.term)
            self._follow(self.term, None)

    def _append_own(self, size: int, token: object, kind: WriteKind) -> LogPosition:
        blank, position = placement(self.end, size, self._config.segment_bytes)
        if blank:
            self._write_own(LogPosition(self.end + blank), None, WriteKind.BLANK)
        self._write_own(LogPosition(position + size), token, kind)
        return position

    def _write_own(self, end: LogPosition, token: object, kind: WriteKind) -> None:
        self._out.writes.append(Write(self.end, end, self.term, kind, token, self.end))
        self.epochs.append(self.term, self.end, end)

    def _renew_progress(self) -> None:
        """One belief per other member of the newest membership; a new incarnation starts from nothing."""
        fresh: dict[NodeId, Progress] = {}
        for node in self.membership.nodes:
            incarnation = self.membership.incarnations[node]
            if node != self.node:
                old = self.progress.get(node)
                kept = old is not None and old.incarnation == incarnation
                fresh[node] = old if kept and old else Progress(incarnation, self.end, self._timer.now)
        self.progress = fresh

    def _counts(self, message: Message) -> bool:
        """What counts toward a majority must come from the incarnation that the membership names."""
        return self.membership.incarnations.get(message.source) == message.incarnation

    def _answering(self, message: Message) -> Progress | None:
        if self.role is not Role.LEADER or not self._counts(message):
            return None
        progress = self.progress.get(message.source)
        if progress is not None:
            progress.heard = self._timer.now
        return progress

    def _on_ack(self, message: Message) -> None:
        progress = self._answering(message)
        if progress is not None and progress.accepted(message.position, message.end, self._timer.now):
            self._advance_commit()
            self._maybe_campaign_now(message.source)

    def _on_beat_reply(self, message: Message) -> None:
        progress = self._answering(message)
        if progress is None:
            return
        progress.beat = max(progress.beat, message.beat)
        if progress.accepted(message.position, message.end, self._timer.now):
            self._advance_commit()
        self._maybe_campaign_now(message.source)
        self._answer_reads()

    def _on_reject(self, message: Message) -> None:
        progress = self._answering(message)
        if progress is None:
            return
        next_position = None if message.flag else self._agreeing_position(message.hint_term, message.hint_end)
        progress.rejected(message.position, next_position, self._timer.now)

    def _agreeing_position(self, hint_term: Term, hint_end: LogPosition) -> LogPosition | None:
        """Where to probe next; None when that lies below the log start: one round trip per divergent epoch."""
        own_end = self.epochs.end_of(hint_term)
        target = self.epochs.end_below(hint_term) if own_end is None else min(own_end, hint_end)
        return target if target is not None and target >= self.epochs.start else None

    def _advance_commit(self) -> None:
        matched = {node: progress.match for node, progress in self.progress.items()}
        matched[self.node] = self.durable
        reached = majority_position(self.membership.voters, matched)
        if reached <= self.commit or self.epochs.term_before(reached) != self.term:
            return  # an older term's bytes are committed only through a byte of this term (figure 8)
        self.commit = reached
        if self.memberships.latest_position < self.commit and self.node not in self.membership.voters:
            self._bow_out()

    def _bow_out(self) -> None:
        """The own removal is committed: say so, and let the best voter lead without waiting for a timeout."""
        self._out.event("removed", term=self.term)
        for node in self.progress:
            self._say(Kind.BEAT, node, commit=self.commit, beat=self._beat)
        self._say(Kind.CAMPAIGN_NOW, max(self._electors(), key=lambda node: self.progress[node].match))
        self._follow(self.term, None)

    def _caught_up(self, node: NodeId) -> bool:
        progress = self.progress.get(node)
        return progress is not None and progress.caught_up(self.end - self._config.in_flight_bytes_max)

    def _answer_reads(self) -> None:
        beats = {node: progress.beat for node, progress in self.progress.items()}
        self._out.reads.extend(self._reads.confirmed(self.node, self._beat, self.membership.voters, beats))

    def _maybe_campaign_now(self, target: NodeId) -> None:
        if target == self._transferee and self.progress[target].match == self.end:
            self._say(Kind.CAMPAIGN_NOW, target)

    def _send_owed(self) -> None:
        """Heartbeats first: they never wait behind bulk."""
        if self._beat_due:
            self._beat_due = False
            self._beat += 1
            for node in self.progress:
                self._say(Kind.BEAT, node, commit=self.commit, beat=self._beat)
            self._commit_told = self.commit
            self._answer_reads()
        for node, progress in self.progress.items():
            sent = self._send_bytes(node, progress)
            if not sent and self.commit > self._commit_told and progress.mode is Mode.REPLICATE:
                self._say(Kind.BEAT, node, commit=self.commit, beat=self._beat)
        self._commit_told = self.commit

    def _send_bytes(self, node: NodeId, progress: Progress) -> bool:
        if progress.mode is not Mode.REPLICATE:
            if progress.asked:
                return False
            progress.asking(self._timer.now)
            # Below the log start the start itself is asked about: only who refuses that needs a hand-over.
            progress.next = max(progress.next, self.epochs.start)
            if progress.mode is Mode.HANDOVER:
                progress.handing_over(self.epochs.start, self.commit)
                self._say_handover(node)
            else:
                self._say_append(node, progress.next, self._cut(progress.next))
            return True
        sent = False
        progress.sending(self._timer.now)
        progress.next = max(progress.next, self.epochs.start)
        while progress.next < self.end and progress.next - progress.match < self._config.in_flight_bytes_max:
            end = self._cut(progress.next)
            self._say_append(node, progress.next, end)
            progress.next = end
            sent = True
        return sent

    def _cut(self, start: LogPosition) -> LogPosition:
        """Where an append that begins at `start` ends."""
        bytes_max = self._config.append_bytes_max
        if self.end - start <= bytes_max:
            return self.end
        if not self._out.writes or start < self._out.writes[0].position:
            return LogPosition(self._log.boundary(start, bytes_max))
        ends = [write.end for write in self._out.writes if write.end > start]  # not in the log yet: nobody else knows
        return max((end for end in ends if end - start <= bytes_max), default=ends[0])

    def _say_append(self, node: NodeId, start: LogPosition, end: LogPosition) -> None:
        self._say(
            Kind.APPEND, node, position=start, position_term=self.epochs.term_before(start), end=end,
            commit=self.commit, runs=self.epochs.runs(start, end),
        )  # fmt: skip

    def _say_handover(self, node: NodeId) -> None:
        """The membership sent is the one in force at the log start, not the latest."""
        start = self.epochs.start
        self._say(
            Kind.HANDOVER, node, position=start, position_term=self.epochs.base_term,
            memberships=(self.memberships.in_force_at(start),),
        )  # fmt: skip

    # ---- small things --------------------------------------------------------------------------------------------

    def _electors(self) -> Sequence[NodeId]:
        return sorted(self.membership.voters - {self.node})

    def _set_hard_state(self, term: Term, vote: NodeId | None) -> None:
        assert (term > self.term) or (term == self.term and self.vote is None), (term, self.term, self.vote, vote)
        self.term, self.vote = term, vote
        self._hard_version += 1

    def _say(
        self, kind: Kind, target: NodeId, *, term: Term | None = None, after_sync: bool = False, **fields: Any
    ) -> None:
        message = Message(kind, self.node, target, self.term if term is None else term, self.incarnation, **fields)
        (self._out.after_sync if after_sync else self._out.messages).append(message)


_FROM_LEADERS = frozenset({Kind.APPEND, Kind.BEAT, Kind.HANDOVER})
_HANDLERS: dict[Kind, Callable[[RaftCore, Message], None]] = {
    Kind.PREVOTE: RaftCore._on_prevote,
    Kind.PREVOTE_REPLY: RaftCore._on_prevote_reply,
    Kind.VOTE: RaftCore._on_vote,
    Kind.VOTE_REPLY: RaftCore._on_vote_reply,
    Kind.APPEND: RaftCore._on_append,
    Kind.ACK: RaftCore._on_ack,
    Kind.REJECT: RaftCore._on_reject,
    Kind.BEAT: RaftCore._on_beat,
    Kind.BEAT_REPLY: RaftCore._on_beat_reply,
    Kind.HANDOVER: RaftCore._on_handover,
    Kind.CAMPAIGN_NOW: RaftCore._on_campaign_now,
}
