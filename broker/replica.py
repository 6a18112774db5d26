"""Replica: the shell around RaftCore: inbox -> step -> ready -> write, send, sync -> apply.

    receive, send, tick ---> turn():  step the inbox, propose what waits, do what the core asks, apply what is committed

Law: one thread owns a Replica and nothing awaits inside a turn; slow work goes through lanes and comes back as a call.
What a Ready asks is done in its order. A failed write or sync, or an entry that cannot be followed, stops the replica:
it says why and acknowledges nothing more. Bytes that no longer verify fence it until a peer has repaired them.
Asserted every turn: applied <= commit <= end, durable <= end; commit and applied never go back.
Does not know: sockets, clients, names of files."""

from collections import deque
from collections.abc import Callable
from random import Random

from broker.codec import encode_membership
from broker.composing import Composition
from broker.config import BrokerConfig
from broker.fencing import Forming, Repairing
from broker.housekeeping import Housekeeping
from broker.mail import Poster, Received, read_append, read_handover
from broker.opening import Opened, form, load_records, open_log, scan_log
from broker.pending import Pending
from broker.ports import (
    Hello,
    Letter,
    Outcome,
    Peers,
    Phase,
    ReadResult,
    RepairAsk,
    RepairGive,
    Reply,
    SendRequest,
    SendResult,
)
from broker.proposing import Order, Proposer
from broker.repair import entries_from
from broker.state.commands import UnknownCommand, log_start, topic_delete, topic_set
from broker.state.machine import Diverged, StateMachine
from broker.syncing import Synced, SyncRounds, Watermarker
from dledger.core import ENVELOPE_BYTES, CoreConfig, RaftCore, Role
from dledger.membership import Change, ChangeKind, Membership
from dledger.messages import Kind, Message
from dledger.ready import Event, Ready, Write, WriteKind
from model.clock import Clock
from model.errors import MQError, NotLeader, Refused
from model.ids import Incarnation, LogPosition, NodeId
from model.ports import Lane
from store import entry, snapshot
from store.commitlog import CommitLog
from store.derived import Derived
from store.disk import Disk, DiskError
from store.entry import CorruptEntry, EntryKind
from store.hardstate import DamagedState, Watermarks
from store.preamble import parse_preamble
from store.scan import Damage
from store.snapshot import ControlSnapshot

INBOX_MAX = 1024  # letters; a turn must end within one tick even at 20 us each. What does not fit is lost, as on a wire
APPLY_BYTES_MAX = 4 << 20  # per turn, so that heartbeats are never late
HELLO_EVERY_MS = 200  # an empty or unknown node makes itself heard
assert entry.ENVELOPE_BYTES == ENVELOPE_BYTES


class Stopped(Refused):
    """The replica was stopped before the request was written."""

    retriable = True
    stale_route = True
    do = "send it to another node"


class Replica:
    """One node of one group."""

    def __init__(
        self,
        config: BrokerConfig,
        disk: Disk,
        sync_lane: Lane,
        background: Lane,
        peers: Peers,
        clock: Clock,
        random: Random,
        on_event: Callable[[Event], None] = lambda event: None,
        store_host: bytes = bytes(8),
    ) -> None:
        self._config = config
        self._disk = disk
        self._sync_lane = sync_lane
        self.background = background
        self._peers = peers
        self._clock = clock
        self._random = random
        self._on_event = on_event
        self.node = NodeId(config.node.node)
        self.incarnation = Incarnation(0)
        self.phase = Phase.FORMING
        self.failure: str | None = None
        self.core: RaftCore | None = None
        self.applied = 0
        self.applied_time_ms = 0  # leader time of the last applied entry
        self.refusal: MQError | None = None  # why sends are refused although this node leads (disk almost full)
        self.control: ControlSnapshot | None = None  # the newest on disk
        self._fence: Forming | Repairing | None = None
        self._ticks = 0
        self._inbox: deque[Letter] = deque()
        self._proposer = Proposer(config.store.entry_bytes_limit, store_host)
        self._reads: list[tuple[int, Callable[[ReadResult], None]]] = []
        self._strangers: dict[NodeId, Incarnation] = {}  # who said hello and is not a member under that incarnation
        self._life = 0  # callbacks of lanes from before a repair are not for the log that is open now

    # ---- life ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Open the directory; raises StoreError or DiskError when it cannot be used, with nothing changed."""
        self._disk.lock()
        self._records = load_records(self._disk, self._config, self._random)
        self.incarnation = Incarnation(self._records.identity.incarnation)
        self._disk.replace("abort", b"")  # removed by a clean stop
        if self._records.snapshot is None:
            self._fence = Forming(self.node, self.incarnation, tuple(NodeId(v) for v in self._config.node.voters))
            self._try_form()
        else:
            self._recover()

    def stop(self) -> None:
        """A clean end: what is written is synced and checkpointed, so that the next start has nothing to scan."""
        if self.phase is Phase.STOPPED:
            return
        if self.phase is Phase.RUNNING and self.core is not None:
            self._disk.sync(self.log.begin_sync())
            self._house.close()
        self._shut("stopped")
        self._disk.remove("abort")
        self._disk.sync_dir("")
        self._disk.unlock()

    def fail(self, why: str) -> None:
        """Stop acting at once; files stay as they are, and the next start verifies them."""
        if self.phase is not Phase.STOPPED:
            self.failure = why
            self._shut(why)
            self.event("failed", why=why)
            self._disk.unlock()

    def _shut(self, why: str) -> None:
        if self.phase is Phase.RUNNING:
            self.log.close()
            self.derived.close()
        self.phase = Phase.STOPPED
        self._life += 1
        self._proposer.end_leading(Stopped(why))

    def _recover(self, *, whole: bool = False) -> None:
        """Scan the log (all of it when there is a reason to doubt it); run on what verifies, or ask peers."""
        scanned = scan_log(self._disk, self._config, self._records, whole=whole)
        damage = scanned.result.damage
        if damage is not None:
            self.phase = Phase.REPAIRING
            self._fence = Repairing(self._disk, self._config.store.segment_bytes, self._records, scanned)
            self.event("damage_found", position=damage.position, reason=damage.reason)
            return
        if whole:  # all of it verifies: open it the way every start does
            scanned = scan_log(self._disk, self._config, self._records, whole=False)
        self._run(open_log(self._disk, self._config, self._records, scanned))
        self.event("recovered", end=scanned.result.end, torn_bytes=scanned.result.torn_bytes)

    def _run(self, opened: Opened) -> None:
        raft, store = self._config.raft, self._config.store
        tick = raft.tick_ms
        self._fence = None
        self._life += 1
        self.log: CommitLog = opened.log
        self.state: StateMachine = opened.state
        self.control = opened.control
        self.derived = Derived(self._disk, store)
        self.applied = self.derived.cut_back(opened.applied, opened.boot.start)
        self.applied_time_ms = opened.control.time_ms if opened.control is not None else 0
        self._marks = Watermarker(self._records.mark_file, self._records.marks)
        self._syncs = SyncRounds(
            self._sync_lane, self._disk, self._records.hard_file, self.log.begin_sync, self.here(self._synced)
        )
        core_config = CoreConfig(
            store.segment_bytes, raft.heartbeat_ms // tick, raft.election_min_ms // tick, raft.election_max_ms // tick,
            raft.link_loss_delay_ms_max // tick, raft.append_bytes_max, raft.in_flight_bytes_max,
        )  # fmt: skip
        self.core = RaftCore(self.node, self.incarnation, core_config, opened.boot, self.log, self._random)
        self._house = Housekeeping(self, self._config, self._disk, self._clock, self._marks)
        self._poster = Poster(
            self.node, self.incarnation, self._peers, self.background, self.log, self._house.control_for, self.here,
            self.damaged,
        )  # fmt: skip
        self.phase = Phase.RUNNING

    def damaged(self, damage: Damage) -> None:
        """Bytes of the open log do not verify: behave like a crashed node, fenced until they are repaired."""
        self.event("damage_met", position=damage.position, reason=damage.reason)
        self.phase, self.core = Phase.REPAIRING, None
        self._life += 1
        self._proposer.end_leading(Stopped("the log of this node is damaged"))
        life = self._life

        def idle(result: object) -> None:  # what the lanes were doing with the old log has ended
            if life == self._life and self.phase is Phase.REPAIRING:
                self._reopen()

        self._sync_lane.submit(lambda: None, lambda result: self.background.submit(lambda: None, idle))

    def _reopen(self) -> None:
        self.log.close()
        self.derived.close()
        try:
            self._records = load_records(self._disk, self._config, self._random)
            self._recover(whole=True)
        except (DiskError, DamagedState) as error:
            self.fail(f"{error}")

    def here(self, function: Callable[..., None]) -> Callable[..., None]:
        """A callback that is dropped when the log it was meant for is no longer open."""
        life = self._life

        def call(*arguments: object) -> None:
            if life == self._life and self.phase is Phase.RUNNING:
                function(*arguments)

        return call

    # ---- what the outside says -----------------------------------------------------------------------------------

    def receive(self, letter: Letter) -> None:
        """A letter of another node arrived."""
        if len(self._inbox) < INBOX_MAX and self.phase is not Phase.STOPPED:
            self._inbox.append(letter)

    def tick(self) -> None:
        """One tick_ms has passed."""
        if self.phase is Phase.STOPPED:
            return
        self._ticks += 1
        if self._ticks % max(1, HELLO_EVERY_MS // self._config.raft.tick_ms) == 0:
            self._say_hello()
        if self.phase is Phase.RUNNING and self.core is not None:
            self.core.tick()
            self._house.tick()

    def link_lost(self, peer: NodeId) -> None:
        """The connection to a peer broke; what it sent before must not be delivered any more."""
        self._inbox = deque(letter for letter in self._inbox if letter.source != peer)
        if self.core is not None:
            self.core.link_lost(peer)

    def send(self, request: SendRequest, reply: Reply) -> None:
        """Store a sub-batch; the reply comes when its fate is known, or never."""
        error = self.refusal if self._leads() else self._not_leader()
        if error is None:
            self._proposer.send(request, reply)
        else:
            reply(SendResult(Outcome.REFUSED, error=error))

    def create_topic(self, name: str, queues: int, reply: Reply, perm: int = 6) -> None:
        """Create a topic or change its number of queues."""
        self._order(Order(topic_set(name, queues, queues, perm), name, reply))

    def delete_topic(self, name: str, reply: Reply) -> None:
        """Delete a topic with its messages."""
        self._order(Order(topic_delete(name), name, reply))

    def propose_log_start(self, position: int, reply: Reply = lambda result: None) -> None:
        """Let the log begin at the segment of `position`, on every node."""
        limit = min(position, self._house.log_start_limit()) if self._leads() else 0
        self._order(Order(log_start(limit - limit % self._config.store.segment_bytes), None, reply))

    def read_index(self, reply: Callable[[ReadResult], None]) -> None:
        """Answer when this node's applied state is recent enough for a linearizable read."""
        if self.core is None or not self._leads() or not self.core.read_index(reply):
            reply(ReadResult(Outcome.REFUSED, error=self._not_leader()))

    def transfer(self, target: NodeId) -> bool:
        """Hand leadership over; False when that makes no sense now."""
        return self.core is not None and self._leads() and self.core.transfer(target)

    def change_membership(self, change: Change, reply: Callable[[bool], None]) -> None:
        """Change the group; a learner is added under the incarnation it said hello with."""
        core = self.core
        if change.kind is ChangeKind.ADD_LEARNER and not change.incarnation:
            change = change._replace(incarnation=self._strangers.get(change.node, Incarnation(0)))
        known = change.kind is not ChangeKind.ADD_LEARNER or change.incarnation
        if core is None or not known or core.change(change, _membership_entry_bytes) is None:
            reply(False)
            return
        pending = Pending(-1, core.memberships.latest_position, core.end, core.term)
        pending.replies.append(reply)
        self._proposer.pending.add(pending)

    def _order(self, order: Order) -> None:
        if self._leads():
            self._proposer.order(order)
        else:
            order.reply(SendResult(Outcome.REFUSED, error=self._not_leader()))

    def _leads(self) -> bool:
        return self.core is not None and self.core.role is Role.LEADER and self.phase is Phase.RUNNING

    def _not_leader(self) -> MQError:
        return NotLeader(leader=self.core.leader if self.core is not None else None)

    # ---- a turn --------------------------------------------------------------------------------------------------

    def turn(self) -> bool:
        """Do what is to be done now; True when a part of it is left for the next turn."""
        try:
            while self._inbox and self.phase is not Phase.STOPPED:
                self._open_letter(self._inbox.popleft())
            if self.phase is Phase.RUNNING:
                return self._run_turn()
        except DiskError as error:
            self.fail(str(error))
        except (Diverged, UnknownCommand, DamagedState) as error:
            self.fail(f"{error}")
        return False

    def _run_turn(self) -> bool:
        core = self.core
        assert core is not None
        self._drain()
        self._watch_leadership(core)
        while self._proposer.propose(core, self._time_ms()):
            self._drain()
        more = self._apply(core)
        if self.phase is Phase.RUNNING:
            self._watch_leadership(core)
            self._syncs.pump()
            self._house.turn()
            assert self.applied <= core.commit <= core.end == self.log.end, (self.applied, core.commit, core.end)
        return more

    def _watch_leadership(self, core: RaftCore) -> None:
        own_term = core.epochs.term_before(LogPosition(self.applied)) == core.term
        self._proposer.watch(
            core, self.state, leads=self._leads(), own_term_applied=own_term, gone=self._not_leader()
        )

    def _drain(self) -> None:
        """Do what the core asks, until it asks for nothing."""
        while self.core is not None and (ready := self.core.ready()) is not None:
            self._obey(ready)

    def _obey(self, ready: Ready) -> None:
        if ready.handover is not None:
            self._install(ready.handover)
        if ready.truncate_to is not None:
            self._truncate(ready.truncate_to)
        for write in ready.writes:
            self._write(write)
        for message in ready.messages:
            self._poster.post(message)
        if ready.mark is not None:
            self._syncs.want(ready.hard_state, ready.mark, list(ready.after_sync))
            self._syncs.pump()
        for answer in ready.reads:
            reply = answer.token
            assert callable(reply)
            if answer.position is None:
                reply(ReadResult(Outcome.REFUSED, error=self._not_leader()))
            else:
                self._reads.append((answer.position, reply))
        for event in ready.events:
            self._on_event(event)

    def _synced(self, result: Synced | Exception) -> None:
        if isinstance(result, Exception):
            self.fail(f"{result}")
            return
        assert self.core is not None
        for message in result.messages:
            self._poster.post(message)
        self.core.synced(result.mark)

    def _truncate(self, to: int) -> None:
        """Lower the watermark first: a cut that broke off must not look like damage."""
        saved = self._marks.saved
        if saved.durable > to:
            self._marks.set(Watermarks(to, min(saved.commit, to), self.log.chain_at(to)))
        self.log.truncate(to)

    def _write(self, write: Write) -> None:
        log, token = self.log, write.token
        assert write.position == log.end, (write, log.end)
        if write.kind is WriteKind.RAW:
            assert isinstance(token, Received)
            log.append_raw(write.token_start, token.payload, write.position - write.token_start, token.extent)
        elif write.kind is WriteKind.DATA:
            assert isinstance(token, Composition)
            log.append_entry(write.term, token.time_ms, EntryKind.DATA, token.body)
        elif write.kind is WriteKind.BLANK:
            log.fill_blank(write.term, log.end_time_ms)
        else:
            kind, body = EntryKind.NOOP, b""
            if write.kind is WriteKind.MEMBERSHIP:
                kind, body = EntryKind.MEMBERSHIP, encode_membership(token)  # type: ignore[arg-type]
            log.append_entry(write.term, self._time_ms(), kind, body)
        assert log.end == write.end, (write, log.end)

    def _time_ms(self) -> int:
        """Leader time never goes back along the log, whatever the clock does."""
        return max(self._clock.now_ms(), self.log.end_time_ms)

    # ---- applying ------------------------------------------------------------------------------------------------

    def _apply(self, core: RaftCore) -> bool:
        """Bring committed entries into force: state, queues, index; True when some are left for the next turn."""
        if self.applied < core.commit:
            stop = self.applied + APPLY_BYTES_MAX
            try:
                for header, body in self.log.entries(self.applied, core.commit):
                    self._apply_entry(header, body)
                    self.applied, self.applied_time_ms = header.end, header.time_ms
                    if header.end >= stop:
                        break
            except CorruptEntry as error:
                self.damaged(Damage(error.position, error.reason, core.durable))
                return False
        self._proposer.pending.complete(self.applied, core.epochs.term_at)
        if self._reads:
            due = [(position, reply) for position, reply in self._reads if position <= self.applied]
            self._reads = [(position, reply) for position, reply in self._reads if position > self.applied]
            for position, reply in due:
                reply(ReadResult(Outcome.DONE, position))
        return self.applied < core.commit

    def _apply_entry(self, header: entry.Header, body: memoryview) -> None:
        known = header.position < self.state.position  # control state came by snapshot and is ahead of the log
        if header.kind != EntryKind.DATA:
            if not known:
                self.state.advance(header.end)
            return
        preamble = parse_preamble(body)
        if known:
            shows = self.state.shows
            self.derived.dispatch(
                header.position, header.time_ms, preamble, lambda topic: shows(topic, header.position)
            )
            return
        for topic in self.state.apply(header.position, header.end, preamble):
            self.derived.delete_topic(topic)
        self.derived.dispatch(header.position, header.time_ms, preamble)

    # ---- letters -------------------------------------------------------------------------------------------------

    def _open_letter(self, letter: Letter) -> None:
        body = letter.body
        if isinstance(body, Message):
            if self.phase is Phase.RUNNING:
                self._step(body)
        elif isinstance(body, Hello):
            self._heard_hello(letter, body)
        elif isinstance(body, RepairAsk):
            self._give(letter.source, body.position)
        elif isinstance(self._fence, Repairing) and self._fence.take(letter.source, body, self.node):
            self._after_repair(self._fence)

    def _step(self, message: Message) -> None:
        assert self.core is not None
        try:
            if message.kind is Kind.APPEND:
                message = read_append(message, self.core.epochs, self.log)
            elif message.kind is Kind.HANDOVER:
                if self._house.checkpointing:
                    return  # two writers of snapshots; the leader sends it again
                message = read_handover(message)
        except (CorruptEntry, DamagedState) as error:
            self.event("letter_refused", source=message.source, reason=str(error))
            return
        self.core.step(message)
        if message.kind is Kind.APPEND or message.kind is Kind.HANDOVER:
            self._drain()  # a truncation must be on disk before the next message writes over it

    def _install(self, message: Message) -> None:
        """A hand-over: the record first, then the reset; whatever a crash leaves, the next start can tell."""
        control = message.payload
        assert isinstance(control, ControlSnapshot)
        self._marks.set(Watermarks(0, 0, 0))  # the old log proves nothing about the new snapshot
        snapshot.write(self._disk, control)
        self.derived.clear()
        self.log.reset(control.log_start, control.base_chain)
        self._marks.set(Watermarks(control.log_start, control.log_start, control.base_chain))
        self.control, self.state = control, StateMachine.restore(control.state)
        self.applied = control.log_start
        self._proposer.pending.forget_below(control.log_start)

    # ---- before consensus: forming, joining, repairing -----------------------------------------------------------

    def _genesis(self) -> tuple[tuple[NodeId, Incarnation], ...] | None:
        if self.phase is Phase.RUNNING and self.state.genesis:
            return tuple((NodeId(n), Incarnation(i)) for n, i in self.state.genesis)
        return None

    def _say_hello(self) -> None:
        if isinstance(self._fence, Repairing):
            for peer in self._fence.whom_to_ask(self.node):
                self._mail(peer, RepairAsk(self._fence.position))
        if self.phase is Phase.REPAIRING:
            return
        member = self.core is not None and self.core.membership.incarnations.get(self.node) == self.incarnation
        if not member:
            known = self.core.membership.nodes if self.core is not None else ()
            for peer in sorted({NodeId(v) for v in self._config.node.voters} | set(known)):
                if peer != self.node:
                    self._mail(peer, Hello(self._genesis(), answer_wanted=self.phase is Phase.FORMING))

    def _heard_hello(self, letter: Letter, hello: Hello) -> None:
        if hello.answer_wanted and self.phase is not Phase.REPAIRING:
            self._mail(letter.source, Hello(self._genesis(), answer_wanted=False))
        if isinstance(self._fence, Forming):
            self._fence.heard(letter.source, letter.incarnation, hello)
            self._try_form()
        elif self.core is not None and not hello.answer_wanted:
            if self.core.membership.incarnations.get(letter.source) != letter.incarnation:
                self._strangers[letter.source] = letter.incarnation
                if self.core.serving and letter.source in self.core.membership.incarnations:  # a wiped member returns
                    change = Change(ChangeKind.ADD_LEARNER, letter.source, letter.incarnation)
                    self.change_membership(change, lambda accepted: None)

    def _try_form(self) -> None:
        """Form the group when all its voters are empty, enter it when it exists, join it when it knows another self."""
        assert isinstance(self._fence, Forming)
        genesis = self._fence.genesis()
        if genesis is not None:
            self._records = self._records._replace(snapshot=form(self._disk, genesis))
            self.event("formed", voters=",".join(node for node, _ in genesis))
        if genesis is not None or self._fence.must_join:
            self._recover()

    def _give(self, asker: NodeId, position: LogPosition) -> None:
        """Entries for a damaged node: whatever verifies here."""
        if isinstance(self._fence, Repairing):
            self._mail(asker, self._fence.give(position))
        elif self.core is not None and self.phase is Phase.RUNNING:
            payload = entries_from(self._disk, self._config.store.segment_bytes, position, self.core.durable)
            self._mail(asker, RepairGive(position, self.core.commit, payload))

    def _after_repair(self, fence: Repairing) -> None:
        """Bytes were mended, or nobody has them: look again, or go on without them as a fenced node."""
        self.event("repaired", position=fence.position, lost=fence.lost)
        self._records = load_records(self._disk, self._config, self._random)
        if fence.lost:
            self._run(open_log(self._disk, self._config, self._records, fence.good_part))
        else:
            self._recover(whole=fence.whole)

    def _mail(self, target: NodeId, body: Hello | RepairAsk | RepairGive) -> None:
        self._peers.send(Letter(self.node, target, self.incarnation, body))

    def event(self, name: str, **fields: object) -> None:
        self._on_event(Event(name, tuple(fields.items())))


def _membership_entry_bytes(membership: Membership) -> int:
    return ENVELOPE_BYTES + len(encode_membership(membership))
