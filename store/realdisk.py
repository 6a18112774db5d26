"""The Disk port on a real directory.

Law: bytes are made durable by os.fdatasync alone, because mmap.flush holds the interpreter lock for its whole
duration. A descriptor or a map lives until the last reference to it goes, so a sync or a read in a thread never meets
a descriptor that was closed, or worse, reused, under its feet.
"""

import errno as errors
import fcntl
import mmap
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import cast

from model.ports import Buffer
from store.disk import DiskError, File, SyncTicket, locked

LOCK_NAME = "lock"
TEMPORARY = ".tmp"  # what a replace that was cut short leaves behind


@contextmanager
def _named(operation: str, name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DiskError(error.errno or errors.EIO, operation, name) from error


class _Handle:
    """A descriptor that closes with its last reference; the file and every ticket for it hold one."""

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self) -> None:
        os.close(self.fd)


class RealFile:
    """A file of a RealDisk: mapped and of fixed size, or growable and written with pwrite."""

    __slots__ = ("_base", "_handle", "_map", "_size", "name")

    def __init__(self, name: str, handle: _Handle, size: int, mapped: bool) -> None:
        self.name = name
        self._handle: _Handle | None = handle
        self._size = size
        self._map = mmap.mmap(handle.fd, size) if mapped else None
        self._base = None if self._map is None else memoryview(self._map).toreadonly()

    @property
    def size(self) -> int:
        return self._size

    @property
    def handle(self) -> _Handle:
        handle = self._handle
        if handle is None:
            raise DiskError(errors.EBADF, "use after close", self.name)
        return handle

    def write_at(self, offset: int, data: Buffer) -> None:
        if self._map is not None:
            self._map[offset : offset + len(data)] = data
            return
        fd = self.handle.fd
        with _named("write", self.name):
            rest = memoryview(data)
            while rest:
                written = os.pwrite(fd, rest, offset)
                offset += written
                rest = rest[written:]
                self._size = max(self._size, offset)

    def view(self, offset: int, size: int) -> memoryview:
        base = self._base
        if base is not None:
            try:
                return base[offset : offset + size]
            except ValueError:  # a thread gave the map back between these two lines
                pass
        return memoryview(self.pread(offset, size))

    def pread(self, offset: int, size: int) -> bytes:
        handle = self.handle
        with _named("read", self.name):
            return os.pread(handle.fd, size, offset)

    def truncate(self, size: int) -> None:
        assert self._map is None, self.name
        with _named("truncate", self.name):
            os.ftruncate(self.handle.fd, size)
        self._size = size

    def release(self) -> bool:
        if self._map is None:
            return True
        base, self._base = self._base, None
        if base is not None:
            base.release()
        try:
            self._map.close()
        except BufferError:
            self._base = memoryview(self._map).toreadonly()
            return False
        self._map = None
        return True

    def close(self) -> None:
        self._base = None
        self._map = None
        self._handle = None


class RealDisk:
    """The tree below one directory."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self._lock: _Handle | None = None
        self._sync_failed: DiskError | None = None
        with _named("make the store directory", self.root):
            if not root.is_dir():
                root.mkdir(parents=True, mode=0o700)
                self._sync_path(str(root.parent))

    def _path(self, name: str) -> str:
        assert not name.startswith("/") and ".." not in name.split("/"), name
        return f"{self.root}/{name}" if name else self.root

    def create(self, name: str, size: int) -> File:
        path = self._path(name)
        with _named("create", name):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            handle = _Handle(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            try:
                os.posix_fallocate(handle.fd, 0, size)
                return RealFile(name, handle, size, mapped=True)
            except OSError:
                os.unlink(path)
                raise

    def open(self, name: str, *, mapped: bool = False) -> File:
        path = self._path(name)
        flags = os.O_RDWR | os.O_CLOEXEC
        with _named("open", name):
            if not mapped:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                flags |= os.O_CREAT
            handle = _Handle(os.open(path, flags, 0o600))
            size = os.fstat(handle.fd).st_size
            if mapped and size == 0:
                raise DiskError(errors.EINVAL, "map", name)
            return RealFile(name, handle, size, mapped)

    def exists(self, name: str) -> bool:
        return os.path.exists(self._path(name))

    def list(self, directory: str) -> list[str]:
        with _named("list", directory):
            try:
                return sorted(os.listdir(self._path(directory)))
            except FileNotFoundError:
                return []

    def remove(self, name: str) -> None:
        with _named("remove", name):
            os.unlink(self._path(name))

    def remove_tree(self, name: str) -> None:
        path = self._path(name)
        with _named("remove", name):
            if os.path.isdir(path):
                shutil.rmtree(path)
            elif os.path.exists(path):
                os.unlink(path)

    def rename(self, old: str, new: str) -> None:
        with _named("rename", old):
            os.makedirs(os.path.dirname(self._path(new)), exist_ok=True)
            os.rename(self._path(old), self._path(new))

    def sync_dir(self, directory: str) -> None:
        # Ancestors too: a directory whose own name was never synced vanishes in a power cut with all it holds.
        with _named("sync", directory):
            parts = directory.split("/") if directory else []
            for depth in range(len(parts), -1, -1):
                self._sync_path(self._path("/".join(parts[:depth])))

    @staticmethod
    def _sync_path(path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def read(self, name: str) -> bytes:
        with _named("read", name), open(self._path(name), "rb") as file:
            return file.read()

    def replace(self, name: str, data: bytes) -> None:
        temporary = name + TEMPORARY
        file = self.open(temporary)
        try:
            file.truncate(0)
            file.write_at(0, data)
            self.sync(self.ticket([file]))
        except DiskError:
            with suppress(OSError):  # on a full disk nothing half-made should stay behind
                os.unlink(self._path(temporary))
            raise
        finally:
            file.close()
        self.rename(temporary, name)
        self.sync_dir(os.path.dirname(name))

    def ticket(self, files: Iterable[File]) -> SyncTicket:
        return [(cast(RealFile, file).handle, file.name) for file in files]

    def sync(self, ticket: SyncTicket) -> None:
        for handle, name in cast(list[tuple[_Handle, str]], ticket):
            if self._sync_failed is not None:
                raise self._sync_failed
            try:
                os.fdatasync(handle.fd)
            except OSError as error:
                self._sync_failed = DiskError(error.errno or errors.EIO, "sync", name)
                raise self._sync_failed from error

    def usage(self) -> float:
        with _named("measure the space", self.root):
            state = os.statvfs(self.root)
        used = state.f_blocks - state.f_bfree
        return used / max(1, used + state.f_bavail)  # root's reserve is out of reach for us, as df counts it

    def room(self) -> int:
        with _named("measure the space", self.root):
            state = os.statvfs(self.root)
        return state.f_bavail * state.f_frsize

    def lock(self) -> None:
        with _named("lock", LOCK_NAME):
            handle = _Handle(os.open(self._path(LOCK_NAME), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            try:
                fcntl.flock(handle.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise locked(self.root) from error
        self._lock = handle

    def unlock(self) -> None:
        self._lock = None
