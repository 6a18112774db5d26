"""A store seen from outside: nothing on disk changes, whatever is called.

    ReadOnlyDisk ---> small records, scan, snapshots       the usual readers, on files opened for reading only
    walk_entries ---> (header, body), (header, body) ...   each verified against its crc and the chain before it

Law: reading needs no write permission and leaves names, sizes, bytes and modification times as they were. While a
ReadOnlyDisk is locked, no node can start on the directory, and a directory whose node runs is refused: its files would
change under the reader's eyes. Does not know: what is damage and what is a torn tail.
"""

import errno as errors
import fcntl
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NoReturn

from model.errors import NotAStore
from store.disk import Disk, DiskError, File, SyncTicket, locked
from store.entry import ENVELOPE_BYTES, CorruptEntry, Header, peek, verify
from store.realdisk import LOCK_NAME, RealDisk, RealFile, _Handle, _named
from store.segment import segment_name

CHUNK_BYTES = 4 << 20  # a read at a time: large enough for speed, small beside everything else in memory


class ReadOnlyDisk(RealDisk):
    """A RealDisk that refuses every change; the directory must exist."""

    def __init__(self, root: Path) -> None:
        # Not RealDisk's: that one makes the directory.
        self.root = str(root)
        self._lock: _Handle | None = None
        with _named("list", self.root):
            if not root.exists():
                raise NotAStore(f"there is no directory {self.root!r}")
            if not root.is_dir():
                raise NotAStore(f"{self.root!r} is not a directory")
            os.listdir(root)

    def open(self, name: str, *, mapped: bool = False) -> File:
        with _named("open", name):
            handle = _Handle(os.open(self._path(name), os.O_RDONLY | os.O_CLOEXEC))
            return RealFile(name, handle, os.fstat(handle.fd).st_size, mapped=False)

    def exists(self, name: str) -> bool:
        """Unlike RealDisk, does not take a forbidden file for a missing one: then a store would look like none."""
        with _named("look at", name):
            try:
                os.stat(self._path(name))
            except (FileNotFoundError, NotADirectoryError):
                return False
        return True

    def list(self, directory: str) -> list[str]:
        return super().list(directory) if os.path.isdir(self._path(directory)) else []

    def lock(self) -> None:
        """Keep nodes away, without writing: a missing lock file means that none ever ran here."""
        if not self.exists(LOCK_NAME):
            return
        with _named("lock", LOCK_NAME):
            handle = _Handle(os.open(self._path(LOCK_NAME), os.O_RDONLY | os.O_CLOEXEC))
            try:
                fcntl.flock(handle.fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise locked(self.root) from error
        self._lock = handle

    def create(self, name: str, size: int) -> File:
        self._refuse("create", name)

    def remove(self, name: str) -> None:
        self._refuse("remove", name)

    def remove_tree(self, name: str) -> None:
        self._refuse("remove", name)

    def rename(self, old: str, new: str) -> None:
        self._refuse("rename", old)

    def sync_dir(self, directory: str) -> None:
        self._refuse("sync", directory)

    def replace(self, name: str, data: bytes) -> None:
        self._refuse("replace", name)

    def ticket(self, files: Iterable[File]) -> SyncTicket:
        self._refuse("sync", "")

    @staticmethod
    def _refuse(operation: str, name: str) -> NoReturn:
        raise DiskError(errors.EROFS, operation, name)


def walk_entries(
    disk: Disk, segment_bytes: int, start: int, chain: int | None
) -> Iterator[tuple[Header, memoryview]]:
    """Entries from the boundary `start` on, verified; `chain` None: the first one's chain is taken on trust.

    Ends with CorruptEntry, whose position is the end of what verifies."""
    position = start
    while True:
        base = position // segment_bytes * segment_bytes
        name = segment_name(base)
        if not disk.exists(name):
            raise CorruptEntry(position, f"{name} is missing")
        file = disk.open(name)
        try:
            for header, body in _segment_entries(file, base, segment_bytes, position, chain):
                position, chain = header.end, header.chain
                yield header, body
        except DiskError as error:
            raise CorruptEntry(position, str(error)) from error
        finally:
            file.close()


def _segment_entries(
    file: File, base: int, segment_bytes: int, position: int, chain: int | None
) -> Iterator[tuple[Header, memoryview]]:
    need = ENVELOPE_BYTES
    while (offset := position - base) < segment_bytes:
        room = segment_bytes - offset
        if need > room:
            raise CorruptEntry(position, "the entry reaches beyond its segment")
        block = memoryview(file.pread(offset, min(room, max(CHUNK_BYTES, need))))
        if len(block) < need:
            raise CorruptEntry(position, f"{file.name} ends inside an entry")
        at, need = 0, ENVELOPE_BYTES
        while len(block) - at >= ENVELOPE_BYTES:
            header = peek(block, at, position)
            if header.size > len(block) - at:
                need = header.size
                break
            header = verify(block, at, position, chain)
            body = block[at + ENVELOPE_BYTES : at + header.size]
            position, chain = header.end, header.chain
            at += header.size
            yield header, body
