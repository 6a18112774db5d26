"""Damage to one node's files, case by case, and the verdict on what the node makes of it.

    base (built once) --> n0 and n2 run on copies of their disks --> per case: n1 starts on a damaged copy of its disk
                                                                      --> refused | repaired | harmless, or a Lie

Law: a case ends with n1 byte-identical to its peers (log, chain crc, state, derived files) and nothing damaged left on
its disk, or with one clear sentence. On the way there n1 never votes, leads or acknowledges on less than what it
acknowledged before it went down. Anything else is a Lie, and says which byte of which file."""

from collections import Counter
from collections.abc import Iterable, Iterator
from random import Random
from typing import Any, NamedTuple

from broker.opening import load_records
from broker.ports import Phase
from broker.replica import Replica
from chaos.simdisk import SimDisk
from model.errors import StoreError
from store import identity, snapshot
from store.hardstate import HardStateFile, WatermarkFile
from store.keyindex import HEADER, UNIT_BYTES
from tests.broker.group import COARSE, TINY, FaultyDisk, Group, disk_files

VICTIM = "n1"
STORE: dict[str, Any] = {"checkpoint_bytes": 1600, "scrub_bytes_per_second": 0}
EAGER = {VICTIM: {"scrub_bytes_per_second": 64 << 20}}  # only n1 looks at its files, and at all of them at every tick
TICKS_MAX = 40  # from a start to a settled group; an undamaged one needs two
INDEX_UNITS_AT = HEADER.size + 4 * TINY["index_slots"]
REPAIRS = ("repaired", "derived_files_dropped")
DERIVED = ("commitlog/", "consumequeue/", "index/")
Files = dict[str, bytes]


class Lie(AssertionError):
    """The node lost, changed or hid something."""


class Case(NamedTuple):
    name: str
    offset: int
    flip: int  # xor of the byte there; 0: the file ends there

    def apply(self, files: Files) -> Files:
        old = files[self.name]
        rest = bytes([old[self.offset] ^ self.flip]) + old[self.offset + 1 :] if self.flip else b""
        return {**files, self.name: old[: self.offset] + rest}


class Base(NamedTuple):
    """Disks of a group at rest."""

    files: dict[str, Files]
    clean: bool


def build(*, clean: bool) -> Base:
    """A log over two segments with several topics, keys, terms and memberships; n1 ends cleanly or by a power cut."""
    group = Group(raft=COARSE, **STORE).formed("n0")
    group.topic("a", 2)
    for number in range(3):
        group.put(topic="a", queue=number % 2, producer=b"p", sequence=number // 2, tag="red", keys="k1 k2")
    group.wipe("n2")  # comes back as a learner, then as a voter: two membership entries
    group.put(topic="a", queue=0, bodies=[b"x"] * 3, keys="k3")
    group.start("n2")
    group.until(lambda: group.votes("n2"), what="n2 votes again")
    group.lead("n2")
    group.topic("b", 1)
    for number in range(2):
        group.put(topic="b", bodies=[b"y" * 250] * 2, producer=b"q", sequence=number, keys=f"k{number}")
    group.lead("n0")
    for number in range(2):
        group.put(topic="a", queue=1, bodies=[b"z"] * 4, producer=b"foreign%d" % number, tag="blue")
        group.put(topic="b", bodies=[b"w"], keys="k1 k9")
    group.step(4)  # watermarks and checkpoints are on disk
    group.assert_equal()
    if clean:
        group.stop(VICTIM)
    else:
        group.crash(VICTIM)
    group.stop(*(name for name in group.nodes if name != VICTIM))
    return Base({name: disk_files(node.disk) for name, node in group.nodes.items()}, clean)


def cases(files: Files, flips: Iterable[int] = (1,), *, step: int = 1, cut: bool = True) -> Iterator[Case]:
    """Every byte in use of every file: changed, and the file cut there."""
    for name, data in sorted(files.items()):
        used = data.rstrip(b"\0") if name.startswith("commitlog/") else data
        for offset in range(0, len(used), step):
            yield from (Case(name, offset, flip) for flip in flips)
            if cut:
                yield Case(name, offset, 0)


class Sweep:
    """Two healthy nodes that stay up, and one that is started anew for each case."""

    def __init__(self, base: Base) -> None:
        self.base = base
        self.verdicts: Counter[str] = Counter()
        self.whole: Files = {}  # n1's files after an undamaged life
        self._begin()
        self.run(None)

    def _begin(self) -> None:
        """All three run until n1 has everything; then it goes down, and its disk is what the cases damage."""
        disks = {name: _disk(files) for name, files in self.base.files.items()}
        self.group = group = Group(raft=COARSE, disks=disks, only=EAGER, **STORE)
        group.start()
        group.lead("n0")
        group.converge()
        group.step(3)  # the watermarks are on disk
        core = group[VICTIM].core
        assert core is not None
        self.acknowledged = core.durable
        if self.base.clean:
            group.stop(VICTIM)
        else:
            group.crash(VICTIM)
        self.files = disk_files(disks[VICTIM])
        hard = HardStateFile(disks[VICTIM]).peek()
        assert hard is not None
        self.hard = hard
        self._term = self._lead()
        self._intact = load_records(_disk(self.files), group.config(VICTIM), Random(0))

    def _lead(self) -> int:
        core = self.group.lead().core
        assert core is not None
        return core.term

    def run(self, case: Case | None) -> str:
        """The verdict on one case; Lie when there is none."""
        node = self.group.nodes[VICTIM]
        node.disk = _disk(case.apply(self.files) if case is not None else self.files)
        try:
            verdict = self._judge(case)
        except Exception as error:
            self._begin()
            raise Lie(f"{case}: {type(error).__name__}: {error}") from error
        node.replica = None
        self.group.letters.clear()
        self.verdicts[verdict] += 1
        if self._lead() != self._term:  # the healthy ones stay what they were, or the next case would meet another log
            self._begin()
        return verdict

    def run_record(self, case: Case) -> str:
        """The verdict on damage in a mirrored record, cheaply: if what is loaded is the same as without damage, and the
        damaged copy is whole again or as it was, then so is everything that follows, for it reads nothing else."""
        disk = _disk(case.apply(self.files))
        try:
            found = load_records(disk, self.group.config(VICTIM), Random(0))
        except Exception as error:
            raise Lie(f"{case}: {type(error).__name__}: {error}") from error
        intact = self._intact
        for part in ("identity", "hard_state", "marks", "snapshot"):
            if getattr(found, part) != getattr(intact, part):
                raise Lie(f"{case}: {part} is {getattr(found, part)}")
        mended = disk.read(case.name) == self.files[case.name] or case.name.startswith(snapshot.DIRECTORY)
        if not mended:
            raise Lie(f"{case}: it was not mended")
        self.verdicts["harmless"] += 1
        return "harmless"

    def _judge(self, case: Case | None) -> str:
        group, node = self.group, self.group.nodes[VICTIM]
        try:
            group.start(VICTIM)
        except StoreError as error:
            return _refused(str(error))
        quiet = events = 0
        for _ in range(TICKS_MAX):
            replica = group[VICTIM]
            if replica.phase is Phase.STOPPED:
                return _refused(replica.failure or "")
            self._watch(replica)
            group.step()
            self._watch(replica)
            quiet = quiet + 1 if group.converged and len(node.events) == events else 0
            events = len(node.events)
            if (quiet and self._looks_whole(node.disk)) or quiet > 4:  # n1 has looked at everything twice
                return self._compare(node.disk, case)
        raise Lie(f"not settled after {TICKS_MAX} ticks: {group.describe()}")

    def _watch(self, replica: Replica) -> None:
        """What a node that takes part in consensus must have."""
        core = replica.core
        if core is None or core.fenced:
            return
        if core.end < self.acknowledged:
            raise Lie(f"takes part with {core.end} bytes after it acknowledged {self.acknowledged}")
        hard = self.hard
        if core.term < hard.term or (core.term == hard.term and (core.vote or "") != hard.vote):
            raise Lie(f"forgot {hard}: is in term {core.term} with vote {core.vote}")

    def _looks_whole(self, disk: SimDisk) -> bool:
        """Whether the log and what is derived from it are, to the byte, what they are without damage."""
        names = [name for name in disk.files() if name.startswith(DERIVED)]
        whole = self.whole
        return names == [n for n in sorted(whole) if n.startswith(DERIVED)] and all(
            _used(name, disk.read(name)) == _used(name, whole[name]) for name in names
        )

    def _compare(self, disk: SimDisk, case: Case | None) -> str:
        group, node = self.group, self.group.nodes[VICTIM]
        if not self._looks_whole(disk):
            _same(_content(group, VICTIM), _content(group, "n0"))
        verdict = "repaired" if any(event.name in REPAIRS for event in node.events) else "harmless"
        if case is None or not case.name.startswith(DERIVED):
            self._look_at_records(disk)
        return verdict

    def _look_at_records(self, disk: SimDisk) -> None:
        """A clean stop leaves no damaged copy."""
        self.group.stop(VICTIM)
        hard, marks = HardStateFile(disk), WatermarkFile(disk)
        records = (hard.peek(), marks.peek(), identity.load(disk), snapshot.load_newest(disk))
        left = (*hard.damaged, *marks.damaged, *snapshot.damaged_copies(disk))
        if left or any(record is None for record in records) or len({disk.read(name) for name in identity.NAMES}) != 1:
            raise Lie(f"damage is left: {left} {records}")
        if not self.whole:
            self.whole = disk_files(disk)


def _content(group: Group, name: str) -> dict[str, object]:
    content = group.image(name)
    disk = group.nodes[name].disk
    content["derived"] = {file: _used(file, disk.read(file)) for file in content["derived"]}
    return content


def _same(ours: dict[str, object], theirs: dict[str, object]) -> None:
    for part, content in theirs.items():
        if ours[part] != content:
            raise Lie(f"differs from its peers in {part}: {ours[part]!r} {content!r}")


def _used(name: str, data: bytes) -> bytes:
    """The bytes of a file that somebody reads: index units are counted from 1, so nobody reads unit 0."""
    if name.startswith("index/"):
        return data[:INDEX_UNITS_AT] + data[INDEX_UNITS_AT + UNIT_BYTES :]
    return data


def _refused(text: str) -> str:
    if len(text) < 30:
        raise Lie(f"refused without a clear sentence: {text!r}")
    return "refused"


def _disk(files: Files) -> FaultyDisk:
    disk = FaultyDisk(Random(0))
    for name, data in files.items():
        disk.replace(name, data)
    disk.faults = {}
    return disk
