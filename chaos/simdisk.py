"""A disk in memory that forgets what was not synced, tears what was being written, and fails when told to.

Law: what a sync or a sync_dir returned for survives every crash; nothing else is promised. Same Random, same outcome.

    write_at --> visible bytes (what reads see) + pending list of (sequence, offset, bytes)
    sync     --> pending writes up to the ticket's sequence move into the durable bytes
    crash    --> durable bytes, plus each pending write whole, in part or not at all, become the visible bytes
    create, rename, remove --> pending until sync_dir; in a crash a prefix of the pending ones happened

Does not know: what is stored on it, time (how long a sync takes is the simulation's business).
"""

import errno as errors
from collections.abc import Iterable
from random import Random
from typing import Any, NamedTuple, TypeAlias, cast

from chaos.siminode import Inode, Pending, suffer
from model.ports import Buffer
from store.disk import DiskError, File, SyncTicket, locked

Names: TypeAlias = list[str]  # inside SimDisk, `list` is the method

OPERATIONS = ("create", "write", "sync", "pread")


class _Ticket(NamedTuple):
    sequence: int
    inodes: list[Inode]


class _Rename(NamedTuple):
    """A pending change of names: all of it happens or nothing."""

    directories: tuple[str, ...]  # syncing any of them makes it durable
    links: tuple[tuple[str, Inode | None], ...]


class SimFile:
    """A file of a SimDisk; dead after a crash."""

    __slots__ = ("_disk", "_inode", "_window", "name")

    def __init__(self, disk: "SimDisk", name: str, inode: Inode, mapped: bool) -> None:
        self._disk = disk
        self._inode = inode
        self._window = memoryview(inode.visible) if mapped else None
        self.name = name

    @property
    def inode(self) -> Inode:
        if self._inode.dead:
            raise DiskError(errors.ESTALE, "use after a crash", self.name)
        return self._inode

    @property
    def size(self) -> int:
        return len(self.inode.visible)

    def write_at(self, offset: int, data: Buffer) -> None:
        inode = self._inode
        disk = self._disk
        if inode.dead or disk.faults:
            disk.check("write", self.name, inode)
        end = offset + len(data)
        if self._window is not None:
            assert end <= len(inode.visible), f"write to {end} in {self.name} of {len(inode.visible)} bytes"
            self._window[offset:end] = data
        else:
            if end > len(inode.visible):
                disk.grow("write", self.name, end - len(inode.visible))
                inode.resize(end)
            inode.visible[offset:end] = data
        disk.sequence += 1
        inode.pending.append(Pending(disk.sequence, offset, bytes(data)))

    def view(self, offset: int, size: int) -> memoryview:
        if self._window is None or self._inode.dead:
            return memoryview(self.pread(offset, size))
        return self._window.toreadonly()[offset : offset + size]

    def pread(self, offset: int, size: int) -> bytes:
        disk = self._disk
        if disk.faults:
            disk.check("pread", self.name, self._inode)
        return bytes(memoryview(self.inode.visible)[offset : offset + size])

    def truncate(self, size: int) -> None:
        assert self._window is None, self.name
        inode = self.inode
        self._disk.grow("truncate", self.name, size - len(inode.visible))
        inode.resize(size)
        self._disk.sequence += 1
        inode.pending.append(Pending(self._disk.sequence, size, None))

    def release(self) -> bool:
        if self._window is None:
            return True
        self._window.release()
        visible = self._inode.visible
        try:
            visible.append(0)  # refused exactly while a view is out
            visible.pop()
        except BufferError:
            self._window = memoryview(visible)
            return False
        self._window = None
        return True

    def close(self) -> None:
        self._window = None


class SimDisk:
    """The Disk port in memory, with crashes and faults."""

    def __init__(self, random: Random, capacity: int | None = None) -> None:
        self.root = "simulated disk"
        self.capacity = capacity
        self.full = False  # no growth at all while set
        self.sequence = 0
        self.faults: dict[str, int] = {}  # operation -> errno of its next use
        self._random = random
        self._names: dict[str, Inode] = {}
        self._durable_names: dict[str, Inode] = {}
        self._renames: list[_Rename] = []
        self._used = 0
        self._locked = False
        self._sync_failed: DiskError | None = None

    # The Disk port.

    def create(self, name: str, size: int) -> File:
        self.check("create", name)
        if name in self._names:
            raise DiskError(errors.EEXIST, "create", name)
        self.grow("create", name, size)
        inode = self._make(name)
        inode.visible = bytearray(size)
        self.sequence += 1
        inode.pending.append(Pending(self.sequence, size, None))
        return SimFile(self, name, inode, mapped=True)

    def open(self, name: str, *, mapped: bool = False) -> File:
        inode = self._names.get(name)
        if inode is None:
            if mapped:
                raise DiskError(errors.ENOENT, "open", name)
            self.check("create", name)
            self.grow("create", name, 0)
            inode = self._make(name)
        elif mapped and not inode.visible:
            raise DiskError(errors.EINVAL, "map", name)
        return SimFile(self, name, inode, mapped)

    def exists(self, name: str) -> bool:
        return name in self._names or any(other.startswith(name + "/") for other in self._names)

    def list(self, directory: str) -> list[str]:
        prefix = directory + "/" if directory else ""
        cut = len(prefix)
        return sorted({name[cut:].split("/", 1)[0] for name in self._names if name.startswith(prefix)})

    def remove(self, name: str) -> None:
        if name not in self._names:
            raise DiskError(errors.ENOENT, "remove", name)
        self._link((_parent(name),), ((name, None),))

    def remove_tree(self, name: str) -> None:
        for other in sorted(self._names):
            if other == name or other.startswith(name + "/"):
                self._link((_parent(other), _parent(name)), ((other, None),))

    def rename(self, old: str, new: str) -> None:
        inode = self._names.get(old)
        if inode is None:
            raise DiskError(errors.ENOENT, "rename", old)
        self._link((_parent(old), _parent(new)), ((old, None), (new, inode)))

    def sync_dir(self, directory: str) -> None:
        self.check("sync", directory)
        ancestors = {directory[:cut] for cut in range(len(directory) + 1) if directory[cut : cut + 1] in ("/", "")}
        ancestors.add("")
        waiting: list[_Rename] = []
        for rename in self._renames:
            if ancestors.isdisjoint(rename.directories):
                waiting.append(rename)
            else:
                _apply(self._durable_names, rename.links)
        self._renames = waiting

    def read(self, name: str) -> bytes:
        self.check("pread", name)
        inode = self._names.get(name)
        if inode is None:
            raise DiskError(errors.ENOENT, "read", name)
        return bytes(inode.visible)

    def replace(self, name: str, data: bytes) -> None:
        self.check("create", name)
        self.grow("create", name, len(data))
        self._used -= len(data)  # counted again by _make's caller below
        self.check("write", name)
        if self._sync_failed is not None:
            raise self._sync_failed
        self.check("sync", name)
        inode = self._make(name)
        inode.visible = bytearray(data)
        inode.durable = bytearray(data)
        self._used += len(data)
        self.sync_dir(_parent(name))

    def ticket(self, files: Iterable[File]) -> SyncTicket:
        return _Ticket(self.sequence, [cast(SimFile, file).inode for file in files])

    def sync(self, ticket: SyncTicket) -> None:
        sequence, inodes = cast(_Ticket, ticket)
        if not inodes:
            return
        if self._sync_failed is not None:
            raise self._sync_failed
        failed = self.faults.pop("sync", None) if self.faults else None
        for inode in inodes:
            if inode.dead:
                raise DiskError(errors.ESTALE, "sync after a crash", self.root)
            pending = inode.pending
            count = len(pending)
            if count and pending[-1].sequence > sequence:
                count = sum(1 for change in pending if change.sequence <= sequence)
            if failed is None:
                for change in pending[:count]:
                    inode.settle(change)
            del pending[:count]  # also after a failure: the kernel takes the pages for clean, no later sync writes them
        if failed is not None:
            self._sync_failed = DiskError(failed, "sync", self.root)
            raise self._sync_failed

    def usage(self) -> float:
        if self.full:
            return 1.0
        return self._used / self.capacity if self.capacity else 0.0

    def room(self) -> int:
        if self.full:
            return 0
        return max(0, self.capacity - self._used) if self.capacity else 1 << 40

    def lock(self) -> None:
        if self._locked:
            raise locked(self.root)
        self._locked = True

    def unlock(self) -> None:
        self._locked = False

    # Faults.

    def crash(self, random: Random | None = None) -> None:
        """Power cut: become what a disk may look like afterwards. Every open file is dead."""
        random = random or self._random
        happened = random.randint(0, len(self._renames))
        for rename in self._renames[:happened]:
            _apply(self._durable_names, rename.links)
        for inode in self._names.values():
            inode.dead = True
        names: dict[str, Inode] = {}
        for name in sorted(self._durable_names):
            inode = self._durable_names[name]
            inode.dead = True
            for change in inode.pending:
                suffer(inode, change, random)
            reborn = Inode()
            reborn.durable = inode.durable
            reborn.visible = bytearray(inode.durable)
            names[name] = reborn
        self._restart(names)
        self._durable_names = dict(names)
        self._renames = []

    def kill(self) -> None:
        """The process ends, the machine goes on: visible bytes stay, durable or not; every open file is dead."""
        reborn: dict[int, Inode] = {}

        def again(inode: Inode) -> Inode:
            if id(inode) not in reborn:
                inode.dead = True
                fresh = reborn[id(inode)] = Inode()
                fresh.visible, fresh.durable, fresh.pending = bytearray(inode.visible), inode.durable, inode.pending
            return reborn[id(inode)]

        self._durable_names = {name: again(inode) for name, inode in self._durable_names.items()}
        self._renames = [
            _Rename(where, tuple((name, inode and again(inode)) for name, inode in links))
            for where, links in self._renames
        ]
        self._restart({name: again(inode) for name, inode in self._names.items()})

    def wipe(self) -> None:
        """Somebody put in an empty disk."""
        for inode in (*self._names.values(), *self._durable_names.values()):
            inode.dead = True
        self._durable_names = {}
        self._renames = []
        self._restart({})

    def fail_next(self, operation: str, errno: int) -> None:
        """Let the next create, write, sync or pread fail."""
        assert operation in OPERATIONS, operation
        self.faults[operation] = errno

    def flip_bit(self, name: str, offset: int, bit: int) -> None:
        """Rot: one bit changes on the platter and in what reads see."""
        inode = self._names[name]
        for image in (inode.visible, inode.durable):
            if offset < len(image):
                image[offset] ^= 1 << bit

    # For oracles.

    def durable_bytes(self, name: str) -> bytes:
        """What a crash cannot take away, unless a write over it is still pending."""
        inode = self._durable_names.get(name)
        if inode is None:
            raise DiskError(errors.ENOENT, "read the durable bytes", name)
        return bytes(inode.durable)

    def files(self) -> Names:
        """All visible names."""
        return sorted(self._names)

    # For SimFile.

    def check(self, operation: str, name: str, inode: Inode | None = None) -> None:
        """Fail if the file is dead or this operation was told to."""
        if inode is not None and inode.dead:
            raise DiskError(errors.ESTALE, f"{operation} after a crash", name)
        if operation in self.faults:
            raise DiskError(self.faults.pop(operation), operation, name)

    def grow(self, operation: str, name: str, more: int) -> None:
        """Take room, or fail with ENOSPC."""
        if more >= 0 and (self.full or (self.capacity is not None and self._used + more > self.capacity)):
            raise DiskError(errors.ENOSPC, operation, name)
        self._used += more

    def _make(self, name: str) -> Inode:
        inode = Inode()
        self._link((_parent(name),), ((name, inode),))
        return inode

    def _link(self, directories: tuple[str, ...], links: tuple[tuple[str, Inode | None], ...]) -> None:
        for name, inode in links:
            old = self._names.get(name)
            if old is not None and inode is not old:
                self._used -= len(old.visible)
            if inode is not None:
                self._used += len(inode.visible)
        _apply(self._names, links)
        self._renames.append(_Rename(directories, links))

    def _restart(self, names: dict[str, Inode]) -> None:
        self._names = names
        self._used = sum(len(inode.visible) for inode in names.values())
        self._locked = False
        self._sync_failed = None
        self.faults = {}


def _parent(name: str) -> str:
    return name.rpartition("/")[0]


def _apply(names: dict[str, Inode], links: tuple[tuple[str, Any], ...]) -> None:
    for name, inode in links:
        if inode is None:
            names.pop(name, None)
        else:
            names[name] = inode
