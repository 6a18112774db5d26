"""A small group of production Replicas in one thread: hand-run lanes, a hand-carried network, time by the tick.

    step():  clock on, every node ticks --> letters are carried and lanes run until nobody has anything to do

Law: nothing happens by itself and nothing is random, so the same script gives the same run. What a Replica raises
reaches the test. Does not know: what the tests want to show."""

import errno
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

from broker.config import BrokerConfig, NodeConfig, RaftTiming
from broker.ports import Letter, Outcome, Phase, ReadResult, SendRequest, SendResult
from broker.replica import Replica
from chaos.simdisk import SimDisk
from dledger.messages import Message
from dledger.ready import Event
from model import properties
from model.batch import columns
from model.errors import MQError
from model.ids import NodeId
from model.message import build_many
from store.config import StoreConfig
from store.derived import fingerprint
from store.disk import Disk, DiskError, SyncTicket

T = TypeVar("T")
TICK_MS = 20
ROUNDS_MAX = 200  # of letters within one tick; more would be two nodes that talk in a circle
TINY: dict[str, Any] = {
    "segment_bytes": 4096, "queue_file_units": 8, "index_slots": 4, "index_units": 12, "checkpoint_bytes": 1 << 20,
}  # fmt: skip
# A tick is a heartbeat, and everything periodic is due at every tick: few steps from a start to a settled group.
COARSE = RaftTiming(tick_ms=1000, heartbeat_ms=1000, election_min_ms=3000, election_max_ms=6000)
FINE = RaftTiming(tick_ms=TICK_MS)


class HandClock:
    """Stands still unless told."""

    def __init__(self) -> None:
        self.now = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.now

    def monotonic_ms(self) -> int:
        return self.now


class HandLane:
    """Jobs wait until `run`; what a job raises is handed to `done`, as in a real lane."""

    def __init__(self) -> None:
        self.jobs: deque[tuple[Callable[[], Any], Callable[[Any], None]]] = deque()

    def submit(self, job: Callable[[], T], done: Callable[[T | Exception], None]) -> None:
        self.jobs.append((job, done))

    def run(self) -> bool:
        """Run what waits; whether anything did."""
        ran = bool(self.jobs)
        while self.jobs:
            job, done = self.jobs.popleft()
            try:
                result = job()
            except Exception as error:
                result = error
            done(result)
        return ran


class FaultyDisk(SimDisk):
    """A SimDisk that counts its operations and fails or cuts the power at a chosen one."""

    ARMED = "armed"  # a key no operation has: it makes SimDisk ask `check` before every write

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self.counts: dict[str, int] = {}
        # Operation ("change": all but reads), its number, errno (0: power cut).
        self.target: tuple[str, int, int] | None = None
        self.struck = ""  # what failed
        self.on_strike: Callable[[], None] = lambda: None
        self.no_room_for = ""  # files whose names begin so cannot grow
        self.faults[self.ARMED] = 0

    def arm(self, operation: str, number: int, code: int) -> None:
        """From now on, let the number-th `operation` (counted from 1) fail."""
        self.counts, self.target, self.struck = {}, (operation, number, code), ""
        self.faults[self.ARMED] = 0

    def check(self, operation: str, name: str, inode: Any = None) -> None:
        self._count(operation, name)
        super().check(operation, name, inode)

    def grow(self, operation: str, name: str, more: int) -> None:
        if self.no_room_for and name.startswith(self.no_room_for):
            raise DiskError(errno.ENOSPC, operation, name)
        super().grow(operation, name, more)

    def sync(self, ticket: SyncTicket) -> None:
        try:
            self._count("sync", "files")
        except DiskError as error:
            self.faults["sync"] = error.errno  # let SimDisk lose the pages, as a kernel does
        super().sync(ticket)

    def remove(self, name: str) -> None:
        self._count("remove", name)
        super().remove(name)

    def remove_tree(self, name: str) -> None:
        self._count("remove", name)
        super().remove_tree(name)

    def rename(self, old: str, new: str) -> None:
        self._count("rename", new)
        super().rename(old, new)

    def replace(self, name: str, data: bytes) -> None:
        self._count("replace", name)
        super().replace(name, data)

    def _count(self, operation: str, name: str) -> None:
        for kind in (operation, "read" if operation == "pread" else "change"):
            self.counts[kind] = self.counts.get(kind, 0) + 1
            if self.target is not None and self.target[:2] == (kind, self.counts[kind]):
                code, self.target, self.struck = self.target[2], None, f"{operation} of {name}"
                self.on_strike()
                if not code:
                    raise PowerCut(self.struck)
                raise DiskError(code, operation, name)

    def _restart(self, names: Any) -> None:
        super()._restart(names)
        self.target = None
        self.faults[self.ARMED] = 0


class PowerCut(BaseException):
    """The machine ends in the middle of an operation; no code under test may catch it."""


class Asked(list[Any]):
    """Collects the answers to one request."""

    @property
    def done(self) -> bool:
        return bool(self) and self[-1].outcome is Outcome.DONE

    @property
    def only(self) -> Any:
        assert len(self) == 1, self
        return self[0]


@dataclass
class Node:
    """One machine: its disk outlives its replicas."""

    name: str
    disk: Any
    replica: Replica | None = None
    sync_lane: HandLane = field(default_factory=HandLane)
    background: HandLane = field(default_factory=HandLane)
    events: list[Event] = field(default_factory=list)
    lives: int = 0

    def saw(self, event: str) -> bool:
        """Whether this life reported such an event."""
        return any(found.name == event for found in self.events)


class Group:
    """Nodes, what is under way between them, and what an administrator and a client can do."""

    def __init__(
        self, names: Sequence[str] = ("n0", "n1", "n2"), *, disks: dict[str, Any] | None = None, seed: int = 0,
        raft: RaftTiming = FINE, only: dict[str, dict[str, Any]] | None = None, **store: Any,
    ) -> None:  # fmt: skip
        self.clock = HandClock()
        self.seed = seed
        self.raft = raft
        self.store = {**TINY, **store}
        self.only = only or {}  # settings of single nodes
        self.voters = tuple(names)
        self.nodes = {
            name: Node(name, disks[name] if disks else FaultyDisk(Random(seed * 100 + number)))
            for number, name in enumerate(names)
        }
        self.letters: deque[Letter] = deque()
        self.cuts: set[tuple[str, str]] = set()
        self.lost: Callable[[Letter], bool] = lambda letter: False  # a test's own rule about what gets lost
        self.carried: list[Letter] = []  # every letter that left a node, for tests that count
        self.on_crash: Callable[[Node, PowerCut], None] | None = None

    # ---- nodes ---------------------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> Replica:
        replica = self.nodes[name].replica
        assert replica is not None, f"{name} is down"
        return replica

    @property
    def up(self) -> list[Replica]:
        return [node.replica for node in self.nodes.values() if node.replica is not None]

    def config(self, name: str, **node: Any) -> BrokerConfig:
        facts = {"cluster": "c", "group": "g", "node": name, "voters": self.voters, "directory": name, **node}
        store = StoreConfig(**{**self.store, **self.only.get(name, {})})
        return BrokerConfig(node=NodeConfig(**facts), raft=self.raft, store=store)

    def start(self, *names: str, config: BrokerConfig | None = None) -> "Group":
        """Start these nodes (default: all that are down) on their disks as they are."""
        for name in names or [name for name, node in self.nodes.items() if node.replica is None]:
            node = self.nodes[name]
            node.lives += 1
            node.sync_lane, node.background, node.events = HandLane(), HandLane(), []
            replica = Replica(
                config or self.config(name), node.disk, node.sync_lane, node.background, self, self.clock,
                Random(f"{self.seed} {name} {node.lives}"), node.events.append,
            )  # fmt: skip
            replica.start()
            node.replica = replica
        return self

    def stop(self, *names: str) -> None:
        """A clean end."""
        for name in names or list(self.nodes):
            self[name].stop()
            self.nodes[name].replica = None

    def crash(self, *names: str, seed: int = 0) -> None:
        """Power cut."""
        for name in names or list(self.nodes):
            self.nodes[name].replica = None
            self.nodes[name].disk.crash(Random(seed))

    def kill(self, *names: str) -> None:
        """kill -9: what was written stays visible."""
        for name in names or list(self.nodes):
            self.nodes[name].replica = None
            self.nodes[name].disk.kill()

    def wipe(self, name: str) -> None:
        """Somebody put in an empty disk."""
        self.nodes[name].replica = None
        self.nodes[name].disk.wipe()

    # ---- network -------------------------------------------------------------------------------------------------

    def send(self, letter: Letter) -> None:
        """The Peers port of all replicas: bytes are copied when they leave."""
        body = letter.body
        if isinstance(body, Message) and isinstance(body.payload, list):
            letter = letter._replace(body=body._replace(payload=b"".join(body.payload)))
        self.carried.append(letter)
        self.letters.append(letter)

    def cut(self, name: str, *others: str, one_way: bool = False) -> None:
        """Nothing passes between a node and others (default: all) from now on."""
        for other in others or [other for other in self.nodes if other != name]:
            self.cuts.add((name, other))
            if not one_way:
                self.cuts.add((other, name))

    def heal(self) -> None:
        self.cuts.clear()
        self.lost = lambda letter: False

    # ---- time ----------------------------------------------------------------------------------------------------

    def step(self, ticks: int = 1) -> None:
        """Let time pass; within a tick everything that was set off comes to rest."""
        for _ in range(ticks):
            self.clock.now += self.raft.tick_ms
            for node in self.nodes.values():
                self._act(node, lambda replica: replica.tick())
            self.settle()

    def settle(self) -> None:
        """Carry letters and run lanes until nothing is left to do now."""
        for _ in range(ROUNDS_MAX):
            for node in self.nodes.values():
                self._turn(node)
            if not self.letters:
                return
            for _ in range(len(self.letters)):
                self._deliver(self.letters.popleft())
        raise AssertionError("the nodes talk in a circle")

    def _deliver(self, letter: Letter) -> None:
        node = self.nodes.get(letter.target)
        if node is not None and (letter.source, letter.target) not in self.cuts and not self.lost(letter):
            self._act(node, lambda replica: replica.receive(letter))

    def _turn(self, node: Node) -> None:
        busy = True
        while busy and node.replica is not None:
            busy = self._act(node, lambda replica: replica.turn()) is True
            busy |= self._act(node, lambda replica: node.sync_lane.run()) is True
            busy |= self._act(node, lambda replica: node.background.run()) is True

    def _act(self, node: Node, action: Callable[[Replica], T]) -> T | None:
        if node.replica is None:
            return None
        try:
            return action(node.replica)
        except PowerCut as cut:
            if self.on_crash is None:
                raise
            node.replica = None
            self.on_crash(node, cut)
        return None

    def until(self, reached: Callable[[], object], ticks: int = 600, what: str = "") -> None:
        """Let time pass until something holds; fail when that takes too long."""
        for _ in range(ticks):
            if reached():
                return
            self.step()
        assert reached(), f"not reached within {ticks} ticks: {what or 'see the predicate'}; {self.describe()}"

    def describe(self) -> str:
        """One line a node, for failing assertions."""
        lines = []
        for name, node in self.nodes.items():
            core = node.replica.core if node.replica is not None else None
            facts = core and (core.role.value, core.term, core.end, core.commit, core.durable, core.fenced)
            phase = node.replica and (node.replica.phase.value, node.replica.failure)
            lines.append(f"{name}: {phase} (role, term, end, commit, durable, fenced)={facts}")
        return "\n" + "\n".join(lines)

    # ---- what people and clients do ------------------------------------------------------------------------------

    @property
    def leader(self) -> Replica | None:
        """The serving leader of the highest term."""
        serving = [replica for replica in self.up if replica.core is not None and replica.core.serving]
        return max(serving, key=lambda replica: replica.core.term if replica.core else -1, default=None)

    def lead(self, name: str | None = None) -> Replica:
        """Let time pass until somebody (or this node) leads and serves."""

        def reached() -> bool:
            leader = self.leader
            if leader is not None and name is not None and leader.node != name:
                leader.transfer(NodeId(name))
            return leader is not None and name in (None, leader.node) and leader.applied == leader.log.end

        self.until(reached, what=f"{name or 'somebody'} leads")
        assert self.leader is not None
        return self.leader

    def votes(self, name: str) -> bool:
        """Whether the leader counts this very incarnation of the node among its voters."""
        core = self.leader.core if self.leader is not None else None
        return core is not None and core.membership.votes(NodeId(name), self[name].incarnation)

    def formed(self, name: str | None = None) -> "Group":
        """Start all nodes and let them form the group."""
        self.start()
        self.lead(name)
        self.converge()
        return self

    def ask(self, replica: Replica | None = None, **what: Any) -> Asked:
        """Send without waiting."""
        asked = Asked()
        (replica or self.lead()).send(request(**what), asked.append)
        return asked

    def put(self, **what: Any) -> SendResult:
        """Send and wait for DONE."""
        asked = self.ask(**what)
        self.until(lambda: asked, what="an answer")
        result: SendResult = asked.only
        assert result.outcome is Outcome.DONE, result
        return result

    def topic(self, name: str = "t", queues: int = 2) -> None:
        asked = Asked()
        self.lead().create_topic(name, queues, asked.append)
        self.until(lambda: asked.done, what=f"topic {name}")

    def delete(self, name: str) -> None:
        asked = Asked()
        self.lead().delete_topic(name, asked.append)
        self.until(lambda: asked.done, what=f"{name} deleted")

    def read(self, replica: Replica) -> list[ReadResult]:
        asked: list[ReadResult] = []
        replica.read_index(asked.append)
        return asked

    # ---- comparison ----------------------------------------------------------------------------------------------

    @property
    def converged(self) -> bool:
        """All nodes that are up run, have applied everything and hold the same log end."""
        leader = self.leader
        return leader is not None and all(
            replica.phase is Phase.RUNNING
            and replica.core is not None
            and not replica.core.fenced
            and replica.core.term == leader.core.term  # type: ignore[union-attr]
            and replica.applied == replica.core.commit == replica.core.durable == leader.log.end
            for replica in self.up
        )

    def converge(self, ticks: int = 600) -> None:
        self.until(lambda: self.converged, ticks, what="all replicas equal")

    def image(self, name: str) -> dict[str, Any]:
        """What must be equal on all replicas: log bytes, chain crc, state, derived files."""
        replica = self[name]
        log = replica.log
        start = max(log.start for log in (other.log for other in self.up))
        return {
            "log": log.read(start, log.end),
            "chain": log.chain,
            "state": replica.state.snapshot(),
            "derived": fingerprint(self.nodes[name].disk),
        }

    def assert_equal(self) -> None:
        """All running replicas hold the same bytes."""
        self.converge()
        images = {replica.node: self.image(replica.node) for replica in self.up}
        first = next(iter(images.values()))
        for name, image in images.items():
            for part, content in image.items():
                assert content == first[part], f"{name} differs in {part}"


def request(
    topic: str = "t", queue: int = 0, bodies: Sequence[bytes] = (b"body",), producer: bytes = b"", sequence: int = -1,
    tag: str = "", keys: str = "",
) -> SendRequest:  # fmt: skip
    """A send as a client's batcher makes it."""
    pairs = {name: value for name, value in (("TAGS", tag), ("KEYS", keys)) if value}
    messages = build_many(topic, bodies, properties.encode(pairs), queue=queue)
    return SendRequest(topic, queue, producer, sequence, messages, columns(messages))


def clone(disk: SimDisk, into: FaultyDisk) -> FaultyDisk:
    """Copy all visible files as if they had been synced: what a machine finds after a clean stop."""
    for name in disk.files():
        into.replace(name, disk.read(name))
    into.counts = {}
    return into


def refuses(action: Callable[[], object]) -> str:
    """The one clear sentence with which a start was refused."""
    try:
        action()
    except (MQError, DiskError) as error:
        return str(error)
    raise AssertionError("it was not refused")


def disk_files(disk: Disk) -> dict[str, bytes]:
    """Every file of a SimDisk."""
    assert isinstance(disk, SimDisk)
    return {name: disk.read(name) for name in disk.files()}
