"""World: one heap of events, one Random, one virtual clock.

    at(time, function) --> heap of (time, sequence, function) --> run_until pops, sets `now_us`, calls

Law: everything that happens in a simulation happens in an event of one World, and every choice comes from its Random;
so a seed is a run, event for event, and `digest` proves it. Time is an integer of microseconds: no float ever decides
an order. Two events of one moment run in the order in which they were announced.
Does not know: nodes, networks, disks, what an event does."""

import heapq
import zlib
from collections.abc import Callable
from random import Random

SECOND_US = 1_000_000
MS_US = 1_000
DIGEST_MASK = (1 << 61) - 1

Tell = Callable[[int, str, str], None]  # time, who, what: one line of a trace


class World:
    """Virtual time and chance of one run."""

    def __init__(self, seed: int, tell: Tell | None = None) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.now_us = 0
        self.events = 0
        self.digest = seed & DIGEST_MASK
        self.tracing = tell is not None
        self._tell = tell
        self._sequence = 0
        self._heap: list[tuple[int, int, Callable[[], None]]] = []

    def at(self, time_us: int, function: Callable[[], None]) -> None:
        """Call `function` at `time_us`, or now when that has passed."""
        self._sequence += 1
        heapq.heappush(self._heap, (max(time_us, self.now_us), self._sequence, function))

    def after(self, delay_us: int, function: Callable[[], None]) -> None:
        """Call `function` when `delay_us` have passed."""
        self._sequence += 1
        heapq.heappush(self._heap, (self.now_us + delay_us, self._sequence, function))

    def run_until(self, time_us: int) -> None:
        """Run every event up to and including `time_us`; the clock stands there afterwards."""
        heap, pop = self._heap, heapq.heappop
        while heap and heap[0][0] <= time_us:
            now, sequence, function = pop(heap)
            self.now_us = now
            self.events += 1
            self.mix(now, sequence)
            function()
        self.now_us = max(self.now_us, time_us)

    def mix(self, *numbers: int) -> None:
        """Let numbers count in the digest: the hash of a tuple of ints is the same in every process."""
        self.digest = hash((self.digest, *numbers)) & DIGEST_MASK

    def note(self, who: str, what: str) -> None:
        """A fact that belongs to the run's identity and to its trace; for what happens rarely."""
        self.mix(zlib.crc32(f"{who} {what}".encode()))
        if self._tell is not None:
            self._tell(self.now_us, who, what)

    def trace(self, who: str, what: str) -> None:
        """A line of the trace only; callers ask `tracing` before they build the words."""
        if self._tell is not None:
            self._tell(self.now_us, who, what)

    def chance(self, probability: float) -> bool:
        """True with this probability; one draw, also for 0 and 1, so that plans do not shift the stream."""
        return self.random.random() < probability

    def between(self, low: int, high: int) -> int:
        """A whole number of [low, high]: cheaper than randint."""
        return low + int(self.random.random() * (high - low + 1))


class SimClock:
    """The clocks of one node: the wall may be set by anyone, the monotonic one by nobody."""

    WALL_START_MS = 1_700_000_000_000

    def __init__(self, world: World, skew_ms: int = 0) -> None:
        self._world = world
        self.skew_ms = skew_ms

    def now_ms(self) -> int:
        """The wall clock, with this node's error."""
        return self.WALL_START_MS + self._world.now_us // MS_US + self.skew_ms

    def monotonic_ms(self) -> int:
        """Ms since the world began."""
        return self._world.now_us // MS_US
