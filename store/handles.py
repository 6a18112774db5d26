"""Open files of the derived data: thousands of queues, a bounded number of descriptors.

Law: a file that was written since the last `flush` stays open and is in the next ticket, and so is the directory of
each file that was made since; every other handle may be closed at any time, oldest use first.
Does not know: what is in the files.
"""

from collections.abc import Iterable
from typing import NamedTuple

from store.disk import Disk, File, SyncTicket

HANDLES_MAX = 256  # clean handles kept open; with as many dirty ones still far below the usual limit of 1,024


class DerivedTicket(NamedTuple):
    """What must be durable before a checkpoint counts on it; `Derived.sync` makes it so."""

    files: SyncTicket
    directories: tuple[str, ...]  # a file's name is durable when its directory is
    doubts: tuple[str, ...] = ()  # records of a rebuild that is complete when the rest is durable


class Handles:
    def __init__(self, disk: Disk, limit: int = HANDLES_MAX) -> None:
        self._disk = disk
        self._limit = limit
        self._clean: dict[str, File] = {}  # in order of use
        self._dirty: dict[str, File] = {}
        self._directories: dict[str, None] = {}  # changed since the last flush

    @property
    def dirty_count(self) -> int:
        return len(self._dirty)

    @property
    def open_count(self) -> int:
        return len(self._clean) + len(self._dirty)

    def reading(self, name: str) -> File:
        """The existing file `name`, for reading."""
        file = self._dirty.get(name)
        if file is None:
            file = self._clean.pop(name, None)
            if file is None:
                file = self._disk.open(name)
            self._clean[name] = file
            self._evict()
        return file

    def writing(self, name: str) -> File:
        """The file `name`, for writing; it is in the next ticket."""
        file = self._dirty.get(name)
        if file is None:
            file = self._clean.pop(name, None)
            if file is None:
                file = self._disk.open(name)
            self._dirty[name] = file
        return file

    def making(self, name: str) -> File:
        """The new file `name`; its directory is in the next ticket too."""
        self.touch_directory(name.rpartition("/")[0])
        return self.writing(name)

    def touch_directory(self, directory: str) -> None:
        """Names in this directory were made or removed: it is in the next ticket."""
        self._directories[directory] = None

    def flush(self) -> DerivedTicket:
        """All writes and new names up to now."""
        ticket = DerivedTicket(self._disk.ticket(self._dirty.values()), tuple(self._directories))
        self._clean.update(self._dirty)
        self._dirty = {}
        self._directories = {}
        self._evict()
        return ticket

    def forget(self, names: Iterable[str]) -> None:
        """Close these before they are removed."""
        for name in names:
            for files in (self._clean, self._dirty):
                file = files.pop(name, None)
                if file is not None:
                    file.close()

    def close(self) -> None:
        self.forget([*self._clean, *self._dirty])

    def _evict(self) -> None:
        while len(self._clean) > self._limit:
            self._clean.pop(next(iter(self._clean))).close()
