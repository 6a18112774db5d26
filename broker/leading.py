"""The leader's own view: applied state plus what is pending; lives from its applied no-op to its step-down.

Law: message entries cannot be rejected when they are applied, so duplicates, gaps and missing topics are judged here,
on applied state plus what is pending. A duplicate of a pending send attaches to it. A change of a topic is a barrier:
sends to it wait until the change is applied. Next queue offsets are taken from applied state and kept while leading.
Does not know: the log, the disk, the network."""

from typing import NamedTuple

from broker.pending import Pending
from broker.ports import SendRequest
from broker.state.dedup import Answer, Source, Verdict
from broker.state.machine import QueueKey, StateMachine
from model.errors import MessageIllegal, MQError, SequenceGap, TopicMissing
from store.preamble import SubBatch


class Wait(NamedTuple):
    """Not now: the topic is being changed."""


class Leading:
    """Judges and numbers sends while this node leads in `term`."""

    def __init__(self, state: StateMachine, term: int) -> None:
        self.term = term
        self._state = state
        self._next: dict[QueueKey, int] = {}
        self._last: dict[Source, int] = {}  # highest number proposed and not yet applied
        self._pending: dict[tuple[Source, int] | bytes, Pending] = {}
        self._barriers: dict[str, int] = {}  # topic -> changes of it that are not in force yet

    def judge(self, request: SendRequest) -> Pending | Answer | Wait | MQError | None:
        """None: store it. Otherwise what the sender gets instead, or whom it joins."""
        topic = self._state.topics.get(request.topic)
        if request.topic in self._barriers:
            return Wait()
        if topic is None:
            return TopicMissing(f"topic {request.topic!r} does not exist")
        if not 0 <= request.queue < topic.write_queues:
            return MessageIllegal(f"topic {request.topic!r} has {topic.write_queues} queues, none is {request.queue}")
        if not request.producer:
            return None
        if request.sequence < 0:
            return self._pending.get(request.producer) or self._state.dedup.find_key(request.producer)
        source = (request.producer, request.topic, request.queue)
        last = self._last.get(source)
        if last is not None and request.sequence <= last:
            joined = self._pending.get((source, request.sequence))
            if joined is not None:
                return joined
        elif last is not None and request.sequence == last + 1:
            return None
        verdict = self._state.dedup.judge(source, request.sequence)
        if isinstance(verdict, Answer):
            return verdict
        if verdict is Verdict.FRESH and last is None:
            return None
        if verdict is Verdict.FORGOTTEN:
            return Answer(request.sequence, -1, -1)  # stored long ago: done, though where is no longer known
        expected = 1 + (last if last is not None else self._state.dedup.last_sequence(source))
        return SequenceGap(f"this producer's next sub-batch for the queue is {expected}, not {request.sequence}")

    def number(self, request: SendRequest) -> SubBatch:
        """Give a judged send its queue offsets."""
        key = (request.topic, request.queue)
        first = self._next.get(key)
        if first is None:
            first = self._state.next_offsets.get(key, 0)
        count = len(request.columns.lengths)
        self._next[key] = first + count
        if request.producer and request.sequence >= 0:
            self._last[(request.producer, request.topic, request.queue)] = request.sequence
        return SubBatch(request.topic, request.queue, count, first, request.producer, request.sequence)

    def proposed(self, request: SendRequest, pending: Pending) -> None:
        """Remember whom a repeated send should join."""
        if request.producer:
            self._pending[self._identity(request)] = pending

    def applied(self, request: SendRequest) -> None:
        """The send is in applied state now."""
        if request.producer:
            self._pending.pop(self._identity(request), None)
            source = (request.producer, request.topic, request.queue)
            if self._last.get(source) == request.sequence:
                del self._last[source]

    def topic_changing(self, topic: str) -> None:
        """An entry that changes the topic is being proposed: sends to it wait."""
        self._barriers[topic] = self._barriers.get(topic, 0) + 1

    def topic_changed(self, topic: str) -> None:
        """One such entry is in force; a deleted topic's numbers start anew."""
        self._barriers[topic] -= 1
        if not self._barriers[topic]:
            del self._barriers[topic]
        self._next = {key: offset for key, offset in self._next.items() if key[0] != topic}
        self._last = {source: number for source, number in self._last.items() if source[1] != topic}

    @staticmethod
    def _identity(request: SendRequest) -> tuple[Source, int] | bytes:
        if request.sequence < 0:
            return request.producer
        return (request.producer, request.topic, request.queue), request.sequence
