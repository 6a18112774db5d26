"""What a simulated node stands on: a disk that can end the node at any operation, and lanes in virtual time.

Law: a crash may come between any two disk operations, so it is raised from inside one: `SimCrash` is no Exception,
because no code under test may catch it. A lane's jobs run one after another, each at the moment it ends; what was
submitted before a crash never runs after it.
Does not know: what is stored, what the jobs are for."""

import errno
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import TypeVar

from chaos.sim import World
from chaos.simdisk import SimDisk
from store.disk import DiskError, SyncTicket

T = TypeVar("T")
ARMED = "armed"  # a key in `faults` that no operation has: it makes SimDisk ask `check` before every write


class SimCrash(BaseException):
    """The node ends here, in the middle of what it was doing."""


class NodeDisk(SimDisk):
    """A SimDisk that remembers whether an injected error was met, and can crash its node at the n-th operation."""

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self.error_met = ""  # the first injected error that reached the code under test
        self._crash_after = -1
        self._onlookers = 0

    @contextmanager
    def unnoticed(self) -> Iterator[None]:
        """While an oracle reads, no fault strikes: it is not part of the world."""
        self._onlookers += 1
        try:
            yield
        finally:
            self._onlookers -= 1

    def crash_after(self, operations: int) -> None:
        """Raise SimCrash at this operation from now."""
        self._crash_after = operations
        self.faults[ARMED] = 0

    def calm(self) -> None:
        """No injected error any more; what was met is forgotten."""
        self.faults, self.full, self.error_met, self._crash_after = {}, False, "", -1

    def check(self, operation: str, name: str, inode: object = None) -> None:
        if self._onlookers:
            return
        self._count()
        try:
            super().check(operation, name, inode)  # type: ignore[arg-type]
        except DiskError as error:
            self._meet(error)
            raise

    def sync(self, ticket: SyncTicket) -> None:
        self._count()
        try:
            super().sync(ticket)
        except DiskError as error:
            self._meet(error)
            raise

    def grow(self, operation: str, name: str, more: int) -> None:
        try:
            super().grow(operation, name, more)
        except DiskError as error:
            self._meet(error)
            raise

    def _count(self) -> None:
        if self._crash_after >= 0:
            self._crash_after -= 1
            if self._crash_after < 0:
                raise SimCrash

    def _meet(self, error: DiskError) -> None:
        if error.errno != errno.ESTALE and not self.error_met:
            self.error_met = f"{error.operation} of {error.name}"


class SimLane:
    """The Lane port in virtual time; `guard` runs a function as the node that lives now, or not at all."""

    def __init__(
        self, world: World, guard: Callable[[Callable[[], None]], Callable[[], None]], low_us: int, high_us: int
    ) -> None:
        self.slow = 1  # a disk under load takes this many times longer
        self._world = world
        self._guard = guard
        self._low_us = low_us
        self._high_us = high_us
        self._free_us = 0
        self._waiting: deque[Callable[[], None]] = deque()

    def submit(self, job: Callable[[], T], done: Callable[[T | Exception], None]) -> None:
        """Run `job` when its time has passed, then `done` with its result."""

        def finish() -> None:
            result: T | Exception
            try:
                result = job()
            except Exception as error:  # as a real lane: the owner of the job decides what its failure means
                result = error
            done(result)

        delay = self._world.between(self._low_us, self._high_us) * self.slow
        self._free_us = max(self._free_us, self._world.now_us) + delay
        self._waiting.append(finish)
        self._world.at(self._free_us, self._guard(self._next))

    def drain(self) -> None:
        """Finish everything at once, as an owner does before a clean stop."""
        while self._waiting:
            self._next()

    def _next(self) -> None:
        if self._waiting:  # else it was drained
            self._waiting.popleft()()
