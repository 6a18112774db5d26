"""Replica: the shell around RaftCore: inbox -> step -> ready -> write, send, sync -> apply.

    receive, send, tick ---> turn():  step the inbox, propose what waits, do what the core asks, apply what is committed

Law: one thread owns a Replica and nothing awaits inside a turn; slow work goes through lanes and comes back as a call.
What a Ready asks is done in its order. A failed write or sync, or an entry that cannot be followed, stops the replica:
it says why and acknowledges nothing more. Bytes that no longer verify fence it until a peer has repaired them.
Asserted every turn: applied <= commit <= end, durable <= end; commit and applied never go back.
Does not know: sockets, clients, names of files."""

import re
from collections import deque
from collections.abc import Callable
from random import Random
from typing import TypeVar

from broker.applying import Applier, WrongDerived
from broker.codec import encode_membership
from broker.config import BrokerConfig
from broker.fencing import Forming, Repairing
from broker.greeting import Greeter
from broker.housekeeping import Housekeeping
from broker.mail import Poster, known_chain, read_append, read_handover
from broker.opening import Opened, check_owner, check_room, form, load_records, open_derived, open_log, scan_log
from broker.pending import Pending
from broker.ports import (
    Hello,
    Letter,
    Outcome,
    Peers,
    Phase,
    ReadResult,
    RepairAsk,
    Reply,
    SendRequest,
    SendResult,
)
from broker.proposing import Order, Proposer
from broker.state.commands import UnknownCommand, log_start, topic_delete, topic_set
from broker.state.machine import Diverged, StateMachine
from broker.syncing import Synced, SyncRounds, Watermarker
from broker.writing import Writer
from dledger.core import ENVELOPE_BYTES, CoreConfig, RaftCore, Role
from dledger.membership import Change, ChangeKind, Membership
from dledger.messages import Kind, Message
from dledger.ready import Event, Ready
from model.clock import Clock
from model.errors import MessageIllegal, MQError, NotLeader, Refused
from model.ids import Incarnation, LogPosition, NodeId
from model.ports import Lane
from store import entry
from store.commitlog import CommitLog
from store.disk import Disk, DiskError
from store.entry import CorruptEntry
from store.hardstate import DamagedState, Watermarks
from store.scan import Damage
from store.snapshot import ControlSnapshot

T = TypeVar("T")
TOPIC_NAME = re.compile(r"[%|a-zA-Z0-9_-]{1,127}")  # names become directories: nothing else may get through
QUEUES_MAX = 65_535
INBOX_MAX = 1024  # letters; a turn must end within one tick even at 20 us each. What does not fit is lost, as on a wire
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
        self.refusal: MQError | None = None  # why sends are refused although this node leads (disk almost full)
        self.control: ControlSnapshot | None = None  # the newest on disk
        self._fence: Forming | Repairing | None = None
        self._inbox: deque[Letter] = deque()
        self._proposer = Proposer(config.store.entry_bytes_limit, store_host)
        self._reads: list[tuple[int, Callable[[ReadResult], None]]] = []
        self._greeter = Greeter(self, config, disk, peers)
        self._life = 0  # callbacks of lanes from before a repair are not for the log that is open now

    @property
    def state(self) -> StateMachine:
        """The replicated state, as far as it is applied."""
        return self._applier.state

    @property
    def applied(self) -> int:
        """State and derived files hold every entry below this position."""
        return self._applier.applied

    @property
    def applied_time_ms(self) -> int:
        """Leader time of the last applied entry."""
        return self._applier.time_ms

    # ---- life ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Open the directory; raises StoreError or DiskError when it cannot be used, with nothing changed."""
        check_owner(self._disk, self._config)
        check_room(self._disk)
        self._disk.lock()
        try:
            self._records = load_records(self._disk, self._config, self._random)
            self.incarnation = Incarnation(self._records.identity.incarnation)
            self._disk.replace("abort", b"")  # removed by a clean stop
            if self._records.snapshot is None:
                self._fence = Forming(self.node, self.incarnation, tuple(NodeId(v) for v in self._config.node.voters))
                self._try_form()
            else:
                self._recover()
        except BaseException:
            self._disk.unlock()
            raise

    def stop(self) -> None:
        """A clean end: what is written is synced and checkpointed, so that the next start has nothing to scan.

        Its owner has let the lanes finish before: a job must not write after the lock is gone."""
        if self.phase is Phase.STOPPED:
            return
        clean = self.phase is not Phase.REPAIRING
        try:
            if self.phase is Phase.RUNNING and self.core is not None:
                self._disk.sync(self.log.begin_sync())
                self._house.close()
            self._shut("stopped")
            if clean:
                self._disk.remove("abort")
                self._disk.sync_dir("")
        except DiskError as error:  # as after a crash: the next start verifies what is there
            self.fail(f"{error}")
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
        self.control = opened.control
        self.derived, applied = open_derived(self._disk, store, opened)
        if self.derived.damage is not None:
            self.event("derived_files_dropped", reason=str(self.derived.damage))
        self._applier = Applier(self.log, self.derived, opened.state, applied, opened.control)
        self._marks = Watermarker(self._records.mark_file, self._records.marks)
        self._writer = Writer(self._disk, self.log, self._marks, self._clock)
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
        self._start_over("the log of this node is damaged", whole=True)

    def rebuild(self, why: str) -> None:
        """A queue or index file contradicts the log: behave like a crashed node, whose next start dispatches anew."""
        self.event("damage_met", position=self.applied, reason=why)
        self.derived.distrust()
        self._start_over("the queues of this node are being rebuilt", whole=False)

    def _start_over(self, why: str, *, whole: bool) -> None:
        marks = self._house.known_marks()  # what was synced stays known, or damage would pass for a torn tail
        self.phase, self.core = Phase.REPAIRING, None
        self._life += 1
        self._proposer.end_leading(Stopped(why))
        life = self._life

        def idle(result: object) -> None:  # what the lanes were doing with the old log has ended
            if life == self._life and self.phase is Phase.REPAIRING:
                self._guarded(lambda: self._reopen(whole, marks))

        self._sync_lane.submit(lambda: None, lambda result: self.background.submit(lambda: None, idle))

    def _reopen(self, whole: bool, marks: Watermarks | None) -> None:
        if marks is not None:
            self._marks.set(marks)
        self.log.close()
        self.derived.close()
        self._records = load_records(self._disk, self._config, self._random)
        self._recover(whole=whole)

    def here(self, function: Callable[..., None]) -> Callable[..., None]:
        """A callback that is dropped when the log it was meant for is no longer open."""
        life = self._life

        def call(*arguments: object) -> None:
            if life == self._life and self.phase is Phase.RUNNING:
                self._guarded(lambda: function(*arguments))

        return call

    def _guarded(self, work: Callable[[], T]) -> T | None:
        """Do some work; a failing disk or an entry that cannot be followed stops the replica, damage fences it."""
        try:
            return work()
        except (DiskError, Diverged, UnknownCommand, DamagedState) as error:
            self.fail(f"{error}")
        except CorruptEntry as error:
            self.damaged(Damage(error.position, error.reason, error.position))
        except WrongDerived as error:
            self.rebuild(str(error))
        return None

    # ---- what the outside says -----------------------------------------------------------------------------------

    def receive(self, letter: Letter) -> None:
        """A letter of another node arrived."""
        if len(self._inbox) < INBOX_MAX and self.phase is not Phase.STOPPED:
            self._inbox.append(letter)

    def tick(self) -> None:
        """One tick_ms has passed."""
        if self.phase is not Phase.STOPPED:
            self._guarded(self._tick)

    def _tick(self) -> None:
        self._greeter.tick(self._fence)
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
        if not TOPIC_NAME.fullmatch(name) or not 0 < queues <= QUEUES_MAX:
            error = MessageIllegal(f"a topic is named by 1 to 127 of [%|a-zA-Z0-9_-] and has 1 to {QUEUES_MAX} queues")
            reply(SendResult(Outcome.REFUSED, error=error))
            return
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
            change = change._replace(incarnation=self._greeter.strangers.get(change.node, Incarnation(0)))
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
        return bool(self._guarded(self._turn))

    def _turn(self) -> bool:
        while self._inbox and self.phase is not Phase.STOPPED:
            self._open_letter(self._inbox.popleft())
        return self.phase is Phase.RUNNING and self._run_turn()

    def _run_turn(self) -> bool:
        core = self.core
        assert core is not None
        self._drain()
        self._watch_leadership(core)
        while self._proposer.propose(core, self._writer.time_ms()):
            self._drain()
        more = self._apply(core)
        self._watch_leadership(core)
        self._syncs.pump()
        self._house.turn()
        assert self.applied <= core.commit <= core.end == self.log.end, (self.applied, core.commit, core.end)
        return more

    def _watch_leadership(self, core: RaftCore) -> None:
        leads = self._leads()
        if leads or not self._proposer.idle:
            own_term = core.epochs.term_before(LogPosition(self.applied)) == core.term
            self._proposer.watch(core, self.state, leads=leads, own_term_applied=own_term, gone=self._not_leader())

    def _drain(self) -> None:
        """Do what the core asks, until it asks for nothing."""
        while self.core is not None and (ready := self.core.ready()) is not None:
            self._obey(ready)

    def _obey(self, ready: Ready) -> None:
        if ready.handover is not None:
            self._install(ready.handover)
        if ready.truncate_to is not None:
            self._writer.truncate(ready.truncate_to)
        for write in ready.writes:
            self._writer.write(write)
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

    def _apply(self, core: RaftCore) -> bool:
        """Bring committed entries into force and answer who waited; True when some are left for the next turn."""
        more = self._applier.advance(core.commit)
        self._proposer.pending.complete(self.applied, core.epochs.term_at)
        if self._reads:
            due = [read for read in self._reads if read[0] <= self.applied]
            self._reads = [read for read in self._reads if read[0] > self.applied]
            for position, reply in due:
                reply(ReadResult(Outcome.DONE, position))
        return more

    # ---- letters -------------------------------------------------------------------------------------------------

    def _open_letter(self, letter: Letter) -> None:
        body = letter.body
        if isinstance(body, Message):
            if self.phase is Phase.RUNNING:
                self._step(body)
        elif isinstance(body, Hello):
            self._heard_hello(letter, body)
        elif isinstance(body, RepairAsk):
            self._greeter.give(self._fence, letter.source, body.position)
        elif isinstance(self._fence, Repairing) and self._fence.take(letter.source, body, self.node):
            self._after_repair(self._fence)

    def _step(self, message: Message) -> None:
        assert self.core is not None
        chain = None
        if message.kind is Kind.APPEND or message.kind is Kind.HANDOVER:
            self._drain()  # the own no-op of a won election may still wait to be written: it may be what is cut here
            chain = known_chain(message, self.core.epochs, self.log)
        try:
            if message.kind is Kind.APPEND:
                message = read_append(message, chain)
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
        """A hand-over replaces log, derived files and state."""
        control = self._writer.install(message, self.derived)
        self.control = control
        self._applier = Applier(self.log, self.derived, StateMachine.restore(control.state), control.log_start, None)
        self._proposer.pending.forget_below(control.log_start)

    # ---- before consensus: forming, joining, repairing -----------------------------------------------------------

    def _heard_hello(self, letter: Letter, hello: Hello) -> None:
        if isinstance(self._fence, Forming):
            self._fence.heard(letter.source, letter.incarnation, hello)
        self._greeter.heard(self._fence, letter, hello)
        if isinstance(self._fence, Forming):
            self._try_form()

    def _try_form(self) -> None:
        """Form the group when all its voters are empty, enter it when it exists, join it when it knows another self."""
        assert isinstance(self._fence, Forming)
        genesis = self._fence.genesis()
        if genesis is not None:
            self._records = self._records._replace(snapshot=form(self._disk, genesis))
            self.event("formed", voters=",".join(node for node, _ in genesis))
        if genesis is not None or self._fence.must_join:
            self._recover()

    def _after_repair(self, fence: Repairing) -> None:
        """Bytes were mended, or nobody has them: look again, or go on without them as a fenced node."""
        self.event("repaired", position=fence.position, lost=fence.lost)
        self._records = load_records(self._disk, self._config, self._random)
        if fence.lost:
            self._run(open_log(self._disk, self._config, self._records, fence.good_part))
        else:
            self._recover(whole=fence.whole)

    def event(self, name: str, **fields: object) -> None:
        self._on_event(Event(name, tuple(fields.items())))


def _membership_entry_bytes(membership: Membership) -> int:
    return ENVELOPE_BYTES + len(encode_membership(membership))
