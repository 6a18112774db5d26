"""A group of bare cores on fake disks, with every message in hand: nothing moves unless it is told to.

Law: the shell's duties are kept to the letter (see dledger.ready), so what goes wrong here is the core's fault.
Deterministic: same calls, same outcome; randomness only from seeds made of names.
Does not know: text, schedules. Transcripts and the random walk drive it."""

from collections.abc import Callable, Iterable
from random import Random

from chaos.coredisk import CoreDisk, Entry, rows_of, runs_of
from chaos.coreoracle import Oracle, Violation
from dledger.boot import CoreConfig
from dledger.core import RaftCore, Role
from dledger.membership import Change, Member, Membership
from dledger.messages import Kind, Message
from dledger.ready import Event, ReadAnswer, Ready, SyncMark, WriteKind
from model.ids import Incarnation, LogPosition, NodeId, Term

PUMP_MAX = 20_000  # messages until quiet: more is an endless ping-pong
MEMBERSHIP_BYTES = 64

SMALL = CoreConfig(
    segment_bytes=4096,
    heartbeat_ticks=2,
    election_ticks_min=10,
    election_ticks_max=20,
    link_loss_ticks_max=3,
    append_bytes_max=1000,
    in_flight_bytes_max=4000,
)


class CoreNode:
    """One machine: its disk survives, its core does not."""

    def __init__(self, name: NodeId, incarnation: Incarnation, disk: CoreDisk) -> None:
        self.name = name
        self.incarnation = incarnation
        self.disk = disk
        self.core: RaftCore | None = None
        self.syncs_itself = True  # else a sync begins and ends when told
        self.lives = 0
        self.waiting: list[tuple[SyncMark, list[Message]]] = []
        self.syncing: list[tuple[SyncMark, list[Message]]] | None = None


class CoreGroup:
    """Nodes, and the messages between them."""

    def __init__(
        self, voters: Iterable[str], config: CoreConfig = SMALL, *, white_box: bool = False, seed: int = 0
    ) -> None:
        self.config = config
        self.nodes: dict[NodeId, CoreNode] = {}
        self.disks: dict[tuple[NodeId, Incarnation], CoreDisk] = {}  # wiped ones too: a loss after the ack is no lie
        self.wire: list[Message] = []
        self.cuts: set[tuple[NodeId, NodeId]] = set()
        self.reads: dict[object, LogPosition | None] = {}
        self.oracle = Oracle(self, white_box=white_box)
        self.on_event: Callable[[NodeId, Event], None] = lambda node, event: None
        self._seed = seed
        names = [NodeId(name) for name in voters]
        genesis = Membership(tuple(Member(name, Incarnation(1), voter=True) for name in names))
        for name in names:
            self.nodes[name] = CoreNode(name, Incarnation(1), CoreDisk((LogPosition(-1), genesis)))
            self.start(name)

    # ---- machines ------------------------------------------------------------------------------------------------

    def join(self, name: NodeId) -> None:
        """A machine with an empty directory: new, or wiped; it belongs to nothing until it is added."""
        old = self.nodes.get(name)
        self.nodes[name] = CoreNode(name, Incarnation(old.incarnation + 1 if old else 1), CoreDisk(None))
        self.oracle.reborn(name, wiped=True)
        self.start(name)

    def start(self, name: NodeId, commit: int = 0) -> None:
        """Recover and run; `commit` is the watermark that recovery found."""
        node = self.nodes[name]
        assert node.core is None
        node.lives += 1
        self.disks[name, node.incarnation] = node.disk
        random = Random(f"{self._seed} {name} {node.incarnation} {node.lives}")
        boot = node.disk.recover(commit)
        node.core = RaftCore(name, node.incarnation, self.config, boot, node.disk, random)
        self.oracle.reborn(name, wiped=False)
        self._drain(node)

    def crash(self, name: NodeId, reached: int = 0) -> None:
        """The process dies and loses what was not synced, except the first `reached` entries."""
        node = self.nodes[name]
        node.core, node.waiting, node.syncing = None, [], None
        node.disk.crash(reached)

    def core(self, name: NodeId) -> RaftCore:
        """A running core."""
        core = self.nodes[name].core
        assert core is not None, f"{name} is down"
        return core

    @property
    def running(self) -> list[NodeId]:
        """The nodes that are up."""
        return [name for name, node in self.nodes.items() if node.core is not None]

    # ---- inputs --------------------------------------------------------------------------------------------------

    def tick(self, name: NodeId) -> None:
        """One tick at one node."""
        self.core(name).tick()
        self._drain(self.nodes[name])

    def propose(self, name: NodeId, size: int, payload: str) -> LogPosition | None:
        """An entry, if the node leads."""
        position = self.core(name).propose(size, payload)
        self._drain(self.nodes[name])
        return position

    def change(self, name: NodeId, change: Change) -> Membership | None:
        """A membership change, if the node may write one."""
        after = self.core(name).change(change, lambda membership: MEMBERSHIP_BYTES)
        self._drain(self.nodes[name])
        return after

    def transfer(self, name: NodeId, target: NodeId) -> bool:
        """Hand leadership on."""
        started = self.core(name).transfer(target)
        self._drain(self.nodes[name])
        return started

    def read(self, name: NodeId, token: object) -> bool:
        """Ask for a read index; the answer appears in `reads`."""
        accepted = self.core(name).read_index(token)
        self._drain(self.nodes[name])
        return accepted

    def link_lost(self, name: NodeId, peer: NodeId) -> None:
        """The connection broke: what was on it toward `name` is gone."""
        self.wire = [m for m in self.wire if (m.source, m.target) != (peer, name)]
        self.core(name).link_lost(peer)
        self._drain(self.nodes[name])

    def move_start(self, name: NodeId, to: LogPosition) -> None:
        """Drop the log below `to`."""
        core, disk = self.core(name), self.nodes[name].disk
        core.log_start_moved(to)
        disk.drop_head(to, core.epochs.base_term, core.memberships.in_force_at(to))
        self._drain(self.nodes[name])

    def campaign(self, name: NodeId, known_term: int = 0) -> None:
        """Told to campaign at once, whatever timers and leases say, in a term above those it knows."""
        core = self.core(name)
        core.step(Message(Kind.CAMPAIGN_NOW, name, name, Term(max(core.term, known_term)), core.incarnation))
        self._drain(self.nodes[name])

    def depose(self, name: NodeId) -> None:
        """Let a leader hear nobody until it gives up."""
        cuts, self.cuts = self.cuts, {way for other in self.nodes for way in ((name, other), (other, name))}
        for _ in range(2 * self.config.election_ticks_max):
            if self.core(name).role is Role.LEADER:
                self.tick(name)
        self.cuts = cuts

    # ---- disks ---------------------------------------------------------------------------------------------------

    def begin_sync(self, name: NodeId) -> None:
        """Everything written so far goes to the platter."""
        node = self.nodes[name]
        assert node.syncing is None, f"a sync of {name} is under way"
        node.syncing, node.waiting = node.waiting, []
        node.disk.begin_sync()

    def finish_sync(self, name: NodeId) -> None:
        """It is there: what waited for it leaves, and the core hears of it."""
        node = self.nodes[name]
        assert node.syncing is not None and node.core is not None, f"no sync of {name} is under way"
        done, node.syncing = node.syncing, None
        node.disk.finish_sync()
        for _, messages in done:
            self._send_all(node, messages)
        if done:
            node.core.synced(done[-1][0])
        self._drain(node)

    def sync(self, name: NodeId) -> None:
        """A whole sync."""
        self.begin_sync(name)
        self.finish_sync(name)

    # ---- messages ------------------------------------------------------------------------------------------------

    def deliver(self, message: Message) -> None:
        """Hand a message over, unless its target is down or the way is cut."""
        node = self.nodes.get(message.target)
        if node is None or node.core is None or (message.source, message.target) in self.cuts:
            return
        if message.kind is Kind.APPEND:
            assert isinstance(message.payload, tuple)
            entries: list[Entry] = list(message.payload)
            assert runs_of(entries) == message.runs, ("the runs of an append are not those of its bytes", message)
            message = message._replace(memberships=rows_of(entries))
        node.core.step(message)
        self._drain(node)

    def pump(self, on_message: Callable[[Message], None] = lambda message: None) -> None:
        """Deliver in order until nothing is left."""
        for _ in range(PUMP_MAX):
            if not self.wire:
                return
            message = self.wire.pop(0)
            on_message(message)
            self.deliver(message)
        raise Violation("the group talks without end")

    def run(self, ticks: int) -> None:
        """Time passes and everything arrives."""
        for _ in range(ticks):
            for name in self.running:
                self.tick(name)
            self.pump()

    def _send_all(self, node: CoreNode, messages: Iterable[Message]) -> None:
        for message in messages:
            self.oracle.look_at_message(node, message)
            if (message.source, message.target) not in self.cuts:
                self.wire.append(message)

    def _filled(self, node: CoreNode, message: Message) -> Message:
        if message.kind is Kind.APPEND:
            return message._replace(payload=node.disk.between(message.position, message.end))
        if message.kind is Kind.HANDOVER:
            assert node.core is not None
            return message._replace(end=node.core.commit)
        return message

    # ---- the shell -----------------------------------------------------------------------------------------------

    def _drain(self, node: CoreNode) -> None:
        assert node.core is not None
        while (ready := node.core.ready()) is not None:
            self._handle(node, ready)
            if node.syncs_itself and node.waiting and node.syncing is None:
                self.sync(node.name)
        self.oracle.look(node)

    def _handle(self, node: CoreNode, ready: Ready) -> None:
        disk = node.disk
        if ready.handover is not None:
            message = ready.handover
            disk.hand_over(message.position, message.position_term, message.memberships[0], message.end)
        if ready.truncate_to is not None:
            disk.truncate(ready.truncate_to)
        for write in ready.writes:
            if write.kind is WriteKind.RAW:
                assert isinstance(write.token, tuple)
                for entry in write.token:
                    if entry.position >= write.position:
                        disk.append(entry)
                assert disk.end == write.end, (disk.end, write)
            else:
                payload = write.token if write.token is not None else f"{write.kind.name.lower()}@{write.term}"
                disk.append(Entry(write.position, write.end, write.term, write.kind, payload))
        if ready.hard_state is not None:
            disk.save(ready.hard_state)
        self._send_all(node, [self._filled(node, message) for message in ready.messages])
        if ready.mark is not None:
            node.waiting.append((ready.mark, list(ready.after_sync)))
        for answer in ready.reads:
            self._answer(answer)
        for event in ready.events:
            self.on_event(node.name, event)

    def _answer(self, answer: ReadAnswer) -> None:
        self.reads[answer.token] = answer.position


