"""What must hold in a group of cores, checked from outside (history) and from inside (white box).

Law: history is enough to call a run wrong: one leader per term, and what one node called committed never changes.
White box finds the same bugs much sooner: it looks at disks and tables at every step.
Does not know: how the group was driven."""

from typing import TYPE_CHECKING

from chaos.coredisk import Entry, rows_of, runs_of
from dledger.core import RaftCore, Role
from dledger.messages import Kind, Message
from dledger.quorum import has_majority
from model.ids import LogPosition, NodeId, Term

if TYPE_CHECKING:
    from chaos.coregroup import CoreGroup, CoreNode


class Violation(AssertionError):
    """The group broke a promise."""


def demand(holds: bool, *facts: object) -> None:
    """Raise Violation unless it holds."""
    if not holds:
        raise Violation(" ".join(str(fact) for fact in facts))


class Oracle:
    """Remembers what was promised and compares."""

    def __init__(self, group: "CoreGroup", *, white_box: bool) -> None:
        self._group = group
        self._white_box = white_box
        self.leaders: dict[Term, NodeId] = {}
        self.committed: list[tuple[Entry, Term]] = []  # consecutive from 0, with the term of who committed first
        self._terms: dict[NodeId, Term] = {}  # highest term promised, over crashes, until the node is wiped
        self._seen_commit: dict[NodeId, LogPosition] = {}  # in this life

    @property
    def committed_end(self) -> LogPosition:
        """Where the committed log ends, as the best informed node knew."""
        return self.committed[-1][0].end if self.committed else LogPosition(0)

    def reborn(self, node: NodeId, *, wiped: bool) -> None:
        """The node starts a new life: commit may be lower, the term may not."""
        self._seen_commit.pop(node, None)
        if wiped:
            self._terms.pop(node, None)

    def look(self, node: "CoreNode") -> None:
        """Compare a node with everything known; called after each step."""
        core = node.core
        assert core is not None
        self._look_at_leader(core, node)
        self._look_at_commit(core, node)
        if self._white_box:
            self._look_inside(core, node)

    def _look_at_leader(self, core: RaftCore, node: "CoreNode") -> None:
        if core.role is not Role.LEADER:
            return
        first = core.term not in self.leaders
        demand(self.leaders.setdefault(core.term, core.node) == core.node, "two leaders in term", core.term)
        if first:  # completeness holds against commits of lower terms only: a late vote may elect an old-term leader
            for entry, term in self.committed:
                if term < core.term and entry.end > core.epochs.start:
                    demand(entry in node.disk.entries, "leader", core.node, "of term", core.term, "lacks", entry)

    def _look_at_commit(self, core: RaftCore, node: "CoreNode") -> None:
        before = self._seen_commit.get(core.node, LogPosition(0))
        demand(core.commit >= before, "commit of", core.node, "fell from", before, "to", core.commit)
        self._seen_commit[core.node] = core.commit
        demand(core.commit <= core.end, "commit beyond the end of", core.node)
        if core.commit == before:
            return
        if core.role is not Role.LEADER and core.commit > self.committed_end:
            demand(self.leaders.get(core.term) == core.node, core.node, "committed", core.commit, "before any leader")
        known_before = len(self.committed)
        known = {entry.position: entry for entry, _ in self.committed}
        for entry in node.disk.entries:
            if entry.position >= core.commit:
                break
            if entry.position in known:
                demand(known[entry.position] == entry, core.node, "committed", entry, "over", known[entry.position])
            elif entry.position >= before:
                demand(entry.position == self.committed_end, "a hole before", entry)
                self.committed.append((entry, core.term))
        if self._white_box and len(self.committed) > known_before:
            self._look_at_quorum(core)

    def _look_at_quorum(self, core: RaftCore) -> None:
        last = self.committed[-1][0]
        have = {
            name
            for name, incarnation in core.membership.incarnations.items()
            if self._group.disks[name, incarnation].holds(last)
        }
        demand(has_majority(core.membership.voters, have), last, "committed by", core.node, "is durable only on", have)

    def _look_inside(self, core: RaftCore, node: "CoreNode") -> None:
        disk, epochs = node.disk, core.epochs
        demand(core.term >= self._terms.get(core.node, 0), "term of", core.node, "fell to", core.term)
        self._terms[core.node] = max(self._terms.get(core.node, Term(0)), disk.hard.term)
        demand((epochs.start, epochs.end) == (disk.start, disk.end), "epochs of", core.node, "do not cover the log")
        scan = runs_of(disk.entries)
        demand(epochs.runs(epochs.start, epochs.end) == scan, "epochs of", core.node, "differ from a scan", scan)
        terms = [epochs.base_term, *(term for term, _ in scan)]
        demand(terms == sorted(terms), "terms fall along the log of", core.node, terms)
        rows = (*disk.base, *rows_of(disk.entries))
        demand(core.memberships.rows == rows, "memberships of", core.node, core.memberships.rows, "scan", rows)
        durable = [entry for entry in disk.entries if entry.end <= core.durable]
        demand(not durable or disk.holds(durable[-1]), core.node, "believes", core.durable, "is durable")

    def look_at_message(self, node: "CoreNode", message: Message) -> None:
        """What is promised to others must survive a crash of who promises."""
        if not self._white_box:
            return
        hard = node.disk.hard
        promised = message.kind is Kind.ACK or message.kind is Kind.BEAT_REPLY
        if promised and message.position > node.disk.start:
            demand(hard.term >= message.term, "ack of a term that is not on disk", message)
            last = [entry for entry in node.disk.entries if entry.end == message.position]
            demand(bool(last) and node.disk.holds(last[0]), "ack of bytes that are not on disk", message)
        if message.kind is Kind.VOTE or (message.kind is Kind.VOTE_REPLY and message.granted):
            vote = message.source if message.kind is Kind.VOTE else message.target
            demand(hard.term > message.term or hard == (message.term, vote), "vote not on disk", message)
