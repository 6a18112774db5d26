"""What each producer has stored already, so that a retry gets the first answer again.

Law: a function of committed entries; eviction is decided by log positions and counts, never by time, so every replica
forgets the same thing at the same place. Our clients number their sub-batches per (producer, topic, queue) without
gaps; others are known by a key for as long as the window holds it."""

from collections import deque
from enum import Enum
from typing import Any, NamedTuple

ANSWERS_KEPT = 16  # a client may have this many sub-batches of one queue in flight and still get each answer again
PRODUCERS_MAX = 100_000  # producer queues remembered: about 300 bytes each, so 30 MB at the most
KEYS_MAX = 100_000  # keys of foreign single sends remembered
KEY_WINDOW_BYTES = 256 << 20  # ... and for this much log: minutes at full speed, days when idle

Source = tuple[bytes, str, int]  # producer, topic, queue


class Answer(NamedTuple):
    """What the first send of this sub-batch was told."""

    sequence: int
    offset: int
    position: int


class Verdict(Enum):
    """What to do with a numbered sub-batch that is not stored yet as far as this table knows."""

    FRESH = "fresh"
    GAP = "gap"  # an earlier number is missing: storing it would break the producer's order
    FORGOTTEN = "forgotten"  # stored long ago, the answer is no longer kept


class _Recent:
    __slots__ = ("answers", "last")

    def __init__(self, answers: list[Answer]) -> None:
        self.answers = deque(answers, ANSWERS_KEPT)
        self.last = answers[-1]


class Dedup:
    """The table of producers and keys."""

    def __init__(self) -> None:
        self._producers: dict[Source, _Recent] = {}  # least recently used first
        self._keys: dict[bytes, tuple[str, Answer]] = {}  # with the topic; oldest first

    def last_sequence(self, source: Source) -> int:
        """The highest stored number of this producer in this queue; -1 for none."""
        recent = self._producers.get(source)
        return -1 if recent is None else recent.last.sequence

    def judge(self, source: Source, sequence: int) -> Answer | Verdict:
        """Whether this number is next, stored already (then with its answer), or out of line."""
        recent = self._producers.get(source)
        last = -1 if recent is None else recent.last.sequence
        if sequence > last:
            return Verdict.FRESH if sequence == last + 1 else Verdict.GAP
        assert recent is not None
        return next((answer for answer in recent.answers if answer.sequence == sequence), Verdict.FORGOTTEN)

    def find_key(self, key: bytes) -> Answer | None:
        """The answer given to a foreign send with this key, while the window holds it."""
        found = self._keys.get(key)
        return None if found is None else found[1]

    def store(self, source: Source, answer: Answer) -> None:
        """A numbered sub-batch was committed."""
        recent = self._producers.pop(source, None)
        if recent is None:
            recent = _Recent([answer])
        else:
            recent.answers.append(answer)
            recent.last = answer
        self._producers[source] = recent
        if len(self._producers) > PRODUCERS_MAX:
            del self._producers[next(iter(self._producers))]

    def store_key(self, key: bytes, topic: str, answer: Answer) -> None:
        """A keyed send was committed."""
        self._keys[key] = topic, answer
        oldest = next(iter(self._keys))
        while len(self._keys) > KEYS_MAX or self._keys[oldest][1].position < answer.position - KEY_WINDOW_BYTES:
            del self._keys[oldest]
            oldest = next(iter(self._keys))

    def forget_below(self, log_start: int) -> None:
        """Keys go with the log they were written in. Numbered producers stay (their table is bounded by count): one
        whose answer was lost would otherwise be refused for ever, or, with its first sub-batch, stored twice."""
        self._keys = {key: found for key, found in self._keys.items() if found[1].position >= log_start}

    def forget_topic(self, topic: str) -> None:
        """A deleted topic takes its answers along: offsets of a later topic of that name start at 0."""
        self._producers = {s: r for s, r in self._producers.items() if s[1] != topic}
        self._keys = {key: found for key, found in self._keys.items() if found[0] != topic}

    def snapshot(self) -> list[Any]:
        """Plain lists, in an order that restores the eviction order."""
        producers = [[*source, [list(a) for a in recent.answers]] for source, recent in self._producers.items()]
        return [producers, [[key, topic, *answer] for key, (topic, answer) in self._keys.items()]]

    def restore(self, parts: list[Any]) -> None:
        """The inverse of `snapshot`."""
        producers, keys = parts
        self._producers = {(p, t, q): _Recent([Answer(*a) for a in answers]) for p, t, q, answers in producers}
        self._keys = {key: (topic, Answer(*answer)) for key, topic, *answer in keys}
