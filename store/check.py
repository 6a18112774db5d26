"""Is this store whole? Everything on disk is verified, offline, and nothing is changed.

    small records (both copies)  --+
    log: crc, chain, terms, preambles --+--> findings (damage) and notes (harmless, and why)
    derived files == a rebuild   --+

Law: what a start would repair by itself without losing anything is a note, if a crash may leave it so; else it is a
finding, with the file, the place and who can repair it. Derived files are held against a rebuild strictly up to the
control snapshot. Above it units may be missing, and after a crash they may be anything, since nothing was promised to
be synced. A torn tail above the durable watermark ends the log and is no damage. Memory does not grow with the log.
Does not know: commands and topics (`Topics` does), how to repair, what people want to see.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol, TypeVar

from model.errors import NotAStore
from store import consumequeue, identity, snapshot
from store.comparison import ComparingDisk
from store.config import StoreConfig
from store.derived import Derived
from store.derivedcheck import Extent, judge_derived
from store.disk import Disk
from store.entry import CorruptEntry, EntryKind, Header
from store.hardstate import DamagedState, HardState, HardStateFile, WatermarkFile, Watermarks
from store.identity import StoreIdentity
from store.preamble import Preamble, parse_preamble
from store.readonly import walk_entries
from store.scan import scan
from store.segment import segment_bases, segment_name
from store.snapshot import ControlSnapshot

T = TypeVar("T")
DIRTY_FILES_MAX = 200  # open files of the rebuild; far below the usual limit of 1,024


class Repair(Enum):
    """Who can make it whole again."""

    ITSELF = "repaired by the node itself at its next start"
    REBUILD = "repairable by the node itself: make an empty file config/doubt.1 and start it; it rebuilds these files"
    PEER = "repairable from a peer: start the node in its group; it stays fenced until a peer has sent these bytes"
    ANEW = "not repairable in place: empty the directory and start the node as a new member; its peers have the data"
    NOBODY = "not repairable: every replica holds the same bytes; keep the files and report this"


@dataclass(frozen=True, slots=True)
class Finding:
    file: str
    position: int | None  # in the log for commitlog files, else in the file; None: the file as a whole
    problem: str
    means: str
    repair: Repair

    def __str__(self) -> str:
        place = "" if self.position is None else f" at {self.position}"
        return f"{self.file}{place}: {self.problem}; {self.means}; {self.repair.value}"


class Contradiction(Exception):
    """An entry that the replicated state cannot follow."""


class Topics(Protocol):
    """The replicated state, as far as derived files depend on it."""

    def wanted(self, topic: str, position: int) -> bool:
        """Whether messages of this topic at this position belong to the topic that exists at the snapshot."""

    def apply(self, position: int, end: int, preamble: Preamble) -> tuple[str, ...]:
        """Bring an entry above the snapshot into force; the topics it deletes. Contradiction: it makes no sense."""


@dataclass(slots=True)
class Report:
    """What was found."""

    root: str
    identity: StoreIdentity | None = None
    hard_state: HardState | None = None
    marks: Watermarks | None = None
    control: ControlSnapshot | None = None
    clean_stop: bool = False
    segments: int = 0
    start: int = 0
    end: int = 0
    chain_at_end: int = 0
    chain_at_commit: int | None = None  # None: commit lies outside of what verifies
    entries: int = 0
    messages: int = 0
    runs: list[tuple[int, int]] = field(default_factory=list)  # (term, start)
    memberships: list[tuple[int, bytes]] = field(default_factory=list)
    topics: int = 0  # with messages
    queues: int = 0
    derived_files: int = 0
    torn_bytes: int = 0
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        return not self.findings


def check(disk: Disk, restore: Callable[[bytes], Topics]) -> Report:
    """Look at everything. NotAStore, NewerFormat, DiskError: there is nothing here that can be judged."""
    report = Report(disk.root, clean_stop=not disk.exists("abort"))
    if not _check_identity(disk, report):
        return report
    _check_records(disk, report)
    if not _check_snapshots(disk, report):
        return report
    assert report.identity is not None
    _LogCheck(disk, report, report.identity.shape, restore).run()
    return report


# Small records.


def _check_identity(disk: Disk, report: Report) -> bool:
    try:
        report.identity = identity.load(disk)
    except DamagedState as error:
        means = "whose store this is cannot be told, so nothing else can be judged"
        report.findings.append(Finding(identity.NAMES[0], None, error.happened, means, Repair.ANEW))
        return False
    if report.identity is None:
        content = "is empty" if not disk.list("") else f"holds no {identity.NAMES[0]}"
        raise NotAStore(f"{disk.root!r} {content}")
    intact = identity.encode(report.identity)
    for name in identity.NAMES:
        if not disk.exists(name) or disk.read(name) != intact:
            _one_copy(report, name, disk.exists(name))
    return True


def _check_records(disk: Disk, report: Report) -> None:
    hard, marks = HardStateFile(disk), WatermarkFile(disk)
    lost = "what this node voted is lost, it could vote twice"
    report.hard_state = _check_mirrored(disk, report, hard, hard.peek, lost)
    lost = "how much of the log was once synced is lost, so damage would look like a torn tail"
    report.marks = _check_mirrored(disk, report, marks, marks.peek, lost)


def _check_mirrored(
    disk: Disk, report: Report, record: HardStateFile | WatermarkFile, peek: Callable[[], T | None], lost: str
) -> T | None:
    try:
        found = peek()
    except DamagedState as error:
        report.findings.append(Finding(record.NAMES[0], None, error.happened, lost, Repair.ANEW))
        return None
    if found is None:
        report.findings.append(Finding(record.NAMES[0], None, "missing, and so is its copy", lost, Repair.ANEW))
        return None
    for name in record.damaged:
        _one_copy(report, name, disk.exists(name))
    return found


def _check_snapshots(disk: Disk, report: Report) -> bool:
    """False: the log cannot be judged, because where it starts is not known."""
    try:
        report.control = snapshot.load_newest(disk)
    except DamagedState as error:
        means = "the replicated state and the start of the log are not known here, so nothing else can be judged"
        file = error.happened.split(" ", 1)[0].rstrip(":")
        report.findings.append(Finding(file, None, error.happened, means, Repair.ANEW))
        return False
    damaged = snapshot.damaged_copies(disk)
    for name in damaged:
        _one_copy(report, name, True)
    if report.control is None:
        report.notes.append("no control snapshot: this node has not joined a group yet")
        return True
    names = disk.list(snapshot.DIRECTORY)
    newest = f"{report.control.position:020d}"
    for name in (f"{newest}.0", f"{newest}.1"):
        if name not in names:
            if len(names) > 1:  # an older one is left: the write was cut short before the older one could go
                report.notes.append(f"{snapshot.DIRECTORY}/{name} is missing: its write was cut short by a crash")
            else:
                _one_copy(report, f"{snapshot.DIRECTORY}/{name}", False)
    return True


def _one_copy(report: Report, name: str, present: bool) -> None:
    problem = "this copy does not verify" if present else "this copy is missing"
    report.findings.append(Finding(name, None, problem, "its twin is intact, nothing is lost", Repair.ITSELF))


# The log, and what is derived from it.


class _LogCheck:
    """One walk over the log."""

    def __init__(
        self, disk: Disk, report: Report, config: StoreConfig, restore: Callable[[bytes], Topics]
    ) -> None:
        self._disk = disk
        self._report = report
        self._config = config
        control, marks = report.control, report.marks
        self._snapshot_at = 0 if control is None else control.position
        self._durable = self._snapshot_at if marks is None else marks.durable
        self._topics = None if control is None else restore(control.state)
        self._chains: dict[int, int | None] = dict.fromkeys({self._snapshot_at, self._durable})  # at places of interest
        if marks is not None:
            self._chains[marks.commit] = None
        self._comparing = ComparingDisk(disk)
        self._derived: Derived | None = Derived(self._comparing, config)  # None: no longer comparable
        self._deleted: set[str] = set()  # topics deleted above the snapshot

    def run(self) -> None:
        report, control = self._report, self._report.control
        chain, report.start = (0, 0) if control is None else (control.base_chain, control.log_start)
        report.end, report.chain_at_end = report.start, chain
        report.memberships = [] if control is None else [control.memberships[0]]
        self._pass(report.start, chain)
        doubts = [name for name in self._disk.list("config") if name.startswith("doubt.")]
        if doubts or (control is not None and self._durable < control.position):
            report.notes.append("the queues and the index were to be rebuilt: the next start does it; not judged")
            self._derived = None
        try:
            for header, body in walk_entries(self._disk, self._config.segment_bytes, report.start, chain):
                self._entry(header, body)
        except CorruptEntry as error:
            self._ended(error)
        self._compare_records()
        if self._derived is not None:
            if report.end < self._snapshot_at:
                report.notes.append(f"the queues and the index could be compared only up to {report.end}")
            self._judge_derived()

    def _judge_derived(self) -> None:
        report, files = self._report, self._comparing.files
        queues = {tuple(name.split("/")[1:3]) for name in files if name.startswith(consumequeue.DIRECTORY)}
        report.derived_files, report.queues = len(files), len(queues)
        report.topics = len({topic for topic, _ in queues})
        extent = Extent(
            report.start, report.end, self._snapshot_at, not report.clean_stop, frozenset(self._deleted)
        )
        damage, harmless = judge_derived(self._comparing, extent)
        means = "readers of this file get wrong or no messages, the messages themselves are in the log"
        report.findings += [Finding(name, at, problem, means, Repair.REBUILD) for name, at, problem, _ in damage]
        if harmless:
            report.notes.append(
                f"{harmless} derived files hold something that was never synced or is below the start of the log: the "
                "next start clears it away"
            )

    def _entry(self, header: Header, body: memoryview) -> None:
        report = self._report
        if not report.runs or header.term != report.runs[-1][0]:
            before = report.runs[-1][0] if report.runs else report.control.base_term if report.control else 0
            if header.term < before:
                raise CorruptEntry(header.position, f"term {header.term} after term {before}")
            report.runs.append((header.term, header.position))
        if header.kind == EntryKind.MEMBERSHIP:
            report.memberships.append((header.position, bytes(body)))
        elif header.kind == EntryKind.DATA:
            self._data(header, body)
        report.entries += 1
        report.end, report.chain_at_end = header.end, header.chain
        self._pass(header.end, header.chain)

    def _data(self, header: Header, body: memoryview) -> None:
        try:
            preamble = parse_preamble(body)
            self._report.messages += len(preamble.lengths)
            if self._derived is not None:
                self._dispatch(self._derived, header, preamble)
        except (CorruptEntry, Contradiction, DamagedState, ValueError) as error:
            problem = error.reason if isinstance(error, CorruptEntry) else str(error)
            means = "the crc fits, so it was written like this: no replica can apply it"
            self._find(header.position, problem, means, Repair.NOBODY)
            self._derived = None

    def _dispatch(self, derived: Derived, header: Header, preamble: Preamble) -> None:
        position, topics = header.position, self._topics
        assert topics is not None, "a log has a control snapshot"
        if position < self._snapshot_at:
            derived.dispatch(position, header.time_ms, preamble, lambda topic: topics.wanted(topic, position))
        else:
            self._comparing.relax(crashed=not self._report.clean_stop)
            for topic in topics.apply(position, header.end, preamble):
                self._deleted.add(topic)
                derived.delete_topic(topic)
            derived.dispatch(position, header.time_ms, preamble)
        if derived.dirty_count > DIRTY_FILES_MAX:
            derived.flush()

    def _pass(self, position: int, chain: int) -> None:
        if position in self._chains:
            self._chains[position] = chain

    def _ended(self, error: CorruptEntry) -> None:
        report, size = self._report, self._config.segment_bytes
        bases = segment_bases(self._disk)
        live = [base for base in bases if base // size >= report.start // size]
        report.segments = len([base for base in live if base < report.end])
        if len(live) < len(bases):
            report.notes.append(f"{len(bases) - len(live)} segments below the start of the log wait to be removed")
        if report.end >= self._durable:
            report.torn_bytes = scan(self._disk, size, report.end, report.chain_at_end, 0).torn_bytes
            if report.torn_bytes:
                report.notes.append(
                    f"{report.torn_bytes} bytes above the end {report.end} do not verify: a torn tail, or left over "
                    "from before; never synced, so nothing that was acknowledged"
                )
            return
        means = f"bytes below the durable watermark {self._durable} are lost on this node"
        self._find(report.end, error.reason, means, Repair.PEER)
        for base in live:  # every segment begins with an entry, so the walk can go on there
            if report.end < base < self._durable:
                self._check_segment(base, means)

    def _check_segment(self, base: int, means: str) -> None:
        try:
            for header, _ in walk_entries(self._disk, self._config.segment_bytes, base, None):
                if header.end >= min(base + self._config.segment_bytes, self._durable):
                    return
        except CorruptEntry as error:
            self._find(error.position, error.reason, means, Repair.PEER)

    def _compare_records(self) -> None:
        """What the small records say of the log, against the log."""
        report, control, marks = self._report, self._report.control, self._report.marks
        means = "the record and the log do not belong together"
        if marks is not None:
            report.chain_at_commit = self._chains[marks.commit]
            for what, at in (("commit", marks.commit), ("durable", marks.durable)):
                if report.start <= at <= report.end and self._chains[at] is None:
                    problem = f"the {what} watermark {at} is not an entry boundary"
                    report.findings.append(Finding(WatermarkFile.NAMES[0], None, problem, means, Repair.PEER))
            chain = self._chains[marks.durable]
            if chain not in (None, marks.chain):
                problem = f"the chain crc {marks.chain:08x} at {marks.durable} is {chain:08x} in the log"
                report.findings.append(Finding(WatermarkFile.NAMES[0], None, problem, means, Repair.PEER))
        synced = [term for term, start in report.runs if start < self._durable]
        if report.hard_state is not None and synced and report.hard_state.term < synced[-1]:
            problem = f"term {report.hard_state.term} is below term {synced[-1]} of the log"
            report.findings.append(Finding(HardStateFile.NAMES[0], None, problem, means, Repair.ANEW))
        if control is None or report.end < control.position:
            return
        ours = (
            ("chain crc", control.chain, self._chains[control.position]),
            ("terms", control.epochs, tuple(run for run in report.runs if run[1] < control.position)),
            ("memberships", control.memberships, tuple(row for row in report.memberships if row[0] < control.position)),
        )
        for what, said, found in ours:
            if said != found:
                file = f"{snapshot.DIRECTORY}/{control.position:020d}.0"
                problem = f"its {what} {said!r} are {found!r} in the log"
                report.findings.append(Finding(file, None, problem, means, Repair.ANEW))

    def _find(self, position: int, problem: str, means: str, repair: Repair) -> None:
        size = self._config.segment_bytes
        file = segment_name(position // size * size)
        self._report.findings.append(Finding(file, position, problem, means, repair))
