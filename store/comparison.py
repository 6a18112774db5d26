"""A Disk on which writing means comparing: a rebuild of derived files runs against it and leaves nothing behind.

    Derived.dispatch --> write_at(offset, data) --> are these the bytes that the store's file has there?

Law: every byte of every file of the store is either compared with what a rebuild writes there, or must be zero because
a rebuild leaves a hole there; memory does not grow with the log. Until `relax` a file that is short, absent or
different is a difference that counts; from then on bytes may be missing, and after a crash they may be anything.
Does not know: queues, indexes, what a difference means for the store.
"""

import errno as errors
from collections.abc import Iterable
from typing import NamedTuple

from model.ports import Buffer
from store.disk import Disk, DiskError, File, SyncTicket

HOLE_STEP_BYTES = 1 << 20


class Difference(NamedTuple):
    name: str
    offset: int  # in the file
    problem: str
    counts: bool  # False: in bytes that were never synced, or that nobody reads


class Expected:
    """What the rebuild wrote to one file so far."""

    __slots__ = ("covered", "difference", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.covered: list[tuple[int, int]] = []  # [start, end), ascending, neighbours merged
        self.difference: Difference | None = None  # the first one, or the first that counts

    @property
    def size(self) -> int:
        return self.covered[-1][1] if self.covered else 0

    def cover(self, start: int, end: int) -> None:
        covered = self.covered
        if covered and covered[-1][1] == start:
            covered[-1] = (covered[-1][0], end)
        elif not covered or covered[-1][1] < start:
            covered.append((start, end))
        else:
            covered.append((start, end))
            covered.sort()
            merged: list[tuple[int, int]] = []
            for first, last in covered:
                if merged and first <= merged[-1][1]:
                    merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
                else:
                    merged.append((first, last))
            self.covered = merged

    def note(self, difference: Difference) -> None:
        if self.difference is None or (difference.counts and not self.difference.counts):
            self.difference = difference


class _ComparingFile:
    """An open file of the rebuild, beside the store's file of the same name."""

    __slots__ = ("_actual", "_disk", "_expected")

    def __init__(self, disk: "ComparingDisk", expected: Expected, actual: File | None) -> None:
        self._disk = disk
        self._expected = expected
        self._actual = actual

    @property
    def name(self) -> str:
        return self._expected.name

    @property
    def size(self) -> int:
        return self._expected.size

    def write_at(self, offset: int, data: Buffer) -> None:
        expected, complete = self._expected, self._disk.complete
        expected.cover(offset, offset + len(data))
        if self._actual is None:
            if complete:
                expected.note(Difference(self.name, offset, "the file is missing", True))
            return
        actual = self._actual.pread(offset, len(data))
        if actual == data or (not complete and actual.count(0) == len(actual)):  # zeros: not written yet
            return
        wanted = bytes(data)
        if wanted.startswith(actual):
            if complete:
                problem = f"the file ends at {self._actual.size}, the log goes on"
                expected.note(Difference(self.name, offset + len(actual), problem, True))
            return
        at = next(i for i, (ours, theirs) in enumerate(zip(wanted, actual, strict=False)) if ours != theirs)
        problem = f"byte {actual[at]:#04x} where the log says {wanted[at]:#04x}"
        expected.note(Difference(self.name, offset + at, problem, self._disk.counting))

    def view(self, offset: int, size: int) -> memoryview:
        raise DiskError(errors.ENOTSUP, "read back", self.name)

    def pread(self, offset: int, size: int) -> bytes:
        raise DiskError(errors.ENOTSUP, "read back", self.name)

    def truncate(self, size: int) -> None:
        raise DiskError(errors.ENOTSUP, "truncate", self.name)

    def release(self) -> bool:
        return True

    def close(self) -> None:
        if self._actual is not None:
            self._actual.close()


class ComparingDisk:
    """An empty disk for a rebuild; `actual` holds the files it should come to."""

    def __init__(self, actual: Disk) -> None:
        self.actual = actual
        self.root = actual.root
        self.files: dict[str, Expected] = {}
        self.complete = True  # what the rebuild writes must be there
        self.counting = True  # what is there must be right

    def relax(self, *, crashed: bool) -> None:
        """What comes from now on need not have been dispatched, and after a crash not whole either."""
        self.complete = False
        self.counting = not crashed

    def holes(self, expected: Expected) -> Iterable[tuple[int, bytes]]:
        """(offset, bytes) of the store's file where the rebuild wrote nothing and yet something stands."""
        if not self.actual.exists(expected.name):
            return  # dropped since; opening it would make it again
        file = self.actual.open(expected.name)
        try:
            at = 0
            for start, end in (*expected.covered, (expected.size, expected.size)):
                while at < start:
                    data = file.pread(at, min(HOLE_STEP_BYTES, start - at))
                    if not data:
                        break
                    if data.count(0) != len(data):
                        yield at, data
                    at += len(data)
                at = end
        finally:
            file.close()

    # The Disk port, as far as a rebuild on an empty disk needs it.

    def open(self, name: str, *, mapped: bool = False) -> File:
        expected = self.files.get(name)
        if expected is None:
            expected = self.files[name] = Expected(name)
        return _ComparingFile(self, expected, self.actual.open(name) if self.actual.exists(name) else None)

    def exists(self, name: str) -> bool:
        return name in self.files

    def list(self, directory: str) -> list[str]:
        return []  # a rebuild begins with nothing and never looks again

    def remove(self, name: str) -> None:
        self.files.pop(name, None)

    def remove_tree(self, name: str) -> None:
        for gone in [known for known in self.files if known == name or known.startswith(name + "/")]:
            del self.files[gone]

    def create(self, name: str, size: int) -> File:
        raise DiskError(errors.ENOTSUP, "create", name)

    def rename(self, old: str, new: str) -> None:
        raise DiskError(errors.ENOTSUP, "rename", old)

    def read(self, name: str) -> bytes:
        raise DiskError(errors.ENOTSUP, "read back", name)

    def replace(self, name: str, data: bytes) -> None:
        """A record of doubt about the rebuild itself: the error that it goes with tells more."""

    def sync_dir(self, directory: str) -> None:
        """Nothing is kept, so nothing is to be synced."""

    def ticket(self, files: Iterable[File]) -> SyncTicket:
        return None

    def sync(self, ticket: SyncTicket) -> None:
        """See sync_dir."""

    def usage(self) -> float:
        return 0.0

    def room(self) -> int:
        return 0

    def lock(self) -> None:
        """It belongs to one reader."""

    def unlock(self) -> None:
        """See lock."""
