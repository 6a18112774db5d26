"""One seed from its plan to its verdict, and many seeds over both cores.

    plan -> group forms, topic -> safety phase: load and faults -> heal -> liveness phase: commit and converge -> judge

Law: a run is a function of its seed. After the heal the group must lead, commit a fresh message and converge within
LIVENESS_US; everything it ever acknowledged is judged at the end.
Does not know: terminals."""

import multiprocessing
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from broker.ports import Phase
from broker.replica import Replica
from chaos.checker import Evidence, Final, Verdict, Violation, acknowledged_messages, check
from chaos.history import History
from chaos.sim import MS_US, SECOND_US, Tell, World
from chaos.simclient import Founder, Producer, ProducerPlan, Reader, Wire
from chaos.simcluster import Cluster, SimNode, incarnation_of
from chaos.simdisk import SimDisk
from chaos.simfaults import Nemesis
from chaos.simplan import draw_plan
from dledger.membership import Change, ChangeKind
from model.clock import SystemClock
from store import consumequeue, keyindex
from store.derived import Derived
from store.entry import EntryKind
from store.preamble import parse_preamble

FORMING_US = 40 * SECOND_US  # the weather is on: two voters that lose a third of their letters take their time
LIVENESS_US = 15 * SECOND_US
POLL_US = 50 * MS_US
SCAN_EVERY_US = 250 * MS_US


@dataclass
class SeedResult:
    """What one seed showed."""

    seed: int
    verdict: Verdict
    violations: list[Violation]
    events: int
    virtual_us: int
    acknowledged: int
    leader_changes: int
    crashes: int
    digest: int
    faults: dict[str, int] = field(default_factory=dict)
    wall_ms: int = 0


class Run:
    """One seed."""

    def __init__(self, seed: int, tell: Tell | None = None) -> None:
        self.world = World(seed, tell)
        self.plan = draw_plan(self.world.random)
        self.world.note("plan", str(self.plan))
        self.history = History()
        self.cluster = Cluster(self.world, self.plan)
        self.nemesis = Nemesis(self.cluster)
        self.wire = Wire(self.world, self.cluster, 0.0)
        self.producers: list[Producer] = []
        self.readers: list[Reader] = []

    def play(self) -> SeedResult:
        """All phases."""
        world = self.world
        if self._form():
            self._load()
            self.wire.loss = self.plan.client_loss
            self.nemesis.start()
            world.after(SCAN_EVERY_US, self._scan)
            world.run_until(world.now_us + self.plan.safety_us)
            self.wire.loss = 0.0
            self.nemesis.stop()
            self._liveness()
        for client in (*self.producers, *self.readers):
            client.busy = False
        for producer in self.producers:
            producer.close()
        return self._judge()

    def _until(self, condition: Callable[[], bool], bound_us: int) -> bool:
        world = self.world
        deadline = world.now_us + bound_us
        while not condition():
            if world.now_us >= deadline or self.cluster.violations:
                return False
            world.run_until(world.now_us + POLL_US)
        return True

    def _form(self) -> bool:
        for node in self.cluster.nodes.values():
            node.start()
        founder = Founder(self.world, self.cluster, self.wire, self.history, self.plan.queues)
        if not self._until(lambda: founder.done, FORMING_US):
            self._stuck("no topic could be created in the beginning")
            return False
        spare = self.cluster.nodes.get(self.cluster.spare) if self.cluster.spare is not None else None
        if spare is not None and self.plan.voters == 2:
            self._admit(spare)
        return True

    def _admit(self, spare: SimNode) -> None:
        """A group of two gets its learner; nothing depends on it, so a try is enough."""
        leader, incarnation = self.cluster.leader(), incarnation_of(spare)
        if leader is not None and leader.replica is not None and incarnation is not None:
            replica = leader.replica
            change = Change(ChangeKind.ADD_LEARNER, spare.name, incarnation)
            leader.run(lambda: replica.change_membership(change, lambda accepted: None))

    def _load(self) -> None:
        world, plan = self.world, self.plan
        for index in range(plan.producers + plan.anonymous):
            identity = index < plan.producers
            think_us = plan.think_us * (1 if identity else 4)
            behaviour = ProducerPlan(identity, plan.queues, plan.window, plan.batch_max, plan.body_max, think_us)
            name = f"{'p' if identity else 'a'}{index}"
            self.producers.append(Producer(world, self.cluster, self.wire, self.history, name, behaviour))
        for index in range(plan.readers):
            self.readers.append(Reader(world, self.cluster, self.wire, self.history, f"r{index}", plan.queues))

    def _scan(self) -> None:
        node = self.world.random.choice(list(self.cluster.nodes.values()))
        if node.replica is not None and node.replica.phase is Phase.RUNNING and not node.damaged:
            with node.disk.unnoticed():
                self.cluster.oracles.scan(node.name, node.replica)
        self.world.after(SCAN_EVERY_US, self._scan)

    # ---- liveness ------------------------------------------------------------------------------------------------

    def _liveness(self) -> None:
        """Fresh messages commit while clients go on; then all members become equal while nothing is sent."""
        before = [producer.acknowledged for producer in self.producers]

        def fresh() -> bool:
            return all(p.acknowledged > n for p, n in zip(self.producers[:1], before[:1], strict=True))

        if not self._until(fresh, LIVENESS_US):
            self._stuck("no fresh message was acknowledged after the heal")
            return
        for client in (*self.producers, *self.readers):
            client.busy = False
        if not self._until(self._settled, LIVENESS_US):
            self._stuck(f"the group did not converge: {self._picture()}")

    def _settled(self) -> bool:
        if any(producer.open for producer in self.producers):
            return False
        leader = self.cluster.leader()
        core = leader.replica.core if leader is not None and leader.replica is not None else None
        if core is None or not core.serving or core.commit != core.end:
            return False
        members = core.membership
        for name, node in self.cluster.nodes.items():
            replica = node.replica
            if name not in members.incarnations:
                continue  # removed, or never added
            if replica is None or replica.core is None or replica.phase is not Phase.RUNNING:
                return False
            if replica.incarnation != members.incarnations[name]:
                return False
            if not replica.applied == replica.core.commit == core.commit or replica.core.durable < core.commit:
                return False
            if name in self.cluster.voters and name not in members.voters:
                return False  # a wiped voter votes again
        self.nemesis.heed_repairs()
        return not any(node.damaged for name, node in self.cluster.nodes.items() if name in members.incarnations)

    def _picture(self) -> str:
        parts = []
        for name, node in self.cluster.nodes.items():
            replica = node.replica
            if replica is None or replica.core is None:
                parts.append(f"{name} {'down' if replica is None else replica.phase.value}")
            else:
                core = replica.core
                parts.append(
                    f"{name} {core.role.value} term {core.term} [{core.epochs.start}, {core.end}) "
                    f"durable {core.durable} "
                    f"commit {core.commit} applied {replica.applied}{' fenced' if core.fenced else ''}"
                    f"{' damaged' if node.damaged else ''} "
                    f"voters {sorted(core.membership.voters)} of {sorted(core.membership.nodes)}"
                )
        parts.append(f"open sends {[len(p.open) for p in self.producers]}")
        return "; ".join(parts)

    def _stuck(self, sentence: str) -> None:
        if not self.cluster.violations:  # otherwise it was cut short
            self.cluster.violate("P11", sentence)

    # ---- judgement -----------------------------------------------------------------------------------------------

    def _judge(self) -> SeedResult:
        cluster, world = self.cluster, self.world
        finals = []
        if not cluster.violations:
            for node in cluster.nodes.values():
                replica = node.replica
                runs = replica is not None and replica.core is not None and replica.phase is Phase.RUNNING
                if replica is not None and runs and not node.damaged:  # who was removed may rot: nobody heals it
                    cluster.oracles.scan(node.name, replica)
                    finals.append(final_of(node, replica))
        anonymous = frozenset(producer.name for producer in self.producers if producer.name.startswith("a"))
        evidence = Evidence(
            self.history, cluster.oracles.stored(), cluster.leaderships, finals, anonymous, cluster.violations
        )
        verdict, violations = check(evidence)
        now = world.now_us
        violations = [v._replace(seed=world.seed, time_us=now if v.time_us < 0 else v.time_us) for v in violations]
        return SeedResult(
            world.seed, verdict, violations, world.events, world.now_us, acknowledged_messages(self.history),
            len(cluster.leaderships), cluster.crashes, world.digest, dict(sorted(self.nemesis.done.items())),
        )  # fmt: skip


def final_of(node: SimNode, replica: Replica) -> Final:
    """A node's store beside a rebuild of its derived files from its log."""
    core, log = replica.core, replica.log
    assert core is not None
    disk = SimDisk(node.world.random)
    rebuilt = Derived(disk, node.config.store)
    for header, body in log.entries(log.start, replica.applied):
        if header.kind == EntryKind.DATA:
            rebuilt.dispatch(header.position, header.time_ms, parse_preamble(body))
    return Final(
        node.name, replica.applied, log.chain_at(replica.applied), derived_files(node.disk), derived_files(disk)
    )


def derived_files(disk: SimDisk) -> dict[str, bytes]:
    """Name and content of every consume queue and index file."""
    prefixes = (f"{consumequeue.DIRECTORY}/", f"{keyindex.DIRECTORY}/")
    return {name: disk.read(name) for name in disk.files() if name.startswith(prefixes)}


def run_seed(seed: int, tell: Tell | None = None) -> SeedResult:
    """Play one seed."""
    began_ms = SystemClock().monotonic_ms()
    result = Run(seed, tell).play()
    result.wall_ms = SystemClock().monotonic_ms() - began_ms
    return result


def run_seeds(seeds: Iterable[int], workers: int) -> Iterator[SeedResult]:
    """Play many, in as many processes; results come as they are ready."""
    if workers <= 1:
        yield from map(run_seed, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        yield from pool.imap_unordered(run_seed, seeds)


def totals(results: Iterable[SeedResult]) -> dict[str, object]:
    """The figures of `dlmq sim`."""
    found = list(results)
    faults: Counter[str] = Counter()
    for result in found:
        faults.update(result.faults)
    wall_ms = sum(result.wall_ms for result in found)
    events = sum(result.events for result in found)
    return {
        "seeds": len(found),
        "simulated_hours": round(sum(result.virtual_us for result in found) / 3600 / SECOND_US, 3),
        "events": events,
        "acknowledged": sum(result.acknowledged for result in found),
        "leader_changes": sum(result.leader_changes for result in found),
        "crashes": sum(result.crashes for result in found),
        "violations": sum(len(result.violations) for result in found),
        "unknown": sum(result.verdict is Verdict.UNKNOWN for result in found),
        "events_per_second": round(1000 * events / wall_ms) if wall_ms else 0,
        "faults": dict(sorted(faults.items())),
    }
