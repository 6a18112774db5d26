"""Finds messages by key: hash tables on disk, each a header, slots, and 20-byte units chained per slot.

    index/<yyyyMMddHHmmssSSS>-<20-digit position>     UTC store time and position of the file's first message
    0        40                    40 + 4 * slots
    | header | slots: newest number | unit 0 (unused) | unit 1 | unit 2 | ...
    unit: | key hash 4 | position 8 | seconds since the first message 4 | number of the previous unit in the slot 4 |

Law: names and bytes are a function of the log. A file covers one commitlog segment and takes the keys of whole entries:
it ends when the segment does, or before an entry whose keys would not fit (an entry with more keys than a file holds
has a file of its own). So the log start, always a segment boundary, falls between files: dropping the head removes
whole files, and a rebuild from there gives the same names and bytes. The position in the name keeps names unique when
two files begin in one millisecond; RocketMQ's way out, counting the name up, would depend on files long dropped.

While a file grows, only its units are on disk; header and slots stay zero (a hole) and live in memory, a pure function
of name and units, from which a start rebuilds them. They are written when the next file begins. Slots flushed on the
way would cost up to 20 MB a checkpoint, and recovery could not trust them anyway.
Hashes collide and times are to the second: a lookup gives candidates, the caller looks at the messages.
Does not know: keys, topics, messages.
"""

import re
import struct
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from store.consumequeue import REBUILD
from store.disk import Disk
from store.handles import Handles
from store.hardstate import DamagedState

HEADER = struct.Struct(
    ">q"  # store time of the first message, ms
    "q"  # store time of the last message, to the second
    "q"  # position of the first message
    "q"  # position of the last message
    "i"  # slots in use
    "i"  # units, counted from 1: one more than there are
)
assert HEADER.size == 40
UNIT = struct.Struct(
    ">i"  # key hash, not negative
    "q"  # position in the commitlog
    "i"  # seconds since the header's first time
    "i"  # number of the previous unit in this slot, 0 = none
)
UNIT_DTYPE = np.dtype([("hash", ">i4"), ("position", ">i8"), ("seconds", ">i4"), ("previous", ">i4")])
UNIT_BYTES = UNIT.size
assert UNIT_BYTES == UNIT_DTYPE.itemsize == 20
Units = NDArray[np.void]

DIRECTORY = "index"
LOOKUP_STEPS_MAX = 200_000  # about half a second of a chain: one key on millions of messages must not stall a node
_PLAIN_KEYS_MAX = 8  # below this a loop is cheaper than numpy's fixed costs; the bytes are the same
_SLOT_BYTES = 4
_PAGE_SLOTS = 1024  # slots are written by pages of 4 KiB, untouched ones stay holes
_CHUNK_UNITS = 262_144
_SECONDS_MAX = 2**31 - 1
_NAME = re.compile(r"(\d{17})-(\d{20})")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def file_name(time_ms: int, position: int) -> str:
    moment = _EPOCH + timedelta(milliseconds=time_ms)
    return f"{DIRECTORY}/{moment:%Y%m%d%H%M%S}{time_ms % 1000:03d}-{position:020d}"


class _Head(NamedTuple):
    """What a file's name says."""

    time_ms: int
    position: int
    name: str


def _parse_name(name: str) -> _Head | None:
    """None for a name that is not ours."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    try:
        moment = datetime.strptime(match[1][:14] + "+0000", "%Y%m%d%H%M%S%z")
    except ValueError:
        return None
    time_ms = (moment - _EPOCH) // timedelta(milliseconds=1) + int(match[1][14:])
    return _Head(time_ms, int(match[2]), f"{DIRECTORY}/{name}")


class _Table:
    """Slots of the growing file, in memory; pages that were never touched cost nothing."""

    def __init__(self, slots: int) -> None:
        self.newest = np.zeros(slots, np.int32)
        self.touched = np.zeros(-(-slots // _PAGE_SLOTS), np.bool_)
        self.used = 0

    def chain(self, hashes: NDArray[np.integer], first_number: int) -> NDArray[np.int32]:
        """Enter units numbered from `first_number`; the previous number for each."""
        slots = (hashes % len(self.newest)).astype(np.intp)  # once, not at each use as an index
        numbers = np.arange(first_number, first_number + len(hashes), dtype=np.int32)
        previous = self.newest[slots]
        self.newest[slots] = numbers
        if not np.array_equal(self.newest[slots], numbers):  # a slot repeats: of its units all but one read another's
            self.newest[slots] = previous  # equal slots held equal numbers
            previous = self._chain_repeated(slots, numbers)
        else:
            self.used += len(hashes) - int(np.count_nonzero(previous))
        self.touched[slots // _PAGE_SLOTS] = True
        return previous

    def _chain_repeated(self, slots: NDArray[np.intp], numbers: NDArray[np.int32]) -> NDArray[np.int32]:
        """The same where units of one call chain to each other; it takes a sort."""
        count = len(slots)
        order = np.argsort(slots, kind="stable")
        ordered, ordered_numbers = slots[order], numbers[order]
        is_first = np.ones(count, np.bool_)
        is_first[1:] = ordered[1:] != ordered[:-1]
        is_last = np.ones(count, np.bool_)
        is_last[:-1] = is_first[1:]
        before = np.empty(count, np.int32)
        before[1:] = ordered_numbers[:-1]
        before[is_first] = old = self.newest[ordered[is_first]]
        self.used += int(np.count_nonzero(old == 0))
        self.newest[ordered[is_last]] = ordered_numbers[is_last]
        previous = np.empty(count, np.int32)
        previous[order] = before
        return previous

    def chain_one(self, hash_: int, number: int) -> int:
        slot = hash_ % len(self.newest)
        previous = int(self.newest[slot])
        self.newest[slot] = number
        self.touched[slot // _PAGE_SLOTS] = True
        self.used += previous == 0
        return previous


class KeyIndex:
    """All index files of a store; the last one grows."""

    def __init__(self, disk: Disk, handles: Handles, slots: int, units_per_file: int, segment_bytes: int) -> None:
        self._disk = disk
        self._handles = handles
        self._slots = slots
        self._units_per_file = units_per_file
        self._segment_bytes = segment_bytes
        self._units_at = HEADER.size + slots * _SLOT_BYTES
        found = (_parse_name(name) for name in disk.list(DIRECTORY))
        self._files = sorted((head for head in found if head is not None), key=lambda head: head.position)
        self._table: _Table | None = None  # of the last file, once it is needed
        self._count = 1  # the next unit's number there
        self._last = (0, 0)  # seconds and position of the last unit there

    def put_many(self, hashes: NDArray[np.integer], positions: NDArray[np.integer], time_ms: int) -> None:
        """The keys of one entry, in the order of its messages; all have the entry's store time."""
        count = len(hashes)
        if not count:
            return
        first_position = int(positions[0])
        table = self._room(count, time_ms, first_position)
        seconds = min(max(time_ms - self._files[-1].time_ms, 0) // 1000, _SECONDS_MAX)
        if count < _PLAIN_KEYS_MAX:
            pairs = zip(hashes.tolist(), positions.tolist(), strict=True)
            data = b"".join(
                UNIT.pack(hash_, position, seconds, table.chain_one(hash_, number))
                for number, (hash_, position) in enumerate(pairs, self._count)
            )
        else:
            units = np.empty(count, UNIT_DTYPE)
            units["hash"], units["position"], units["seconds"] = hashes, positions, seconds
            units["previous"] = table.chain(hashes, self._count)
            data = units.tobytes()
        self._handles.writing(self._files[-1].name).write_at(self._unit_at(self._count), data)
        self._count += count
        self._last = (seconds, int(positions[-1]))

    def lookup(self, hash_: int, begin_ms: int, end_ms: int, max_count: int) -> list[int]:
        """Positions of messages that may have the key and a store time in [begin_ms, end_ms], newest first."""
        found: list[int] = []
        steps = LOOKUP_STEPS_MAX
        for index in range(len(self._files) - 1, -1, -1):
            if self._files[index].time_ms > end_ms:
                continue
            for position, second_ms in self._walk(index, hash_):
                steps -= 1
                if second_ms + 999 < begin_ms or steps <= 0:
                    return found
                if second_ms <= end_ms and position >= 0:
                    found.append(position)
                    if len(found) >= max_count:
                        return found
        return found

    def units(self) -> Iterator[tuple[str, int, Units]]:
        """(file, number of the first, units) pieces, to hold them against the log."""
        for _, _, name in self._files:
            end = self._end_of(name)
            for number in range(1, end, _CHUNK_UNITS):
                yield name, number, self._read(name, number, min(number + _CHUNK_UNITS, end))

    def ends_with(self, count: int, position: int) -> bool:
        """After `cut_back`: whether the newest file has `count` units or more of messages from `position` on."""
        first = self._count - count
        if not self._files or first < 1:
            return False
        return int(self._read(self._files[-1].name, first, first + 1)["position"][0]) >= position

    def drop_below(self, log_start: int) -> None:
        """Remove the files of segments that are gone."""
        assert log_start % self._segment_bytes == 0, "the log begins at a segment boundary"
        gone = [head for head in self._files if head.position < log_start]
        self._files = self._files[len(gone) :]
        self._remove(gone)
        if not self._files:
            self._table = None

    def cut_back(self, to_position: int, log_start: int) -> None:
        """After a start: keep exactly the units of [log_start, to_position); see ConsumeQueue.cut_back."""
        self._remove([head for head in self._files if not log_start <= head.position < to_position])
        self._files = [head for head in self._files if log_start <= head.position < to_position]
        self._table = None
        for head in self._files[:-1]:
            self._check_sealed(head)
        while self._files:
            name = self._files[-1].name
            self._load(to_position)
            if self._count > 1:
                if self._handles.reading(name).size != self._unit_at(self._count):
                    self._handles.writing(name).truncate(self._unit_at(self._count))
                self._unseal(name)
                return
            self._remove([self._files.pop()])
            self._table = None

    def remove(self) -> None:
        """All files; the index is empty then."""
        self._remove(self._files)
        self._handles.touch_directory(DIRECTORY)
        self._files = []
        self._table = None

    def _unit_at(self, number: int) -> int:
        return self._units_at + number * UNIT_BYTES

    def _end_of(self, name: str) -> int:
        """One above the last whole unit's number in the file."""
        return max(1, (self._handles.reading(name).size - self._units_at) // UNIT_BYTES)

    def _read(self, name: str, start: int, end: int) -> Units:
        data = self._handles.reading(name).pread(self._unit_at(start), (end - start) * UNIT_BYTES)
        return np.frombuffer(data, UNIT_DTYPE, len(data) // UNIT_BYTES)

    def _remove(self, heads: list[_Head]) -> None:
        names = [head.name for head in heads]
        self._handles.forget(names)
        for name in names:
            self._disk.remove(name)

    def _room(self, count: int, time_ms: int, position: int) -> _Table:
        """The table of the file that takes these keys; begins a new file when the law says so."""
        if self._files:
            if self._table is None:
                self._load(None)
            assert self._table is not None
            if (
                position // self._segment_bytes == self._files[-1].position // self._segment_bytes
                and self._count + count <= self._units_per_file
            ):
                return self._table
            self._seal(self._table)
        head = _Head(time_ms, position, file_name(time_ms, position))
        self._files.append(head)
        self._handles.making(head.name)
        self._table = _Table(self._slots)
        self._count = 1
        self._last = (0, position)
        return self._table

    def _seal(self, table: _Table) -> None:
        """Write header and touched slots: nothing more comes to this file."""
        time_ms, position, name = self._files[-1]
        seconds, last_position = self._last
        file = self._handles.writing(name)
        end_ms = time_ms + seconds * 1000
        file.write_at(0, HEADER.pack(time_ms, end_ms, position, last_position, table.used, self._count))
        for first, after in _runs(table.touched):
            slots = table.newest[first * _PAGE_SLOTS : after * _PAGE_SLOTS]
            file.write_at(HEADER.size + first * _PAGE_SLOTS * _SLOT_BYTES, slots.astype(">i4").tobytes())

    def _check_sealed(self, head: _Head) -> None:
        file = self._handles.reading(head.name)
        header = file.pread(0, HEADER.size)
        time_ms, _, position, _, _, count = HEADER.unpack(header) if len(header) == HEADER.size else (0,) * 6
        if (time_ms, position) != head[:2] or file.size != self._unit_at(count):
            raise DamagedState(f"{head.name} is not what its header says", do=REBUILD)

    def _unseal(self, name: str) -> None:
        """Header and slots of the last file are zero; they are not if the file after it was cut away."""
        step = _PAGE_SLOTS * _SLOT_BYTES * 256
        for at in range(0, self._units_at + UNIT_BYTES, step):
            size = min(step, self._units_at + UNIT_BYTES - at)
            data = self._handles.reading(name).pread(at, size)
            if data.strip(b"\0"):
                self._handles.writing(name).write_at(at, bytes(len(data)))

    def _load(self, to_position: int | None) -> None:
        """Rebuild the last file's table from its units. With a position: stop at the first unit that is not below it.

        Raises DamagedState if good units follow a bad one below `to_position`."""
        head = self._files[-1]
        name, stop = head.name, self._end_of(head.name)
        limit = (head.position // self._segment_bytes + 1) * self._segment_bytes
        limit = limit if to_position is None else min(limit, to_position)
        table = _Table(self._slots)
        self._count, self._last = 1, (0, head.position)
        for number in range(1, stop, _CHUNK_UNITS):
            units = self._read(name, number, min(number + _CHUNK_UNITS, stop))
            good = self._good_units(units, limit)
            kept = units[:good]
            if good:
                wrong = np.flatnonzero(kept["previous"] != table.chain(kept["hash"].astype(np.int64), number))
                if len(wrong):
                    raise self._damage(name, number + int(wrong[0]))
                self._count = number + good
                self._last = (int(kept["seconds"][-1]), int(kept["position"][-1]))
            if good < len(units):
                self._check_rest(name, number + good + 1, stop, limit)
                break
        if to_position is not None and self._count > 1:
            self._check_last(name)
        self._table = table

    def _check_last(self, name: str) -> None:
        """A unit of an unsynced write, torn inside its position, may look as if it were below `to_position`.

        Torn means a beginning is kept and zeros follow, or the reverse at the edge of a sector. A genuine unit that
        looks so is rare enough (low byte of the position, seconds and previous all zero) to pay with a rebuild."""
        unit = self._read(name, self._count - 1, self._count).tobytes()
        if not any(unit[11:]) or not any(unit[:5]):
            raise self._damage(name, self._count - 1)

    def _good_units(self, units: Units, limit: int) -> int:
        """How many units from the first on go on from the last one and lie below `limit`."""
        seconds, positions = units["seconds"].astype(np.int64), units["position"].astype(np.int64)
        good = (units["hash"] >= 0) & (positions < limit)
        good &= np.diff(positions, prepend=self._last[1]) >= 0
        good &= np.diff(seconds, prepend=self._last[0]) >= 0
        if self._count == 1 and len(units):
            good[0] &= positions[0] == self._last[1] and seconds[0] == 0
        return len(good) if good.all() else int(np.argmin(good))

    def _check_rest(self, name: str, start: int, stop: int, limit: int) -> None:
        for number in range(start, stop, _CHUNK_UNITS):
            positions = self._read(name, number, min(number + _CHUNK_UNITS, stop))["position"]
            good = np.flatnonzero((positions > self._last[1]) & (positions < limit))
            if len(good):
                raise self._damage(name, start - 1)

    def _damage(self, name: str, number: int) -> DamagedState:
        return DamagedState(f"{name} at unit {number}: not what the units before it and the log allow", do=REBUILD)

    def _walk(self, index: int, hash_: int) -> Iterator[tuple[int, int]]:
        """(position, store time to the second) of the units with this hash, newest first; -1 for other hashes."""
        first_ms, _, name = self._files[index]
        if index == len(self._files) - 1:
            if self._table is None:
                self._load(None)
            assert self._table is not None
            number, end = int(self._table.newest[hash_ % self._slots]), self._count
        else:
            slot = self._handles.reading(name).pread(HEADER.size + hash_ % self._slots * _SLOT_BYTES, _SLOT_BYTES)
            number, end = int.from_bytes(slot, signed=True), self._end_of(name)
        read: Callable[[int, int], bytes] = self._handles.reading(name).pread
        while 0 < number < end:
            found, position, seconds, previous = UNIT.unpack(read(self._unit_at(number), UNIT_BYTES))
            yield (position if found == hash_ else -1), first_ms + seconds * 1000
            end, number = number, previous  # a chain only goes down: a damaged one ends instead of going round


def _runs(flags: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """[first, after) of each run of True."""
    edges = np.flatnonzero(np.diff(flags, prepend=False, append=False))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))
