"""Where the messages of one queue lie: a 20-byte unit per message, in the order of queue offsets.

    consumequeue/<topic>/<queue>/<20-digit byte offset of the file's first unit>
    0          8      12       20
    | position | size | tag hash |      unit of offset o: byte 20 * o of the files laid end to end

Law: units have no gap, and the files' bytes are a function of the log [log start, applied) alone, so a rebuild gives
the same bytes. For that, precisely:
- a queue without a live message (one at or above the log start) has no files and no directory;
- files that hold no live unit do not exist; in the first file all bytes below the first live unit are zero;
- the last file ends right after the last unit.
So a node that dropped its head and a node that was handed the log from there hold equal files. What the next offset of
a queue without messages is, the replicated state knows, not this module: an empty queue begins at any offset.

Zeroing may be torn by a crash. That is harmless because the log start is durable elsewhere before `drop_below` runs,
and recovery (`cut_back`) repeats it: a unit below the log start is dead whether it was zeroed or not.
Does not know: messages, store times, what a tag means, who reads.
"""

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from store.disk import Disk
from store.handles import Handles
from store.hardstate import DamagedState

UNIT = struct.Struct(
    ">q"  # position in the commitlog
    "i"  # size in bytes
    "q"  # tag hash
)
UNIT_BYTES = UNIT.size
UNIT_DTYPE = np.dtype([("position", ">i8"), ("size", ">i4"), ("tag", ">i8")])
assert UNIT_BYTES == UNIT_DTYPE.itemsize == 20
Units = NDArray[np.void]

DIRECTORY = "consumequeue"
REBUILD = "rebuild the queues and the index from the log"
SCAN_UNITS_MAX = 800  # a pull looks at no more, match or not: 16 KB, so that one rare tag cannot hold up the loop
PLAIN_UNITS_MAX = 8  # below this a struct loop is cheaper than numpy's fixed costs; the bytes are the same
_TAIL_UNITS = 4096  # recovery reads the tail in steps of this many units
_PROOF_UNITS = 64  # so many good units in a row are more than a torn sector can counterfeit
_ITER_UNITS = 65536
_TOPIC = re.compile(r"(?!\.{1,2}$)[%|A-Za-z0-9_.-]{1,255}")
_FILE = re.compile(r"\d{20}")


class PullStatus(Enum):
    FOUND = "found"
    NO_MATCH = "no_match"  # messages were there, none with a wanted tag; go on at next_offset
    TOO_SMALL = "too_small"  # the offset is below the queue's first one, which is next_offset
    AT_END = "at_end"  # nothing there yet
    BEYOND_END = "beyond_end"  # the offset is above the queue's end, which is next_offset


@dataclass(frozen=True, slots=True)
class PullPlan:
    status: PullStatus
    extents: tuple[tuple[int, int], ...]  # [start, end) in the commitlog, neighbours merged
    next_offset: int
    count: int


def queue_directory(topic: str, queue: int) -> str:
    """Refuses names that are not one plain directory: the topic is outside input in the end."""
    if _TOPIC.fullmatch(topic) is None or queue < 0:
        raise ValueError(f"not the name of a queue: {topic!r} {queue}")
    return f"{DIRECTORY}/{topic}/{queue}"


def pack_units(positions: NDArray[np.int64], sizes: NDArray[np.integer], tags: NDArray[np.integer]) -> bytes:
    """Columns to bytes."""
    if len(sizes) < PLAIN_UNITS_MAX:
        return b"".join(map(UNIT.pack, positions.tolist(), sizes.tolist(), tags.tolist()))
    units = np.empty(len(sizes), UNIT_DTYPE)
    units["position"], units["size"], units["tag"] = positions, sizes, tags
    return units.tobytes()


class ConsumeQueue:
    """One queue. Opening lists names only; the first use looks into the first and the last file."""

    def __init__(self, disk: Disk, handles: Handles, directory: str, units_per_file: int) -> None:
        self.directory = directory
        self._disk = disk
        self._handles = handles
        self._units_per_file = units_per_file
        names = [name for name in disk.list(directory) if _FILE.fullmatch(name)]
        self._bases = [int(name) // UNIT_BYTES for name in names]  # offset of each file's first unit
        self._tail_base = -1  # of the file being written
        self._tail_name = ""
        self._min = self._max = 0
        self._loaded = not self._bases

    @property
    def min_offset(self) -> int:
        if not self._loaded:
            self._load()
        return self._min

    @property
    def max_offset(self) -> int:
        """One above the last offset."""
        if not self._loaded:
            self._load()
        return self._max

    @property
    def is_empty(self) -> bool:
        return self.min_offset == self.max_offset

    def append_columns(
        self, first_offset: int, positions: NDArray[np.int64], sizes: NDArray[np.integer], tags: NDArray[np.integer]
    ) -> None:
        self.append_packed(first_offset, pack_units(positions, sizes, tags))

    def append_packed(self, first_offset: int, data: bytes | memoryview) -> None:
        """Units as bytes: one write per file. An empty queue begins wherever its first message says."""
        if not self._loaded:
            self._load()
        if first_offset != self._max:
            if self._bases:
                raise DamagedState(
                    f"{self.directory} ends at offset {self._max}, but the log goes on at {first_offset}",
                    do=REBUILD,
                )
            self._min = self._max = first_offset
        written = 0
        while written < len(data):
            base = self._max - self._max % self._units_per_file
            at = (self._max - base) * UNIT_BYTES
            part = data[written : written + self._units_per_file * UNIT_BYTES - at]
            if base == self._tail_base:
                file = self._handles.writing(self._tail_name)
            elif self._bases and base == self._bases[-1]:
                file = self._handles.writing(self._name(base))
            else:
                file = self._handles.making(self._name(base))
                self._bases.append(base)
            self._tail_base, self._tail_name = base, file.name
            file.write_at(at, part)
            self._max += len(part) // UNIT_BYTES
            written += len(part)

    def read_units(self, offset: int, count: int) -> Units:
        """Units [offset, offset + count), fewer at the end of the queue."""
        assert self.min_offset <= offset, (offset, self.min_offset)
        return self._read(offset, min(offset + count, self._max))

    def units(self, offset: int | None = None) -> Iterator[tuple[int, Units]]:
        """(first offset, units) pieces up to the end, to hold them against the log."""
        at = self.min_offset if offset is None else offset
        while at < self._max:
            piece = self.read_units(at, _ITER_UNITS)
            yield at, piece
            at += len(piece)

    def plan_read(
        self, offset: int, count_max: int, bytes_max: int, tags: frozenset[int] | None, below: int
    ) -> PullPlan:
        """What to read for a pull: at least one message if any matches, nothing at or above position `below`.

        Raises DamagedState if the units there make no sense."""
        if offset < self.min_offset:
            return PullPlan(PullStatus.TOO_SMALL, (), self._min, 0)
        if offset >= self._max:
            status = PullStatus.AT_END if offset == self._max else PullStatus.BEYOND_END
            return PullPlan(status, (), self._max, 0)
        scan = SCAN_UNITS_MAX if tags is not None else min(SCAN_UNITS_MAX, max(count_max, 1))
        units = self.read_units(offset, scan)
        return _plan(units, offset, count_max, bytes_max, tags, below, self.directory)

    def drop_below(self, log_start: int) -> bool:
        """Forget units below the log start (which must be durable elsewhere); True if none is left."""
        if not self.is_empty:
            first = self._first_live(self._min, self._max, log_start)
            if first > self._min:
                self._drop_head(first)
        return self.is_empty

    def cut_back(self, to_position: int, log_start: int) -> bool:
        """After a start: keep exactly the units of [log_start, to_position); True if none is left.

        Units below `to_position` were synced and are trusted in order; above it the files may hold anything: later
        units, zeros, torn ones. Raises DamagedState if good units follow bad ones: then the disk lost synced bytes."""
        end = 0
        for base in reversed(self._bases):
            end = self._tail_of(base, to_position, log_start)
            if end > base:
                break
        keep = [base for base in self._bases if base < end]
        self._remove([base for base in self._bases if base >= end])
        self._tail_base = -1
        self._bases = keep
        self._loaded = True
        if not keep:
            self._min = self._max = 0
            return True
        if keep != list(range(keep[0], keep[-1] + 1, self._units_per_file)):
            raise self._damage(keep[0], "a file is missing")
        for base in keep[:-1]:
            if self._file_units(base) != self._units_per_file:
                raise self._damage(base, "the file is too short")
        if self._handles.reading(self._name(keep[-1])).size != (end - keep[-1]) * UNIT_BYTES:
            self._handles.writing(self._name(keep[-1])).truncate((end - keep[-1]) * UNIT_BYTES)
        self._min, self._max = keep[0], end
        self._drop_head(self._first_live(keep[0], end, log_start))
        return False

    def remove(self) -> None:
        """Files and directory go; the object is of no use afterwards."""
        self._remove(self._bases)
        self._handles.touch_directory(self.directory)
        self._disk.remove_tree(self.directory)

    def _load(self) -> None:
        first, last = self._bases[0], self._bases[-1]
        self._max = last + self._file_units(last)
        self._min = self._first_live(first, min(first + self._file_units(first), self._max), 0)
        self._loaded = True

    def _name(self, base: int) -> str:
        return f"{self.directory}/{base * UNIT_BYTES:020d}"

    def _file_units(self, base: int) -> int:
        return min(self._handles.reading(self._name(base)).size // UNIT_BYTES, self._units_per_file)

    def _read(self, start: int, end: int) -> Units:
        base = start - start % self._units_per_file
        parts = []
        while start < end:
            stop = min(end, base + self._units_per_file)
            size = (stop - start) * UNIT_BYTES
            data = self._handles.reading(self._name(base)).pread((start - base) * UNIT_BYTES, size)
            if len(data) != size:
                raise self._damage(start, "the file is too short")
            parts.append(data)
            start = base = stop
        return np.frombuffer(parts[0] if len(parts) == 1 else b"".join(parts), UNIT_DTYPE)

    def _first_live(self, low: int, high: int, log_start: int) -> int:
        """The first offset in [low, high) whose unit is live, else `high`: dead units (zero or old) come first."""
        while low < high:
            middle = (low + high) // 2
            unit = self._read(middle, middle + 1)[0]
            if unit["size"] > 0 and unit["position"] >= log_start:
                high = middle
            else:
                low = middle + 1
        return low

    def _drop_head(self, first: int) -> None:
        """Make `first` the first live offset, `_min` being the first whose bytes may not be zero."""
        gone = [base for base in self._bases if base + self._units_per_file <= first or first == self._max]
        self._remove(gone)
        self._bases = self._bases[len(gone) :]
        if self._bases:
            base = self._bases[0]
            for at in range(max(base, self._min), first, _ITER_UNITS):
                old = self._read(at, min(at + _ITER_UNITS, first))
                if old.view(np.uint8).any():
                    self._handles.writing(self._name(base)).write_at((at - base) * UNIT_BYTES, bytes(old.nbytes))
        else:
            self._tail_base = -1
        self._min = first

    def _tail_of(self, base: int, to_position: int, log_start: int) -> int:
        """The offset after the last unit of [log_start, to_position) in this file; `base` if there is none."""
        stop = end = base + self._file_units(base)
        while end > base:
            start = max(base, end - _TAIL_UNITS)
            units = self._read(start, stop)
            first, after, is_last = _live_run(units, to_position, log_start)
            if start == base and ((units["size"] > 0) & (units["position"] >= log_start))[:first].any():
                return base  # younger units come first: this one is above the checkpoint and torn so that it looks old
            if not is_last:
                raise self._damage(start + after, "good units follow a bad one")
            if after - first >= _PROOF_UNITS or (start == base and after > first):
                return start + after
            end = start
        return base

    def _remove(self, bases: list[int]) -> None:
        names = [self._name(base) for base in bases]
        self._handles.forget(names)
        for name in names:
            self._disk.remove(name)

    def _damage(self, offset: int, reason: str) -> DamagedState:
        return DamagedState(f"{self.directory} at offset {offset}: {reason}", do=REBUILD)


def _live_run(units: Units, to_position: int, log_start: int) -> tuple[int, int, bool]:
    """(first live unit, end of the unbroken run of live units from there, whether no live unit follows later).

    A unit is live if it lies in [log_start, to_position) with a possible size and behind the one before it."""
    starts, sizes = units["position"].astype(np.int64), units["size"].astype(np.int64)
    live = (sizes > 0) & (starts >= log_start) & (starts <= to_position - sizes)
    where = np.flatnonzero(live)
    if not len(where):
        return 0, 0, True
    first = int(where[0])
    good = live[first:].copy()
    good[1:] &= starts[first + 1 :] >= (starts + sizes)[first:-1]
    run = len(good) if good.all() else int(np.argmin(good))
    end = int(starts[first + run - 1] + sizes[first + run - 1])
    after = first + run
    return first, after, not (live[after + 1 :] & (starts[after + 1 :] >= end)).any()


def _plan(
    units: Units, offset: int, count_max: int, bytes_max: int, tags: frozenset[int] | None, below: int, directory: str
) -> PullPlan:
    starts = units["position"].astype(np.int64)
    seen = int(np.searchsorted(starts, below)) if starts[-1] >= below else len(starts)
    if not seen:
        return PullPlan(PullStatus.AT_END, (), offset, 0)
    starts, sizes = starts[:seen], units["size"][:seen].astype(np.int64)
    ends = starts + sizes
    if starts[0] < 0 or (sizes <= 0).any() or (starts[1:] < ends[:-1]).any():
        raise DamagedState(f"{directory} from offset {offset}: impossible units", do=REBUILD)
    next_offset = offset + seen
    if tags is not None:
        wanted = np.flatnonzero(np.isin(units["tag"][:seen], list(tags)))
        if not len(wanted):
            return PullPlan(PullStatus.NO_MATCH, (), next_offset, 0)
        starts, sizes, ends = starts[wanted], sizes[wanted], ends[wanted]
    else:
        wanted = None
    fit = int(np.searchsorted(np.cumsum(sizes), bytes_max, side="right"))
    count = max(1, min(fit, count_max))
    if count < len(starts):  # stopped before a wanted one: the next pull begins there
        next_offset = offset + (count if wanted is None else int(wanted[count]))
        starts, ends = starts[:count], ends[:count]
    breaks = np.flatnonzero(starts[1:] != ends[:-1]) + 1
    if len(breaks):
        firsts, lasts = starts[np.r_[0, breaks]].tolist(), ends[np.r_[breaks - 1, count - 1]].tolist()
        return PullPlan(PullStatus.FOUND, tuple(zip(firsts, lasts, strict=True)), next_offset, count)
    return PullPlan(PullStatus.FOUND, ((int(starts[0]), int(ends[-1])),), next_offset, count)
