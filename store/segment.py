"""The files under the commitlog: names, allocation, recycling, repair of a file that has the wrong size.

    commitlog/00000000000000000000   commitlog/00000000000000004096   ...      segment_bytes each, named by position

Law: a segment file has its full size and its name durable before a byte of log goes into it, so a full disk shows up
here and never as a fault in the map. A recycled file is used again only under a higher name: the entries left in it
all say they belong elsewhere, and the first envelope is zeroed. Does not know: entries beyond the envelope's size.
"""

from model.ports import Buffer
from store.disk import Disk, DiskError, File
from store.entry import ENVELOPE_BYTES

DIRECTORY = "commitlog"
NAME_DIGITS = 20
TEMPORARY = ".tmp"
COPY_BYTES = 1 << 20  # a step of copying: large enough for speed, small enough to stay unnoticed in memory


def segment_name(base: int) -> str:
    return f"{DIRECTORY}/{base:0{NAME_DIGITS}d}"


def segment_bases(disk: Disk) -> list[int]:
    """First positions of the segments on this disk, ascending."""
    return [int(name) for name in disk.list(DIRECTORY) if len(name) == NAME_DIGITS and name.isdigit()]


def remove_others(disk: Disk, segment_bytes: int, first: int, last: int) -> None:
    """Durably remove everything but the segments number first to last."""
    removed = False
    for name in disk.list(DIRECTORY):
        base = int(name) if len(name) == NAME_DIGITS and name.isdigit() else -1
        if base < 0 or base % segment_bytes or not first <= base // segment_bytes <= last:
            disk.remove_tree(f"{DIRECTORY}/{name}")
            removed = True
    if removed:
        disk.sync_dir(DIRECTORY)


def allocate(disk: Disk, base: int, segment_bytes: int) -> File:
    """A new segment, durable in size and name before use."""
    file = disk.create(segment_name(base), segment_bytes)
    disk.sync(disk.ticket([file]))
    disk.sync_dir(DIRECTORY)
    return file


def warm(file: File) -> None:
    """Bring the file's pages into memory, so that the first write to each does not wait for that on the loop."""
    try:
        for at in range(0, file.size, COPY_BYTES):
            file.pread(at, COPY_BYTES)
    except DiskError:
        pass  # a courtesy: the log may have been cut or closed meanwhile, and a bad disk will be met by the next sync


def recycle(disk: Disk, file: File, base: int) -> File:
    """Turn a dropped segment that nobody looks at into a future one."""
    write_synced(disk, file, 0, bytes(ENVELOPE_BYTES))
    old, new = file.name, segment_name(base)
    assert old < new, f"{old} -> {new}: stale entries could fit"
    file.close()
    disk.rename(old, new)
    disk.sync_dir(DIRECTORY)
    return disk.open(new, mapped=True)


def open_whole(disk: Disk, base: int, segment_bytes: int) -> File:
    """The segment, mapped; a missing one is made, one of the wrong size is copied into one of the right size."""
    name = segment_name(base)
    if not disk.exists(name):
        return allocate(disk, base, segment_bytes)
    short = disk.open(name)
    if short.size == segment_bytes:
        short.close()
        return disk.open(name, mapped=True)
    temporary = name + TEMPORARY
    disk.remove_tree(temporary)
    whole = disk.create(temporary, segment_bytes)
    for at in range(0, min(short.size, segment_bytes), COPY_BYTES):
        data = short.pread(at, min(COPY_BYTES, segment_bytes - at))
        whole.write_at(at, data)
    disk.sync(disk.ticket([whole]))
    short.close()
    whole.close()
    disk.rename(temporary, name)
    disk.sync_dir(DIRECTORY)
    return disk.open(name, mapped=True)


def write_synced(disk: Disk, file: File, offset: int, data: Buffer) -> None:
    """Write and wait for the disk."""
    file.write_at(offset, data)
    disk.sync(disk.ticket([file]))
