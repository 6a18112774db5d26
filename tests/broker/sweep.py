"""Damage to one node's files, case by case, and the verdict on what the node makes of it.

    base (built once) --> n0 and n2 run on copies of their disks --> per case: n1 starts on a damaged copy of its disk
                                                                      --> refused | repaired | harmless, or a Lie

Law: a case ends with n1 byte-identical to its peers (log, chain crc, state, derived files) and nothing damaged left on
its disk, or with one clear sentence. On the way there n1 never votes, leads or acknowledges on less than what it
acknowledged before it went down. Anything else is a Lie, and says which byte of which file."""

from collections import Counter
from collections.abc import Iterable, Iterator
from random import Random
from typing import NamedTuple

from broker.ports import Phase
from broker.replica import Replica
from chaos.simdisk import SimDisk
from model.errors import StoreError
from store import identity, snapshot
from store.hardstate import HardState, HardStateFile, WatermarkFile
from tests.broker.group import COARSE, FaultyDisk, Group, disk_files

VICTIM = "n1"
STORE = {"checkpoint_bytes": 2500, "scrub_bytes_per_second": 64 << 20}  # all of it is verified at every tick
TICKS_MAX = 60  # from a start to a settled group; an undamaged one needs eight
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
    """A log over three segments with several topics, keys, terms and memberships; n1 ends cleanly or by a power cut."""
    group = Group(raft=COARSE, **STORE).formed("n0")
    group.topic("a", 2)
    for number in range(3):
        group.put(topic="a", queue=number % 2, producer=b"p", sequence=number // 2, tag="red", keys="k1 k2")
    group.wipe("n2")  # comes back as a learner, then as a voter: two membership entries
    group.put(topic="a", queue=0, bodies=[b"x" * 40] * 3, keys="k3")
    group.start("n2")
    group.until(lambda: group.votes("n2"), what="n2 votes again")
    group.lead("n2")
    group.topic("b", 1)
    for number in range(3):
        group.put(topic="b", bodies=[b"y" * 350] * 2, producer=b"q", sequence=number, keys=f"k{number}")
    group.lead("n0")
    for number in range(4):
        group.put(topic="a", queue=1, bodies=[b"z" * 30] * 4, producer=b"foreign%d" % number, tag="blue")
        group.put(topic="b", bodies=[b"w" * 200], keys="k1 k9")
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
        self._begin()

    def _begin(self) -> None:
        """All three run until n1 has everything; then it goes down, and its disk is what the cases damage."""
        disks = {name: _disk(files) for name, files in self.base.files.items()}
        self.group = group = Group(raft=COARSE, disks=disks, **STORE)
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

    def _lead(self) -> int:
        core = self.group.lead().core
        assert core is not None
        return core.term

    def run(self, case: Case | None) -> str:
        """The verdict on one case; Lie when there is none."""
        node = self.group.nodes[VICTIM]
        node.disk = _disk(case.apply(self.files) if case is not None else self.files)
        try:
            verdict = self._judge()
        except Lie as lie:
            raise Lie(f"{case}: {lie}") from lie
        except Exception as error:
            raise Lie(f"{case}: {type(error).__name__}: {error}") from error
        finally:
            node.replica = None
            self.group.letters.clear()
        self.verdicts[verdict] += 1
        if self._lead() != self._term:  # the healthy ones stay what they were, or the last case would meet another log
            self._begin()
        return verdict

    def _judge(self) -> str:
        group, node = self.group, self.group.nodes[VICTIM]
        try:
            group.start(VICTIM)
        except StoreError as error:
            return _refused(str(error))
        quiet, events = 0, 0
        segments = len([name for name in self.files if name.startswith("commitlog/")])
        for _ in range(TICKS_MAX):
            replica = node.replica
            assert replica is not None
            if replica.phase is Phase.STOPPED:
                return _refused(replica.failure or "")
            self._watch(replica)
            group.step()
            self._watch(replica)
            quiet = quiet + 1 if group.converged and len(node.events) == events else 0
            events = len(node.events)
            if quiet > segments + 1:  # the scrubber has seen every segment since
                return self._compare(node.disk)
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

    def _compare(self, disk: SimDisk) -> str:
        group, node = self.group, self.group.nodes[VICTIM]
        ours, theirs = group.image(VICTIM), group.image("n0")
        for part, content in theirs.items():
            if ours[part] != content:
                raise Lie(f"differs from its peers in {part}: {ours[part]!r} {content!r}")
        names = {event.name for event in node.events}
        group.stop(VICTIM)
        damaged = HardStateFile(disk), WatermarkFile(disk)
        for record in damaged:
            record.peek()
        left = (*damaged[0].damaged, *damaged[1].damaged, *snapshot.damaged_copies(disk))
        copies = {disk.read(name) for name in identity.NAMES}
        if left or len(copies) != 1:
            raise Lie(f"damage is left: {left} {copies}")
        return "repaired" if names & {"repaired", "derived_files_dropped"} else "harmless"


def _refused(text: str) -> str:
    if len(text) < 30:
        raise Lie(f"refused without a clear sentence: {text!r}")
    return "refused"


def _disk(files: Files) -> FaultyDisk:
    disk = FaultyDisk(Random(0))
    disk.faults = {}
    for name, data in files.items():
        disk.replace(name, data)
    return disk
