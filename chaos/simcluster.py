"""Production Replicas on a World: real core, real store, simulated disk, network, clock and lanes.

    letter, tick, request, finished job --> node.run(...) --> Replica method --> one turn right after --> oracles look

Law: whatever happens to a node goes through `SimNode.run`, so that a crash in the middle ends exactly that node, a
pause delays everything alike, and nothing of an earlier life reaches a later one. An exception that escapes a Replica
is a violation (P15), as is a Replica that stops without a cause (P12: it must stop when it has one).
Does not know: which faults come when, what clients want."""

from collections.abc import Callable
from functools import partial
from random import Random

from broker.config import BrokerConfig, NodeConfig, RaftTiming
from broker.ports import Letter, Phase
from broker.replica import Replica
from chaos.checker import Leadership, Violation
from chaos.oracles import Oracles
from chaos.sim import MS_US, SimClock, World
from chaos.simdevice import NodeDisk, SimCrash, SimLane
from chaos.simdisk import SimDisk
from chaos.simnet import SimNet
from chaos.simplan import Plan
from chaos.simwords import describe
from dledger.core import Role
from dledger.messages import Kind, Message
from dledger.ready import Event
from model.errors import MQError
from model.ids import Incarnation, NodeId
from store.config import StoreConfig
from store.disk import DiskError

TICK_MS = 20
TURN_US = (0, 60)  # a loop takes up what came in meanwhile
SCRUB_BYTES = 256 << 10  # a second: a whole log of a run in some seconds, at little cost
STOP_GRACE_US = 200 * MS_US  # a disk error met in a lane reaches the loop with the job's end


class SimNode:
    """One machine: its disk outlives its replicas."""

    def __init__(self, cluster: "Cluster", name: NodeId, voters: tuple[str, ...]) -> None:
        self.name = name
        self.cluster = cluster
        self.world = cluster.world
        self.config = node_config(cluster.plan, name, voters)
        self.clock = SimClock(self.world, self.world.between(-500, 500))
        self.disk = NodeDisk(Random(self.world.random.getrandbits(64)))
        self.disks: dict[int, SimDisk] = {}  # incarnation -> disk, also of wiped ones
        self.replica: Replica | None = None
        self.life = 0
        self.damaged = False  # bits were flipped and perhaps not repaired yet
        self.error_us = -1  # when an injected disk error was first seen
        self._empty = True
        self._turn_due = False
        self._late: list[Callable[[], object]] | None = None  # what happens meanwhile to a paused node
        cluster.net.attach(name, self.deliver, self.link_lost)

    # ---- life ----------------------------------------------------------------------------------------------------

    @property
    def up(self) -> bool:
        return self.replica is not None

    @property
    def leads(self) -> bool:
        core = self.replica.core if self.replica is not None else None
        return core is not None and core.role is Role.LEADER

    def start(self) -> None:
        """Begin a life on the disk as it is."""
        if self.replica is not None:
            return
        self.life += 1
        self.world.note(self.name, f"starts life {self.life}")
        with self.disk.unnoticed():
            self.cluster.oracles.born(self.name, self.disk, empty=self._empty)
        self._turn_due, self._late, self.error_us = False, None, -1
        self.sync_lane = SimLane(self.world, self.guard, *self.cluster.plan.sync_us)
        self.background_lane = SimLane(self.world, self.guard, 200, 4_000)
        self.replica = Replica(
            self.config, self.disk, self.sync_lane, self.background_lane, self, self.clock,
            Random(self.world.random.getrandbits(64)), on_event=self._event,
        )  # fmt: skip
        self._empty = False
        self.run(self.replica.start)
        self.world.after(self.world.between(0, TICK_MS * MS_US), self.guard(self._tick))

    def die(self, how: str) -> None:
        """End this life: "crash" loses unsynced bytes, "kill" only the process, "stop" is clean."""
        if self.replica is None:
            return
        self.world.note(self.name, f"ends: {how}")
        if how == "stop" and self._late is None and not self._attempt(partial(self._stop, self.replica)):
            return  # it met something worse on the way
        self.replica, self._late = None, None
        self.life += 1
        if how == "crash":
            self.disk.crash(self.world.random)
        else:
            self.disk.kill()
        self.cluster.died(self, how)

    def _stop(self, replica: Replica) -> None:
        self.sync_lane.drain()  # what is under way ends first: a replica relies on its owner for that
        self.background_lane.drain()
        with self.disk.unnoticed():
            self.cluster.oracles.turned(self.name, replica, self.cluster.disk_of)  # it may have committed by that
        replica.stop()

    def wipe(self) -> None:
        """Somebody put in an empty disk."""
        assert self.replica is None
        self.world.note(self.name, "is wiped")
        self.disk = NodeDisk(Random(self.world.random.getrandbits(64)))
        self._empty, self.damaged = True, False

    def pause(self, duration_us: int) -> None:
        """Stop the process; everything reaches it late, except time."""
        if self.replica is not None and self._late is None:
            self.world.note(self.name, f"pauses for {duration_us // MS_US} ms")
            self._late = []
            self.world.after(duration_us, partial(self.resume, self.life))

    def resume(self, life: int) -> None:
        """Go on with everything that happened meanwhile."""
        if life == self.life and self._late is not None:
            late, self._late = self._late, None
            self.world.note(self.name, f"resumes with {len(late)} things to do")
            for function in late:
                self.run(function)  # a crash among them ends the life, and with it the rest

    # ---- what happens to it --------------------------------------------------------------------------------------

    def guard(self, function: Callable[[], object]) -> Callable[[], None]:
        """`function` as an event of this life: it never happens in another."""
        life = self.life

        def event() -> None:
            if life == self.life:
                self.run(function)

        return event

    def run(self, function: Callable[[], object]) -> None:
        """Let the replica do something, then take its turn."""
        if self.replica is None:
            return
        if self._late is not None:
            self._late.append(function)
            return
        if self._attempt(function):
            self._announce_turn()

    def _announce_turn(self) -> None:
        if not self._turn_due:
            self._turn_due = True
            self.world.after(self.world.between(*TURN_US), partial(self._turn, self.life))

    def _turn(self, life: int) -> None:
        if life != self.life:
            return
        if self._late is not None:
            self._late.append(partial(self._turn, life))
            return
        self._turn_due = False
        replica = self.replica
        assert replica is not None
        more = False

        def take_turn() -> None:
            nonlocal more
            more = replica.turn()

        if self._attempt(take_turn):
            if more:
                self._announce_turn()
            self._look(replica)

    def _attempt(self, function: Callable[[], object]) -> bool:
        try:
            function()
        except SimCrash:
            self._perish("crash")
            return False
        except DiskError as error:
            if not self.disk.error_met:
                self.cluster.violate("P15", f"{self.name}: {error}")
            self._perish("kill")
            return False
        except MQError as error:
            self.cluster.violate("P15", f"{self.name} refuses its store: {error}")
            self._perish("kill")
            return False
        except Exception as error:
            self.cluster.violate("P15", f"{self.name}: {type(error).__name__}: {error}", error)
            self._perish("kill")
            return False
        return True

    def _perish(self, how: str) -> None:
        """End in the middle of something; somebody will start it again."""
        self.die(how)
        self.cluster.restart(self)

    def _look(self, replica: Replica) -> None:
        """After a turn: the oracles, and whether it should have stopped."""
        if self.disk.error_met and self.error_us < 0:
            self.error_us = self.world.now_us
        if replica.phase is Phase.STOPPED:
            caused = self.disk.error_met or self.damaged
            if not caused:
                self.cluster.violate("P15", f"{self.name} stopped itself: {replica.failure}")
            self.world.note(self.name, f"stopped itself: {replica.failure}")
            self._perish("kill")
            return
        if 0 <= self.error_us < self.world.now_us - STOP_GRACE_US:
            self.cluster.violate("P12", f"{self.name} goes on after an error in {self.disk.error_met}")
            self.disk.error_met, self.error_us = "", -1
        core = replica.core
        if core is not None and core.incarnation not in self.disks:
            self.disks[core.incarnation] = self.disk
        with self.disk.unnoticed():
            self.cluster.oracles.turned(self.name, replica, self.cluster.disk_of)

    def _tick(self) -> None:
        assert self.replica is not None
        self.world.after(TICK_MS * MS_US, self.guard(self._tick))
        if self._late is None:  # a paused process misses ticks, it does not catch up on them
            self.replica.tick()

    def deliver(self, letter: Letter) -> None:
        """A letter arrived."""
        if self.replica is None:
            return
        if self.world.tracing:
            self.world.trace(self.name, f"receives {describe(letter)}")
        if isinstance(letter.body, Message) and letter.body.kind is Kind.HANDOVER:
            self.cluster.oracles.watched[self.name].handed_over = True
        self.run(partial(self.replica.receive, letter))

    def link_lost(self, peer: NodeId) -> None:
        """The connection to a peer broke."""
        if self.replica is not None:
            self.world.note(self.name, f"hears that its link to {peer} broke")
            self.run(partial(self.replica.link_lost, peer))

    # ---- what it does --------------------------------------------------------------------------------------------

    def send(self, letter: Letter) -> None:
        """The Peers port of its replica."""
        if self.replica is None:
            return
        body = letter.body
        if isinstance(body, Message):
            self.world.mix(body.kind.value, body.term, body.position, body.end, body.commit)
        with self.disk.unnoticed():
            self.cluster.oracles.leaving(letter, self.replica, self.disk)
        self.cluster.net.send(letter)

    def _event(self, event: Event) -> None:
        fields = dict(event.fields)
        self.world.note(self.name, f"{event.name} {' '.join(f'{n}={v}' for n, v in event.fields)}")
        if event.name == "leader_elected":
            self.cluster.leaderships.append(Leadership(self.world.now_us, int(str(fields["term"])), self.name))
        elif event.name == "truncated":
            self.cluster.oracles.truncated(self.name, int(str(fields["to"])))
        elif event.name in ("damage_met", "damage_found", "derived_files_dropped"):
            self.cluster.oracles.found_damage(self.name, event.name, str(fields["reason"]))
        elif event.name == "handed_over":
            self.cluster.oracles.truncated(self.name, int(str(fields["start"])))


class Cluster:
    """All nodes of a group, and what is known about them from outside."""

    def __init__(self, world: World, plan: Plan) -> None:
        self.world = world
        self.plan = plan
        self.net = SimNet(world, plan.weather)
        self.violations: list[Violation] = []
        self.errors: list[BaseException] = []
        self.leaderships: list[Leadership] = []
        self.crashes = 0
        self.oracles = Oracles(self.violate, plan.segment_bytes)
        self.restart: Callable[[SimNode], None] = lambda node: None  # set by whoever decides about faults
        names = [NodeId(f"n{i + 1}") for i in range(plan.voters + plan.spare)]
        voters = tuple(names[: plan.voters])
        self.voters = voters
        self.spare = names[-1] if plan.spare else None
        self.nodes = {name: SimNode(self, name, voters if name in voters else (*voters, name)) for name in names}

    def violate(self, number: str, sentence: str, error: BaseException | None = None) -> None:
        """A property is broken."""
        self.world.note("VIOLATION", f"{number}: {sentence}")
        if error is not None:
            self.errors.append(error)
        self.violations.append(Violation(number, sentence, self.world.seed, self.world.now_us))

    def died(self, node: SimNode, how: str) -> None:
        """Peers may notice that a process ended; a power cut says nothing."""
        self.crashes += how != "stop"
        heard = how != "crash" and self.world.chance(0.8)
        for other in self.nodes:
            if other != node.name:
                self.net.break_link(node.name, other, heard=heard)

    def disk_of(self, node: str, incarnation: int) -> SimDisk | None:
        """The disk on which this member acknowledged what it acknowledged, perhaps wiped since."""
        found = self.nodes.get(NodeId(node))
        return None if found is None else found.disks.get(incarnation)

    def leader(self) -> SimNode | None:
        """The serving leader of the highest term, as an onlooker sees it."""
        best: SimNode | None = None
        for node in self.nodes.values():
            if node.leads and (best is None or term_of(node) > term_of(best)):
                best = node
        return best


def term_of(node: SimNode) -> int:
    """The term a node is in; -1 when it is in none."""
    core = node.replica.core if node.replica is not None else None
    return -1 if core is None else core.term


def incarnation_of(node: SimNode) -> Incarnation | None:
    """The incarnation a node runs under, if it runs."""
    core = node.replica.core if node.replica is not None else None
    return None if core is None else core.incarnation


def node_config(plan: Plan, name: str, voters: tuple[str, ...]) -> BrokerConfig:
    """A production configuration with tiny numbers, so that everything wraps around at once."""
    return BrokerConfig(
        node=NodeConfig(cluster="simulated", group="g", node=name, voters=voters, directory=name),
        raft=RaftTiming(
            tick_ms=TICK_MS, heartbeat_ms=plan.heartbeat_ms, election_min_ms=plan.election_min_ms,
            election_max_ms=plan.election_max_ms, append_bytes_max=plan.append_bytes_max,
            in_flight_bytes_max=plan.in_flight_bytes_max, link_loss_delay_ms_max=plan.link_loss_ms,
        ),
        store=StoreConfig(
            segment_bytes=plan.segment_bytes, queue_file_units=plan.queue_file_units, index_slots=16,
            index_units=plan.index_units, checkpoint_bytes=plan.checkpoint_bytes,
            scrub_bytes_per_second=SCRUB_BYTES,
        ),
    )  # fmt: skip
