"""The Disk port: everything the store asks of a file system, and the one error it may answer with.

Law: a write is visible at once and durable only after `sync` of a ticket taken after it; a name is durable only
after `sync_dir` of its directory; `replace` is both. Every OSError becomes a DiskError.

    create / write_at ... ticket() ---- on the loop, cheap
                             |
                             +--> sync(ticket) ---- in a thread, slow: what was written before the ticket is durable

Names are relative paths with "/" under one root. Does not know: entries, segments, what the bytes mean.
"""

import errno as errors
import os
from collections.abc import Iterable
from typing import Protocol, TypeAlias

from model.errors import StoreLocked
from model.ports import Buffer

SyncTicket: TypeAlias = object  # opaque: each Disk has its own kind

_ADVICE = {
    errors.ENOSPC: "the disk is full, the operation did not happen; free space and start the node again",
    errors.EDQUOT: "the disk quota is used up, the operation did not happen; raise it and start the node again",
    errors.EIO: "the device failed and what it holds is uncertain; check the disk before you start the node again",
    errors.EACCES: "the process may not use this file; check owner and mode of the store directory",
    errors.EPERM: "the process may not use this file; check owner and mode of the store directory",
    errors.EROFS: "the file system is read-only; mount it writable",
    errors.ENOENT: "the file is missing; was something in the store directory removed by hand?",
    errors.EEXIST: "the file exists already; do two processes use one store directory?",
    errors.ESTALE: "the disk went away under this file; open the store again",
}
_OTHER = "the operation did not complete; see the errno of your system"


class DiskError(Exception):
    """A disk operation failed; nothing that depends on it may be acknowledged."""

    def __init__(self, errno: int, operation: str, name: str) -> None:
        self.errno = errno
        self.operation = operation
        self.name = name
        super().__init__(
            f"{operation} of {name!r} failed: {os.strerror(errno)} (errno {errno}): {_ADVICE.get(errno, _OTHER)}"
        )

    @property
    def full(self) -> bool:
        """Whether the cause is lack of space, which an operator can end without losing anything."""
        return self.errno in (errors.ENOSPC, errors.EDQUOT)


def locked(root: str) -> StoreLocked:
    """What to raise when another process owns the directory."""
    return StoreLocked(f"the store directory {root!r} is in use by another process")


class File(Protocol):
    """One open file. Closing it, or giving its map back, never disturbs views that are still out."""

    @property
    def name(self) -> str:
        """The name it was opened by."""

    @property
    def size(self) -> int:
        """Fixed for preallocated files; grows by write_at for others."""

    def write_at(self, offset: int, data: Buffer) -> None:
        """Make `data` visible at `offset`; durable only after a sync. A mapped file never grows."""

    def view(self, offset: int, size: int) -> memoryview:
        """A read-only view of a mapped file, zero copy; of a file whose map was given back, a copy."""

    def pread(self, offset: int, size: int) -> bytes:
        """A copy; safe in a thread; short at the end of the file."""

    def truncate(self, size: int) -> None:
        """Cut a growable file."""

    def release(self) -> bool:
        """Give the map back if no view is out; False: still pinned, nothing changed. Reading goes on by pread."""

    def close(self) -> None:
        """Forget the file. The map itself goes with its last view."""


class Disk(Protocol):
    """A directory tree with explicit durability."""

    @property
    def root(self) -> str:
        """Where the tree lies, for messages to people."""

    def create(self, name: str, size: int) -> File:
        """A new mapped file of `size` zero bytes with its room secured; parents are made; nothing is synced yet."""

    def open(self, name: str, *, mapped: bool = False) -> File:
        """mapped: an existing file of fixed size; otherwise a growable file, made when missing (parents too)."""

    def exists(self, name: str) -> bool:
        """Whether a file or directory of that name is visible."""

    def list(self, directory: str) -> list[str]:
        """Sorted plain names of files and directories; nothing when the directory is missing."""

    def remove(self, name: str) -> None:
        """Unlink a file."""

    def remove_tree(self, name: str) -> None:
        """Unlink a file or a directory with all it holds; a missing one is no error."""

    def rename(self, old: str, new: str) -> None:
        """Give a file another name, replacing what had it."""

    def sync_dir(self, directory: str) -> None:
        """Make names made, changed or removed in this directory durable (and the directory itself)."""

    def read(self, name: str) -> bytes:
        """A whole file; DiskError with ENOENT when it is missing."""

    def replace(self, name: str, data: bytes) -> None:
        """Make `name` hold exactly `data`, atomically and durably."""

    def ticket(self, files: Iterable[File]) -> SyncTicket:
        """Everything written to these files so far; cheap. The files may be closed before the sync."""

    def sync(self, ticket: SyncTicket) -> None:
        """Return when all bytes of the ticket are durable. After one failure every later sync fails too: the kernel
        marks pages clean when writing them failed, so a second try that succeeds would prove nothing."""

    def usage(self) -> float:
        """Used share of the file system, 0 to 1."""

    def room(self) -> int:
        """Bytes that can still be written."""

    def lock(self) -> None:
        """Own the tree, or raise StoreLocked."""

    def unlock(self) -> None:
        """Give the tree up."""
