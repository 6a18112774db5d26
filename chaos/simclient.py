"""Clients of a simulated group: producers that retry with the same identity, anonymous ones that do not, readers.

    invoke --> attempt --> done: ok     refused: again, perhaps elsewhere     silence: again elsewhere, and now unknown
                                        (anonymous: fail)                     (anonymous: unknown)

Law: a client knows only what it was told. A send that was ever unanswered is never recorded as failed; a numbered
sub-batch is repeated with the same number until it is answered or the run ends.
Does not know: who leads (it follows hints), what faults there are."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from broker.ports import Outcome, ReadResult, SendRequest, SendResult
from broker.state.dedup import ANSWERS_KEPT
from chaos.history import History, Op, OpPhase
from chaos.sim import MS_US, World
from chaos.simcluster import Cluster, SimNode
from chaos.simmessages import TOPIC, label_of, make_send
from model.errors import NotLeader
from model.ids import NodeId

TIMEOUT_US = 1_500 * MS_US
BACKOFF_US = (5 * MS_US, 60 * MS_US)
WIRE_US = (100, 3_000)
READ_EVERY_US = 70 * MS_US
LABEL_SHORTEST = 16  # bytes of a body: the label must fit

Answer = Callable[[SendResult | None], None]  # None: nobody there


class Wire:
    """The way between clients and nodes."""

    def __init__(self, world: World, cluster: Cluster, loss: float) -> None:
        self.loss = loss
        self._world = world
        self._cluster = cluster

    def call(self, target: NodeId, request: Callable[[SimNode], None], refused: Callable[[], None]) -> None:
        """Bring a request to a node, or learn after a while that nobody is there, or learn nothing."""
        if self._world.chance(self.loss):
            return
        self._world.after(self._world.between(*WIRE_US), partial(self._arrive, target, request, refused))

    def _arrive(self, target: NodeId, request: Callable[[SimNode], None], refused: Callable[[], None]) -> None:
        node = self._cluster.nodes[target]
        if node.replica is None:
            self._world.after(self._world.between(*WIRE_US), refused)
        else:
            node.run(partial(request, node))

    def answer(self, function: Callable[[], None]) -> None:
        """Bring an answer back, or lose it."""
        if not self._world.chance(self.loss):
            self._world.after(self._world.between(*WIRE_US), function)


class Send:
    """One sub-batch on its way."""

    __slots__ = ("attempt", "labels", "number", "open", "request", "unknown")

    def __init__(self, number: int, request: SendRequest, labels: tuple[str, ...]) -> None:
        self.number = number
        self.request = request
        self.labels = labels
        self.attempt = 0
        self.open = True
        self.unknown = False  # an attempt was not answered: it may have been stored


class Client:
    """What all clients share: a name, a guess who leads, a history."""

    def __init__(self, world: World, cluster: Cluster, wire: Wire, history: History, name: str) -> None:
        self.name = name
        self.busy = True  # cleared when no new operations are wanted
        self._world = world
        self._wire = wire
        self._history = history
        self._nodes = list(cluster.nodes)
        self._target = self._nodes[0]
        self._number = 0

    def _record(self, number: int, phase: OpPhase, what: str, queue: int, **fields: object) -> None:
        self._history.add(Op(self._world.now_us, self.name, number, phase, what, queue, **fields))  # type: ignore[arg-type]

    def _elsewhere(self) -> None:
        self._target = self._world.random.choice(self._nodes)

    def _hinted(self, error: object) -> None:
        hint = error.leader if isinstance(error, NotLeader) else None
        if hint is not None and hint in self._nodes and self._world.chance(0.9):
            self._target = NodeId(hint)
        else:
            self._elsewhere()


class ProducerPlan(NamedTuple):
    """How a producer behaves."""

    identity: bool
    queues: int
    window: int
    batch_max: int
    body_max: int
    think_us: int


class Producer(Client):
    """Sends sub-batches, `window` of them in flight, each numbered per queue."""

    def __init__(
        self, world: World, cluster: Cluster, wire: Wire, history: History, name: str, plan: ProducerPlan
    ) -> None:
        super().__init__(world, cluster, wire, history, name)
        self._plan = plan
        self._sequences = [0] * plan.queues
        self.open: dict[int, Send] = {}
        self.acknowledged = 0
        world.after(world.between(0, plan.think_us), self._think)

    def _think(self) -> None:
        if self.busy:
            if len(self.open) < self._plan.window:
                self.send_fresh()
            self._world.after(self._world.between(1, 2 * self._plan.think_us), self._think)

    def send_fresh(self) -> None:
        """Begin a new sub-batch."""
        world, plan = self._world, self._plan
        queue = world.between(0, plan.queues - 1)
        sequence = self._sequences[queue]
        oldest = min((send.request.sequence for send in self.open.values() if send.request.queue == queue), default=-1)
        if plan.identity and oldest >= 0 and sequence - oldest >= ANSWERS_KEPT:
            return  # the group keeps so many answers; a client that runs ahead of an open one would lose it
        self._sequences[queue] += 1
        sizes = [world.between(LABEL_SHORTEST, plan.body_max) for _ in range(world.between(1, plan.batch_max))]
        request, labels, crcs = make_send(self.name, queue, sequence, sizes, world.random, identity=plan.identity)
        self._number += 1
        send = self.open[self._number] = Send(self._number, request, labels)
        self._record(send.number, OpPhase.INVOKE, "send", queue, labels=labels, crcs=crcs)
        self._try(send)

    def _try(self, send: Send) -> None:
        if not send.open:
            return
        send.attempt += 1
        attempt, target = send.attempt, self._target
        answer = partial(self._answered, send, attempt, target)

        def request(node: SimNode) -> None:
            assert node.replica is not None
            node.replica.send(send.request, lambda result: self._wire.answer(partial(answer, result)))

        self._wire.call(target, request, partial(answer, None))
        if self._plan.identity and self._world.chance(0.03):  # what has no identity cannot be told from a second send
            self._wire.call(target, request, lambda: None)
        self._world.after(TIMEOUT_US, partial(self._timed_out, send, attempt))

    def _answered(self, send: Send, attempt: int, target: NodeId, result: SendResult | None) -> None:
        if not send.open:
            return
        if result is not None and result.outcome is Outcome.DONE:
            self._end(send, OpPhase.OK, offset=result.offset, position=result.position, node=target)
        elif attempt != send.attempt:
            return  # an answer to an earlier attempt: the later one is on its way
        elif result is not None and result.outcome is Outcome.UNKNOWN:
            self._timed_out(send, attempt)
        else:
            self._hinted(None if result is None else result.error)
            if not self._plan.identity and not send.unknown:
                self._end(send, OpPhase.FAIL)
            else:
                send.attempt += 1  # the timer of the answered attempt is void
                self._world.after(self._world.between(*BACKOFF_US), partial(self._try, send))

    def _timed_out(self, send: Send, attempt: int) -> None:
        if not send.open or attempt != send.attempt:
            return
        send.unknown = True
        self._elsewhere()
        if self._plan.identity:
            self._try(send)
        else:
            self._end(send, OpPhase.UNKNOWN)

    def _end(self, send: Send, phase: OpPhase, **fields: object) -> None:
        send.open = False
        del self.open[send.number]
        self.acknowledged += len(send.labels) if phase is OpPhase.OK else 0
        self._record(send.number, phase, "send", send.request.queue, **fields)

    def close(self) -> None:
        """The run is over: what is still open was refused every time, or nobody knows."""
        self.busy = False
        for send in list(self.open.values()):
            # The last attempt may be under way: only what was refused and not tried again is known to be absent.
            self._end(send, OpPhase.UNKNOWN)


class Reader(Client):
    """Asks for a read index, then looks at a queue of the node that answered."""

    def __init__(self, world: World, cluster: Cluster, wire: Wire, history: History, name: str, queues: int) -> None:
        super().__init__(world, cluster, wire, history, name)
        self._queues = queues
        self._open = 0  # number of the read under way
        world.after(world.between(0, READ_EVERY_US), self._think)

    def _think(self) -> None:
        if not self.busy:
            return
        self._world.after(self._world.between(1, 2 * READ_EVERY_US), self._think)
        if self._open:
            return
        self._number += 1
        if self._world.chance(0.3):
            self._elsewhere()  # perhaps to somebody who only believes that he leads
        number, queue, target = self._number, self._world.between(0, self._queues - 1), self._target
        self._open = number
        self._record(number, OpPhase.INVOKE, "read", queue)

        def request(node: SimNode) -> None:
            assert node.replica is not None
            node.replica.read_index(partial(self._look, node, number, queue))

        self._wire.call(target, request, partial(self._done, number, queue, None, None))
        self._world.after(TIMEOUT_US, partial(self._done, number, queue, None, None))

    def _look(self, node: SimNode, number: int, queue: int, result: ReadResult) -> None:
        """At the node, at the moment of its answer."""
        seen = None
        if result.outcome is Outcome.DONE:
            seen = self._see(node, queue)
        self._wire.answer(partial(self._done, number, queue, seen, result))

    def _see(self, node: SimNode, queue: int) -> tuple[int, tuple[tuple[int, str], ...], str]:
        replica = node.replica
        assert replica is not None
        next_offset = replica.state.next_offsets.get((TOPIC, queue), 0)
        derived = replica.derived.queue(TOPIC, queue)
        if derived is None or derived.is_empty:
            return next_offset, (), node.name
        offsets = {derived.max_offset - 1, self._world.between(derived.min_offset, derived.max_offset - 1)}
        seen = []
        for offset in sorted(offsets):
            unit = derived.read_units(offset, 1)[0]
            start, size = int(unit["position"]), int(unit["size"])
            seen.append((offset, label_of(replica.log.read(start, start + size))))
        return derived.max_offset, tuple(seen), node.name  # what a consumer would see

    def _done(
        self, number: int, queue: int, seen: tuple[int, tuple[tuple[int, str], ...], str] | None,
        result: ReadResult | None,
    ) -> None:  # fmt: skip
        if self._open != number:
            return
        self._open = 0
        if seen is not None:
            self._record(number, OpPhase.OK, "read", queue, offset=seen[0], seen=seen[1], node=seen[2])
        else:
            self._record(number, OpPhase.FAIL, "read", queue)
            self._hinted(None if result is None else result.error)


class Founder(Client):
    """Creates the topic, again and again until somebody has done it."""

    def __init__(self, world: World, cluster: Cluster, wire: Wire, history: History, queues: int) -> None:
        super().__init__(world, cluster, wire, history, "founder")
        self._queues = queues
        self.done = False
        self._ask()

    def _ask(self) -> None:
        if self.done:
            return

        def request(node: SimNode) -> None:
            assert node.replica is not None
            node.replica.create_topic(TOPIC, self._queues, lambda result: self._wire.answer(partial(answer, result)))

        def answer(result: SendResult | None) -> None:
            if result is not None and result.outcome is Outcome.DONE:
                self.done = True
            else:
                self._hinted(None if result is None else result.error)

        self._wire.call(self._target, request, partial(answer, None))
        self._world.after(200 * MS_US, self._ask)
