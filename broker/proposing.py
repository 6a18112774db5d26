"""From requests that wait to entries that are proposed to answers that are true.

    send, order ---> waiting ---> judged and numbered (Leading) ---> one entry (Composition) ---> pending ---> answer

Law: all that waits together becomes one entry, up to its bounds. What was never written is refused when leadership
goes; what was written is answered only by what gets committed at its place. Nothing is served before the leader's own
term is applied.
Does not know: the disk, the network, how commit comes about."""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from broker.composing import Composition
from broker.leading import Leading, Wait
from broker.pending import Pending, PendingTable
from broker.ports import Outcome, Reply, SendRequest, SendResult
from broker.state.commands import Command, encode
from broker.state.dedup import Answer
from broker.state.machine import StateMachine
from dledger.core import RaftCore
from model.batch import check
from model.errors import MessageIllegal, MQError, Overloaded, Refused
from store.entry import ENVELOPE_BYTES
from store.preamble import SubBatch, preamble_bytes

WAITING_BYTES_MAX = 64 << 20  # sends not yet proposed; more than a second of disk: refusing is kinder than queueing
UNCOMMITTED_BYTES_MAX = 64 << 20  # proposed beyond commit; else a leader without followers fills its disk
ORDERS_WAITING_MAX = 1024  # commands not yet proposed: people and timers make them, not messages
PRODUCER_BYTES_MAX = 255  # its length is one byte in the preamble
ORDERS_MAX = 8  # commands in one entry: control work stays a small part of it
BATCHES_MAX = 4096  # sub-batches in one entry: their table stays small beside the messages


class Overwritten(Refused):
    """Another leader's entry was committed where this one was written."""

    retriable = True
    do = "send it again"


class Order(NamedTuple):
    """A control command that somebody waits for."""

    command: Command
    topic: str | None  # the topic it changes
    reply: Reply


class _Waiting(NamedTuple):
    request: SendRequest
    reply: Reply


_Numbered = tuple[SendRequest, SubBatch, Pending]


class Proposer:
    """What waits, what is proposed, and who is told."""

    def __init__(self, entry_bytes_limit: int, store_host: bytes) -> None:
        self._entry_bytes_limit = entry_bytes_limit
        self._store_host = store_host
        self._waiting: deque[_Waiting] = deque()
        self._waiting_bytes = 0
        self._orders: deque[Order] = deque()
        self._leading: Leading | None = None
        self.pending = PendingTable()

    @property
    def idle(self) -> bool:
        """Whether nobody waits to be proposed and no leader's view is kept."""
        return self._leading is None and not self._waiting and not self._orders

    # ---- what comes in -------------------------------------------------------------------------------------------

    def send(self, request: SendRequest, reply: Reply) -> None:
        """Let a send wait for the next entry."""
        try:
            self._check(request)
        except MQError as error:
            reply(SendResult(Outcome.REFUSED, error=error))
            return
        self._waiting_bytes += len(request.messages)
        self._waiting.append(_Waiting(request, reply))

    def _check(self, request: SendRequest) -> None:
        """An entry cannot be rejected once it is in the log, so everything about it is judged before."""
        size, columns = len(request.messages), request.columns
        if self._waiting_bytes + size > WAITING_BYTES_MAX:
            raise Overloaded(f"{self._waiting_bytes} bytes wait to be written")
        check(request.messages, columns.lengths, request.topic, request.queue)
        count, keys = len(columns.lengths), int(columns.key_counts.sum())
        if not count == len(columns.tags) == len(columns.key_counts) or keys != len(columns.keys):
            raise MessageIllegal("the columns of the sub-batch contradict one another")
        if len(request.producer) > PRODUCER_BYTES_MAX or not count:
            raise MessageIllegal("the sub-batch is empty or its producer id too long")
        if _entry_bytes(request) > self._entry_bytes_limit - ENVELOPE_BYTES:
            raise MessageIllegal(f"a sub-batch of {size} bytes does not fit an entry")

    def order(self, order: Order) -> None:
        """Let a command wait for the next entry."""
        if len(self._orders) < ORDERS_WAITING_MAX:
            self._orders.append(order)
        else:
            order.reply(SendResult(Outcome.REFUSED, error=Overloaded("too many commands wait to be written")))

    def watch(self, core: RaftCore, state: StateMachine, *, leads: bool, own_term_applied: bool, gone: MQError) -> None:
        """Begin to serve when the own term is applied; refuse what was never written when leadership is gone."""
        if not leads:
            self.end_leading(gone)
        elif self._leading is None:
            if own_term_applied:
                self._leading = Leading(state, core.term)
        else:
            assert self._leading.term == core.term, "a leader of a new term begins with a new view"

    def end_leading(self, error: MQError) -> None:
        """Forget the leader's view; what was never written is refused."""
        self._leading = None
        refused = SendResult(Outcome.REFUSED, error=error)
        while self._waiting:
            self._waiting.popleft().reply(refused)
        while self._orders:
            self._orders.popleft().reply(refused)
        self._waiting_bytes = 0

    # ---- one entry -----------------------------------------------------------------------------------------------

    def propose(self, core: RaftCore, time_ms: int) -> bool:
        """All that waits becomes one entry, up to its bounds; False when nothing can be written now."""
        leading = self._leading
        if not (self._orders or self._waiting) or leading is None or core.transferring:
            return False
        if core.end - core.commit > UNCOMMITTED_BYTES_MAX:
            return False
        orders = [self._orders.popleft() for _ in range(min(len(self._orders), ORDERS_MAX))]
        for order in orders:
            if order.topic is not None:
                leading.topic_changing(order.topic)
        control = encode([order.command for order in orders])
        taken = self._take(leading, self._entry_bytes_limit - ENVELOPE_BYTES - len(control))
        if not orders and not taken:
            return False
        composition = Composition(control, [item[0] for item in taken], [item[1] for item in taken])
        position = core.propose(composition.size, composition)
        assert position is not None
        waiting = [item[2] for item in taken]
        for pending, place in zip(waiting, composition.place(position, time_ms, self._store_host), strict=True):
            pending.stored_at = place
        for order in orders:
            waiting.append(Pending())
            waiting[-1].replies.append(_order_answer(leading, order))
        for pending in waiting:
            pending.position, pending.end, pending.term = position, core.end, core.term
            self.pending.add(pending)
        return True

    def _take(self, leading: Leading, room: int) -> list[_Numbered]:
        """Sends for one entry: judged and numbered in their order, within its size; those of a changing topic stay."""
        taken: list[_Numbered] = []
        stay: list[_Waiting] = []
        while self._waiting and len(taken) < BATCHES_MAX:
            waiting = self._waiting[0]
            need = _entry_bytes(waiting.request)
            if need > room:
                break
            self._waiting.popleft()
            verdict = leading.judge(waiting.request)
            if isinstance(verdict, Wait):
                stay.append(waiting)
                continue
            self._waiting_bytes -= len(waiting.request.messages)
            if verdict is None:
                batch = leading.number(waiting.request)
                verdict = Pending(batch.first_offset)
                leading.proposed(waiting.request, verdict)
                taken.append((waiting.request, batch, verdict))
                room -= need
            if isinstance(verdict, Pending):
                verdict.replies.append(_send_answer(leading, verdict, waiting))
            elif isinstance(verdict, Answer):
                waiting.reply(SendResult(Outcome.DONE, verdict.offset, verdict.position))
            else:
                waiting.reply(SendResult(Outcome.REFUSED, error=verdict))
        self._waiting.extendleft(reversed(stay))
        return taken


def _send_answer(leading: Leading, pending: Pending, waiting: _Waiting) -> Callable[[bool], None]:
    """The view that proposed it is told, never a later one: a twin of this send may be pending there."""

    def answer(stored: bool) -> None:
        leading.applied(waiting.request)
        waiting.reply(SendResult(Outcome.DONE, pending.offset, pending.stored_at) if stored else _overwritten())

    return answer


def _order_answer(leading: Leading, order: Order) -> Callable[[bool], None]:
    def answer(stored: bool) -> None:
        if order.topic is not None:
            leading.topic_changed(order.topic)
        order.reply(SendResult(Outcome.DONE) if stored else _overwritten())

    return answer


def _overwritten() -> SendResult:
    return SendResult(Outcome.REFUSED, error=Overwritten("a later leader's entry was committed in its place"))


def _entry_bytes(request: SendRequest) -> int:
    """What a sub-batch adds to an entry, generously."""
    batch = SubBatch(request.topic, request.queue, 0, 0, request.producer, request.sequence)
    return preamble_bytes(b"", [batch], len(request.columns.lengths), len(request.columns.keys)) + len(request.messages)
