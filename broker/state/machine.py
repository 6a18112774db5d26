"""The replicated state machine: topics, next queue offsets, what producers stored, where the log begins.

Law: `apply` is the only code that changes it, entry by entry; it reads no clock and no configuration, and an entry it
cannot follow stops the node. The control commands of an entry come into force before its messages.
Does not know: files, the network, who leads."""

from typing import Any, NamedTuple

import msgpack

from broker.state.commands import Command, UnknownCommand, decode
from broker.state.dedup import Answer, Dedup
from store.entry import ENVELOPE_BYTES
from store.preamble import Preamble

QueueKey = tuple[str, int]
Genesis = tuple[tuple[str, int], ...]  # (node, incarnation) of the group's first voters: the group's identity


class Diverged(Exception):
    """An entry contradicts the state: a bug or damage that went unnoticed; going on would spread it."""


class Topic(NamedTuple):
    """One topic; messages of that name below `created_at` belong to a deleted one and are never shown."""

    read_queues: int
    write_queues: int
    perm: int
    created_at: int


class StateMachine:
    """State applied to `position`."""

    def __init__(self, genesis: Genesis = ()) -> None:
        self.genesis = genesis
        self.position = 0  # every control command below it is in force
        self.log_start = 0
        self.topics: dict[str, Topic] = {}
        self.next_offsets: dict[QueueKey, int] = {}
        self.last_positions: dict[QueueKey, int] = {}  # of a queue's last sub-batch: tells if its files are complete
        self.last_keys = (-1, 0)  # position of the last entry with keys, and how many; for the same reason
        self.dedup = Dedup()

    def apply(self, position: int, end: int, preamble: Preamble) -> tuple[str, ...]:
        """Bring one data entry into force; the names of topics it deleted."""
        deleted = tuple(self._command(command, position) for command in decode(preamble.control))
        at = position + ENVELOPE_BYTES + preamble.messages_at
        if len(preamble.batches) == 1:
            self._batch(preamble.batches[0], at)
        else:
            first = 0
            for batch in preamble.batches:
                self._batch(batch, at)
                at += int(preamble.lengths[first : first + batch.count].sum())
                first += batch.count
        if len(preamble.keys):
            self.last_keys = (position, len(preamble.keys))
        self.position = end
        return tuple(name for name in deleted if name)

    def advance(self, end: int) -> None:
        """An entry without control or messages (no-op, blank, membership) was passed."""
        self.position = end

    def shows(self, topic: str, position: int) -> bool:
        """Whether messages of this topic at this position belong to the topic that exists now."""
        found = self.topics.get(topic)
        return found is not None and position >= found.created_at

    def _batch(self, batch: Any, at: int) -> None:
        key = (batch.topic, batch.queue)
        expected = self.next_offsets.get(key, 0)
        if batch.topic not in self.topics or batch.first_offset != expected:
            raise Diverged(
                f"the log stores offset {batch.first_offset} of {batch.topic}/{batch.queue}, the state expects "
                f"{expected}{'' if batch.topic in self.topics else ' of a topic that does not exist'}"
            )
        self.next_offsets[key], self.last_positions[key] = expected + batch.count, at
        if batch.sequence >= 0:
            answer = Answer(batch.sequence, batch.first_offset, at)
            self.dedup.store((batch.producer, batch.topic, batch.queue), answer)
        elif batch.producer:
            self.dedup.store_key(batch.producer, batch.topic, Answer(-1, batch.first_offset, at))

    def _command(self, command: Command, position: int) -> str:
        """Apply one command; the name of a topic that is gone, or nothing."""
        match command:
            case ("topic_set", 1, str(name), int(read_queues), int(write_queues), int(perm)):
                old = self.topics.get(name)
                created_at = position if old is None else old.created_at
                self.topics[name] = Topic(read_queues, write_queues, perm, created_at)
                return ""
            case ("topic_delete", 1, str(name)):
                if self.topics.pop(name, None) is None:
                    return ""
                for key in [key for key in self.next_offsets if key[0] == name]:
                    del self.next_offsets[key], self.last_positions[key]
                self.dedup.forget_topic(name)
                return name
            case ("log_start", 1, int(start)):
                if start > self.log_start:
                    self.log_start = start
                    self.dedup.forget_below(start)
                return ""
        raise UnknownCommand(command)

    def snapshot(self) -> bytes:
        """All of it as bytes; equal states give equal bytes."""
        packed: bytes = msgpack.packb(
            {
                "version": 1,
                "genesis": self.genesis,
                "position": self.position,
                "log_start": self.log_start,
                "topics": sorted((name, *topic) for name, topic in self.topics.items()),
                "next_offsets": sorted((*key, offset) for key, offset in self.next_offsets.items()),
                "last_positions": sorted((*key, position) for key, position in self.last_positions.items()),
                "last_keys": self.last_keys,
                "dedup": self.dedup.snapshot(),
            }
        )
        return packed

    @classmethod
    def restore(cls, data: bytes) -> "StateMachine":
        """The inverse of `snapshot`."""
        parts = msgpack.unpackb(data)
        if parts["version"] != 1:
            raise UnknownCommand(("state version", parts["version"]))
        state = cls(tuple((node, incarnation) for node, incarnation in parts["genesis"]))
        state.position, state.log_start = parts["position"], parts["log_start"]
        state.topics = {name: Topic(*topic) for name, *topic in parts["topics"]}
        state.next_offsets = {(topic, queue): offset for topic, queue, offset in parts["next_offsets"]}
        state.last_positions = {(topic, queue): position for topic, queue, position in parts["last_positions"]}
        state.last_keys = (parts["last_keys"][0], parts["last_keys"][1])
        state.dedup.restore(parts["dedup"])
        return state
