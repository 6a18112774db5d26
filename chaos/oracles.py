"""White-box eyes: what a black box can only suspect, these see at once, while the run goes.

    P4  committed bytes never change: every node's newly committed bytes against the one committed log
    P9  term, commit and applied never go back within a life; persisted term and watermarks not over restarts either
    W1  what a leader commits is on the durable disks of a majority of its voters
    W2  a core's epochs equal a scan of its log       W3  so do its memberships       W4  terms never fall along the log
    W5  an ack leaves only when its bytes are durable
    W6  a vote, a vote request or an ack leaves only when its term (and vote) is durable
    W7  a leader commits only up to a byte of its own term (figure 8 of the paper)
    W8  nobody finds damage where nobody did any: a watermark or checkpoint must not promise what a crash can take

Law: oracles look at disks and cores and never change them. The first node to commit a byte defines it.
Does not know: clients, faults."""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import itemgetter

from broker.codec import decode_membership
from broker.ports import Letter
from broker.replica import Replica
from chaos.checker import Stored
from chaos.simdisk import SimDisk
from chaos.simmessages import stored_messages
from dledger.core import RaftCore, Role
from dledger.membership import Membership
from dledger.messages import Kind, Message
from store.consumequeue import DIRECTORY as CONSUMEQUEUE
from store.disk import DiskError
from store.entry import CorruptEntry, Walk
from store.hardstate import DamagedState, HardState, HardStateFile, WatermarkFile, Watermarks
from store.segment import segment_name

Report = Callable[[str, str], None]  # property, sentence
_ACKS = (Kind.ACK, Kind.BEAT_REPLY)


@dataclass
class Watched:
    """What the oracles remember of one node over its lives."""

    checked: int = 0  # committed bytes below this were compared with the committed log
    durable_to: int = 0  # bytes below this were seen durable since the last truncation
    term: int = 0
    commit: int = 0
    applied: int = 0
    sealed_term: int = -1  # the term last seen in the durable hard state
    handed_over: bool = False  # one arrived since the last start: if it breaks off, it leaves watermarks of 0
    hard: HardState | None = None  # persisted, at the last start
    marks: Watermarks | None = None


@dataclass
class Oracles:
    """One committed log, and every node held against it."""

    report: Report
    segment_bytes: int
    committed: bytearray = field(default_factory=bytearray)
    watched: dict[str, Watched] = field(default_factory=dict)
    _history: Walk = field(default_factory=lambda: Walk(0, 0))  # of the committed log, from its first byte
    _acked: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)  # by incarnation: term, position
    flipped: dict[str, set[int]] = field(default_factory=dict)  # node -> where rot struck: found by a scrub, in time

    # ---- a node's life -------------------------------------------------------------------------------------------

    def born(self, node: str, disk: SimDisk, *, empty: bool) -> None:
        """A node is about to start on this disk."""
        old = self.watched.get(node, Watched())
        new = self.watched[node] = Watched()
        if empty:
            return
        try:
            new.hard, new.marks = HardStateFile(disk).peek(), WatermarkFile(disk).peek()
        except DamagedState as error:
            self.report("P9", f"{node}: {error}")
            return
        if old.hard is not None and (new.hard is None or new.hard.term < old.hard.term):
            self.report("P9", f"{node}: persisted term went back from {old.hard} to {new.hard}")
        if old.sealed_term > (new.hard.term if new.hard is not None else -1):
            self.report("P9", f"{node}: acted durably in term {old.sealed_term}, and starts with {new.hard}")
        if not old.handed_over and old.marks is not None and (new.marks is None or new.marks.commit < old.marks.commit):
            self.report("P9", f"{node}: persisted commit went back from {old.marks} to {new.marks}")
        if new.marks is not None and new.marks.commit > len(self.committed):
            self.report("P9", f"{node}: persisted commit {new.marks.commit} is beyond {len(self.committed)}")

    def truncated(self, node: str, to: int) -> None:
        """The node cut its log, or had it replaced from there on."""
        watched = self.watched[node]
        watched.durable_to = min(watched.durable_to, to)

    def found_damage(self, node: str, event: str, reason: str) -> None:
        """The node says that bytes do not verify; met while it runs, it begins anew on what does, as after a crash."""
        old = self.watched[node]
        if event == "damage_met":
            self.watched[node] = Watched(term=old.term, sealed_term=old.sealed_term, hard=old.hard, marks=old.marks)
        # An index asks for a rebuild also after a torn tail, and a rebuild that a crash cut short is no damage.
        if node not in self.flipped and (event != "derived_files_dropped" or reason.startswith(CONSUMEQUEUE)):
            self.report("W8", f"{node} says {event}, and its disk never rotted: {reason}")

    # ---- after every turn ----------------------------------------------------------------------------------------

    def turned(self, node: str, replica: Replica, disk_of: Callable[[str, int], SimDisk | None]) -> bool:
        """Look at a node after its turn; True when it committed something nobody had committed before."""
        core, watched = replica.core, self.watched[node]
        if core is None:
            return False
        term, commit, applied = core.term, core.commit, replica.applied
        if term < watched.term or commit < watched.commit or applied < watched.applied:
            self.report("P9", f"{node}: (term, commit, applied) went back from "
                              f"{(watched.term, watched.commit, watched.applied)} to {(term, commit, applied)}")
        if applied > commit:
            self.report("P9", f"{node}: applied {applied} is beyond commit {commit}")
        watched.term, watched.applied = term, applied
        if commit == watched.commit and watched.checked >= commit:
            return False
        watched.commit = commit
        return self._compare(node, core, replica, watched, disk_of)

    def _compare(
        self, node: str, core: RaftCore, replica: Replica, watched: Watched,
        disk_of: Callable[[str, int], SimDisk | None],
    ) -> bool:  # fmt: skip
        start, commit, known = max(watched.checked, replica.log.start), core.commit, len(self.committed)
        watched.checked = commit
        if start >= commit:
            return False
        if start > known:
            self.report("P4", f"{node}: its log begins at {start}, and nobody committed beyond {known}")
            return False
        ours = replica.log.read(start, commit)
        theirs = self.committed[start:commit]
        if ours[: len(theirs)] != theirs:
            differ = (start + i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b)
            at = next((at for at in differ if at not in self.flipped.get(node, ())), -1)
            if at >= 0:
                self.report("P4", f"{node}: committed byte {at} differs (commit {commit}, term {core.term})")
                return False
        if commit <= known:
            return False
        self.committed += ours[known - start :]
        self._quorum(node, core, known, commit, disk_of)
        return True

    def _quorum(
        self, node: str, core: RaftCore, start: int, end: int, disk_of: Callable[[str, int], SimDisk | None]
    ) -> None:
        if core.role is Role.LEADER and core.epochs.term_before(core.commit) != core.term:
            self.report("W7", f"{node} commits up to {core.commit}, a byte of an older term than its own {core.term}")
        rows = core.memberships.rows  # one written in the same turn, above the commit, did not decide it
        deciding = [rows[-1][1], rows[-2][1]] if len(rows) > 1 and rows[-1][0] >= end else [core.membership]
        found = [self._holders(membership, core.term, start, end, disk_of) for membership in deciding]
        if all(2 * len(have) <= len(m.voters) for have, m in zip(found, deciding, strict=True)):
            self.report("W1", f"{node} committed [{start}, {end}) in term {core.term}, durable only at "
                              f"{found[0] or 'nobody'} of {sorted(deciding[0].voters)}")

    def _holders(
        self, membership: Membership, term: int, start: int, end: int, disk_of: Callable[[str, int], SimDisk | None]
    ) -> list[str]:
        """Voters whose disk has these bytes, or had them when they said so in this term and was wiped since."""
        have: list[str] = []
        for voter in sorted(membership.voters):
            disk = disk_of(voter, membership.incarnations[voter])
            acked_term, acked = self._acked.get((voter, membership.incarnations[voter]), (0, 0))
            if self.holds(disk, start, end) or (disk is None and acked_term == term and acked >= end):
                have.append(voter)
        return have

    def holds(self, disk: SimDisk | None, start: int, end: int) -> bool:
        """Whether the disk's durable bytes equal the committed log there."""
        known = bytes(self.committed[start:end])
        return disk is not None and durable_log(disk, self.segment_bytes, start, end) == known

    # ---- before a letter leaves ----------------------------------------------------------------------------------

    def leaving(self, letter: Letter, replica: Replica, disk: SimDisk) -> None:
        """A node sends this."""
        message = letter.body
        if not isinstance(message, Message):
            return
        if message.kind in _ACKS and message.position >= 0:
            self._ack_leaves(message, replica, disk)
        elif message.kind is Kind.VOTE or (message.kind is Kind.VOTE_REPLY and message.granted):
            candidate = message.source if message.kind is Kind.VOTE else message.target
            sealed = durable_hard_state(disk)
            # A later term on disk seals the vote too: this node can never vote in the message's term again.
            if sealed is None or (sealed.term <= message.term and sealed != (message.term, candidate)):
                self.report("W6", f"{message.source} sends {message.kind.name} for {candidate} in term "
                                  f"{message.term}; its disk says {sealed}")
            else:
                self.watched[message.source].sealed_term = max(self.watched[message.source].sealed_term, sealed.term)

    def _ack_leaves(self, message: Message, replica: Replica, disk: SimDisk) -> None:
        node, watched = message.source, self.watched[message.source]
        if message.position > watched.durable_to:
            start = max(watched.durable_to, replica.log.start)
            if message.position > start:
                if durable_log(disk, self.segment_bytes, start, message.position) != replica.log.read(
                    start, message.position
                ):
                    self.report("W5", f"{node} acks {message.position}; [{start}, {message.position}) is not durable")
            watched.durable_to = message.position
        speaker = (message.source, message.incarnation)
        self._acked[speaker] = max(self._acked.get(speaker, (0, 0)), (message.term, message.position))
        if watched.sealed_term < message.term:
            sealed = durable_hard_state(disk)
            if sealed is None or sealed.term < message.term:
                self.report("W6", f"{node} acks {message.position} in term {message.term}; its disk says {sealed}")
            watched.sealed_term = message.term

    # ---- now and then --------------------------------------------------------------------------------------------

    def scan(self, node: str, replica: Replica) -> None:
        """Hold epochs and memberships against the bytes of the log."""
        core, log = replica.core, replica.log
        if core is None or log.end != core.end or log.start != core.epochs.start:
            return  # between two steps of a turn: the next sample sees it
        walk = Walk(log.start, None)
        try:
            walk.consume(log.read(log.start, log.end), 0)
        except CorruptEntry as error:
            name = "W4" if "after term" in error.reason else "W2"
            self.report(name, f"{node}: its log does not verify: {error}")
            return
        runs = core.epochs.runs(core.epochs.start, core.end)
        if walk.position != log.end or tuple(walk.runs) != tuple(runs):
            self.report("W2", f"{node}: epochs {runs}, a scan of [{log.start}, {log.end}) finds {walk.runs}")
        rows = core.memberships.rows
        found = [(at, decode_membership(body)) for at, body in walk.memberships]
        if [row for row in rows if row[0] >= log.start] != found:
            self.report("W3", f"{node}: memberships {rows}, a scan of [{log.start}, {log.end}) finds {found}")
        self._base(node, core, log.start)

    def _base(self, node: str, core: RaftCore, start: int) -> None:
        """What was in force at the log start, against the committed log."""
        if not 0 < start <= len(self.committed):
            return
        walk = self._history
        with memoryview(self.committed) as view:
            walk.consume(view, walk.position)
        term = walk.runs[bisect_left(walk.runs, start, key=itemgetter(1)) - 1][0]
        if term != core.epochs.base_term:
            self.report("W2", f"{node}: base term {core.epochs.base_term} at {start}, the log there has {term}")
        earlier = bisect_left(walk.memberships, start, key=itemgetter(0))
        if earlier:
            position, body = walk.memberships[earlier - 1]
            held: tuple[int, Membership] = core.memberships.in_force_at(core.epochs.start)
            if held != (position, decode_membership(body)):
                self.report("W3", f"{node}: {held} in force at {start}; the log has one at {position}")

    # ---- at the end ----------------------------------------------------------------------------------------------

    def stored(self) -> list[Stored]:
        """The messages of the committed log."""
        return list(stored_messages(self.committed))


def durable_log(disk: SimDisk, segment_bytes: int, start: int, end: int) -> bytes | None:
    """The log's durable bytes [start, end); None when a segment file is not there."""
    parts = []
    while start < end:
        offset = start % segment_bytes
        size = min(segment_bytes - offset, end - start)
        try:
            parts.append(disk.durable_bytes(segment_name(start - offset))[offset : offset + size])
        except DiskError:
            return None
        start += size
    return b"".join(parts)


class _Durable:
    """The durable bytes of a disk, as far as reading small records needs a Disk."""

    root = "durable image"

    def __init__(self, disk: SimDisk) -> None:
        self._disk = disk

    def exists(self, name: str) -> bool:
        try:
            self._disk.durable_bytes(name)
        except DiskError:
            return False
        return True

    def read(self, name: str) -> bytes:
        return self._disk.durable_bytes(name)


def durable_hard_state(disk: SimDisk) -> HardState | None:
    """The newest (term, vote) that a crash cannot take away."""
    try:
        return HardStateFile(_Durable(disk)).peek()  # type: ignore[arg-type]
    except DamagedState:
        return None


def durable_watermarks(disk: SimDisk) -> Watermarks | None:
    """The newest watermarks that a crash cannot take away."""
    try:
        return WatermarkFile(_Durable(disk)).peek()  # type: ignore[arg-type]
    except DamagedState:
        return None
