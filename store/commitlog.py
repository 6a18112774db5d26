"""Segments laid end to end are the Raft log.

    start                                        end
      |  segment k    |  segment k+1  |  segment k+2  |  next, made ahead
      [entry][entry][blank][entry .......][entry]00000|

Law: the log ends on an entry boundary, no entry crosses a segment, and after a crash it is either what it was or a
prefix: a cut is durable before a byte is written over what was cut. (Only if a lost entry is written again byte for
byte may entries that followed it come back: the same ones, from the one leader of their term.) The two newest
segments are mapped; older ones are read with pread. Segments that views look at are neither unmapped nor used again
until the views are gone.

One thread (the loop) owns a CommitLog. `ensure_next`, `read` and a sync of a ticket may run in another.
Does not know: what a term means, commit, who else has these bytes.
"""

import threading
from collections.abc import Iterator, Sequence

from model.ports import Buffer
from store.disk import Disk, File, SyncTicket
from store.entry import ENVELOPE_BYTES, CorruptEntry, EntryKind, Extent, Header, chain_after, pack, peek, verify
from store.marks import SPACING_BYTES, Marks
from store.segment import (
    COPY_BYTES,
    DIRECTORY,
    allocate,
    open_whole,
    recycle,
    remove_others,
    segment_name,
    warm,
    write_synced,
)

BLOCK_BYTES = 16 << 10  # read at a time while walking envelopes: some forty small entries, or one large one's envelope
MAPPED_SEGMENTS = 2  # the tail, and the one before it that followers may still be reading
SPARES_MAX = 1  # dropped segments kept for the next allocation: one is made for each that fills
ZERO_ENVELOPE = bytes(ENVELOPE_BYTES)


class CommitLog:
    """The log between `start` and `end`. Open it with `open_at`."""

    def __init__(self, disk: Disk, segment_bytes: int, start: int, start_chain: int, time_ms: int) -> None:
        self.segment_bytes = segment_bytes
        self._disk = disk
        self._allocation = threading.Lock()  # whoever makes, moves or removes files holds it
        self._begin(start, start_chain, time_ms)

    def _begin(self, start: int, start_chain: int, time_ms: int) -> None:
        self.start = start
        self.start_chain = start_chain
        self.end = start
        self.chain = start_chain
        self.end_time_ms = time_ms
        self._start_time_ms = time_ms
        self._segments: dict[int, File] = {}  # number -> file
        self._tail: File | None = None
        self._dirty: dict[int, File] = {}
        self._dropped: list[File] = []  # below the start, waiting to be unpinned, then recycled or removed
        self._marks = Marks()
        self._memo = (start, start_chain)  # where the last reader stopped: it comes back there

    @classmethod
    def open_at(
        cls,
        disk: Disk,
        segment_bytes: int,
        start: int,
        start_chain: int,
        end: int,
        chain: int,
        *,
        time_ms: int = 0,
        durable: int | None = None,
        marks: Sequence[tuple[int, int]] = (),
    ) -> "CommitLog":
        """The log that a scan found to end at `end`. On return it is durable up to there and nothing lies behind it.

        Bytes from `durable` on (default: all) are written again before the sync: after a sync that failed, the kernel
        takes pages for clean that never reached the disk, and a process started anew cannot tell."""
        log = cls(disk, segment_bytes, start, start_chain, time_ms)
        first, last = start // segment_bytes, end // segment_bytes
        remove_others(disk, segment_bytes, first, last)
        for number in range(first, last + 1):
            name = segment_name(number * segment_bytes)
            if number == last and (end % segment_bytes or disk.exists(name)):
                log._tail = log._segments[number] = open_whole(disk, number * segment_bytes, segment_bytes)
            elif disk.exists(name):
                log._segments[number] = disk.open(name)
        for position, known in marks:
            if start <= position < end:
                log._marks.note(position, known)
        log.end, log.chain = end, chain
        if end > start:
            log._marks.note(end, chain)
        log._rewrite(start if durable is None else max(start, durable))
        if log._tail is not None:
            log._write(end, ZERO_ENVELOPE[: segment_bytes - end % segment_bytes])
        disk.sync(log.begin_sync())
        return log

    def _rewrite(self, start: int) -> None:
        while start < self.end:
            size = min(COPY_BYTES, self.end - start, self.segment_bytes - start % self.segment_bytes)
            self._write(start, self._file(start).pread(start % self.segment_bytes, size))
            start += size

    # Appending.

    def append_entry(self, term: int, time_ms: int, kind: int, body: Buffer) -> int:
        """The leader's way: wrap `body` in an envelope at the end of the log. Returns the new end."""
        end = self.end
        offset = end % self.segment_bytes
        size = ENVELOPE_BYTES + len(body)
        room = self.segment_bytes - offset
        assert size == room or size <= room - ENVELOPE_BYTES, f"{size} bytes at {end} leave no room for a blank"
        envelope, chain = pack(end, term, time_ms, kind, body, self.chain)
        file = self._tail_file(end)
        file.write_at(offset, envelope)
        file.write_at(offset + ENVELOPE_BYTES, body)
        self._advance(end + size, chain, time_ms)
        return self.end

    def fill_blank(self, term: int, time_ms: int) -> int:
        """A blank entry over the rest of the segment."""
        room = self.segment_bytes - self.end % self.segment_bytes
        return self.append_entry(term, time_ms, EntryKind.BLANK, bytes(room - ENVELOPE_BYTES))

    def append_raw(self, start: int, payload: Buffer, skip: int, extent: Extent) -> None:
        """The follower's way: `payload` holds the inspected entries of `extent` from `start` on; write those from
        start + skip, which is our end, if they continue our chain."""
        assert start + skip == self.end and extent.end == start + len(payload), (start, skip, self.end, extent)
        rest = memoryview(payload)[skip:]
        if not rest:
            return
        first = peek(rest, 0, self.end)
        if chain_after(rest, 0, self.chain) != first.chain:
            raise CorruptEntry(self.end, "the chain crc does not fit what comes before")
        at = self.segment_bytes - self.end % self.segment_bytes
        while at < len(rest):
            peek(rest, at, self.end + at)  # an entry begins here, so none crosses the segment's end
            at += self.segment_bytes
        position = self.end
        while rest:
            offset = position % self.segment_bytes
            part = rest[: self.segment_bytes - offset]
            self._tail_file(position).write_at(offset, part)
            position += len(part)
            rest = rest[len(part) :]
        self._advance(position, extent.chain, extent.last_time_ms)

    def _tail_file(self, position: int) -> File:
        """The file for an append at `position`, dirty from now on."""
        number = position // self.segment_bytes
        if self._tail is None or not position % self.segment_bytes:
            with self._allocation:
                self._tail = self._segments.get(number) or self._allocate(number)
        self._dirty[number] = self._tail
        return self._tail

    def _advance(self, end: int, chain: int, time_ms: int) -> None:
        self.end = end
        self.chain = chain
        self.end_time_ms = time_ms
        self._marks.note(end, chain)

    def _write(self, position: int, data: Buffer) -> None:
        file = self._file(position)
        file.write_at(position % self.segment_bytes, data)
        self._dirty[position // self.segment_bytes] = file

    def begin_sync(self) -> SyncTicket:
        """A ticket for everything written since the last one."""
        ticket = self._disk.ticket(self._dirty.values())
        self._dirty = {}
        return ticket

    # Cutting.

    def truncate(self, to: int) -> None:
        """Cut the log back to the boundary `to`; on return the cut is durable and the bytes may be overwritten."""
        assert self.start <= to <= self.end, (self.start, to, self.end)
        if to == self.end:
            return
        self.chain, self.end_time_ms = self._state_at(to)
        self.end = to
        self._marks.cut_above(to)
        self._memo = (self.start, self.start_chain)
        number = to // self.segment_bytes
        with self._allocation:
            above = [other for other in self._segments if other > number]
            for other in above:
                self._remove(self._segments.pop(other))
                self._dirty.pop(other, None)
            if above:
                self._disk.sync_dir(DIRECTORY)
        self._tail = self._file(to)
        write_synced(self._disk, self._tail, to % self.segment_bytes, ZERO_ENVELOPE)

    def reset(self, start: int, start_chain: int, time_ms: int = 0) -> None:
        """Forget everything and begin at `start`, durably."""
        with self._allocation:
            for file in (*self._segments.values(), *self._dropped):
                file.close()
            remove_others(self._disk, self.segment_bytes, 0, -1)
            self._begin(start, start_chain, time_ms)

    def drop_head(self, to: int) -> None:
        """Let whole segments below `to` go. Their files are recycled or removed by the next `ensure_next`."""
        assert to <= self.end, (to, self.end)
        first = to // self.segment_bytes
        start = first * self.segment_bytes
        if start <= self.start:
            return
        self.start_chain, self._start_time_ms = self._state_at(start)
        self.start = start
        self._marks.drop_below(start)
        self._memo = (start, self.start_chain)
        for number in sorted(self._segments):  # one step that a thread in ensure_next cannot come between
            if number < first:
                self._dirty.pop(number, None)
                self._dropped.append(self._segments.pop(number))
        if self._tail is not None and first not in self._segments:
            self._tail = None

    def ensure_next(self) -> None:
        """House-keeping for the background: make the next segment, unmap old ones, clear away dropped ones."""
        with self._allocation:
            last = self.end // self.segment_bytes
            for number, file in list(self._segments.items()):
                if number <= last - MAPPED_SEGMENTS:
                    file.release()  # pinned: the next call tries again
            made = [self._allocate(number) for number in (last, last + 1) if number not in self._segments]
            self._clear_dropped()
        for file in made:  # without the lock: an append must not wait for this
            warm(file)

    def _allocate(self, number: int) -> File:
        base = number * self.segment_bytes
        for file in list(self._dropped):
            if file.size == self.segment_bytes and file.release():
                self._dropped.remove(file)
                self._segments[number] = recycle(self._disk, file, base)
                break
        else:
            self._segments[number] = allocate(self._disk, base, self.segment_bytes)
        return self._segments[number]

    def _clear_dropped(self) -> None:
        free = [file for file in self._dropped if file.release()]
        for file in free[SPARES_MAX:]:
            self._dropped.remove(file)
            self._remove(file)
        if len(free) > SPARES_MAX:
            self._disk.sync_dir(DIRECTORY)

    def _remove(self, file: File) -> None:
        file.close()
        self._disk.remove(file.name)

    def close(self) -> None:
        """Close all files; views that are out stay good."""
        with self._allocation:
            for file in (*self._segments.values(), *self._dropped):
                file.close()
            self._segments = {}
            self._dropped = []
            self._tail = None

    # Reading.

    def views(self, start: int, end: int) -> list[memoryview]:
        """The bytes as they lie in the newest segments, without a copy; copies of older ones."""
        return [file.view(offset, size) for file, offset, size in self._parts(start, end)]

    def read(self, start: int, end: int) -> bytes:
        """A copy of any age; safe in a thread. The caller verifies it (`inspect`)."""
        data = b"".join([file.pread(offset, size) for file, offset, size in self._parts(start, end)])
        if len(data) != end - start:  # else a scrubber that is given half an entry would wait for the rest for ever
            raise CorruptEntry(start, "a segment file is too short")
        return data

    def entries(self, start: int, end: int) -> Iterator[tuple[Header, memoryview]]:
        """Verified entries between two boundaries, with their bodies."""
        chain = self.chain_at(start)
        position = start
        while position < end:
            offset = position % self.segment_bytes
            room = min(self.segment_bytes - offset, end - position)
            file = self._file(position)
            need = peek(file.view(offset, min(room, ENVELOPE_BYTES)), 0, position).size
            if need > room:
                raise CorruptEntry(position, "the entry reaches beyond its segment, or the asked range ends inside it")
            block = file.view(offset, min(room, max(need, COPY_BYTES)))
            at = 0
            while at < len(block) and (not at or _whole(block, at)):
                header = verify(block, at, position, chain)
                body = block[at + ENVELOPE_BYTES : at + header.size]
                position, chain = header.end, header.chain
                at += header.size
                self._memo = (position, chain)
                yield header, body

    def header_at(self, position: int) -> Header:
        """The envelope of the entry that begins at `position`."""
        return peek(self._file(position).view(position % self.segment_bytes, ENVELOPE_BYTES), 0, position)

    def boundary(self, start: int, bytes_max: int) -> int:
        """The end of the last whole entry within bytes_max of `start`; of the first one if that is larger."""
        limit = start + bytes_max
        if limit >= self.end:
            return self.end
        known = self._marks.floor(limit)
        position, chain = known if known and known[0] > start else (start, None)
        found = position
        for header in self._headers(position, chain):
            if header.end > limit:
                return found if found > start else header.end
            found = header.end
        return found

    def chain_at(self, position: int) -> int:
        """The chain crc at an entry boundary."""
        if position == self.end:
            return self.chain
        if position == self.start:
            return self.start_chain
        if position == self._memo[0]:
            return self._memo[1]
        known = self._marks.floor(position)
        if known and known[0] == position:
            return known[1]
        return self._state_at(position)[0]

    def _state_at(self, position: int) -> tuple[int, int]:
        """(chain, leader time) of the entry that ends at `position`, found by walking from the nearest boundary."""
        if position == self.start:
            return self.start_chain, self._start_time_ms
        assert self.start < position <= self.end, (self.start, position, self.end)
        # A segment begins with an entry, so the walk never leaves the segment; its first chain is taken on trust then.
        base = max(self.start, (position - 1) // self.segment_bytes * self.segment_bytes)
        known = self._marks.floor(position - 1)
        begin: tuple[int, int | None] = (base, self.start_chain if base == self.start else None)
        if known and known[0] >= base:
            begin = known
        learned = begin[0]
        for header in self._headers(*begin):
            if header.end >= position:
                break
            if header.end - learned >= SPACING_BYTES:
                learned = header.end
                self._marks.learn(header.end, header.chain)
        if header.end != position:
            raise CorruptEntry(position, "not an entry boundary")
        return header.chain, header.time_ms

    def _headers(self, position: int, chain: int | None) -> Iterator[Header]:
        """Envelopes from a boundary on, each checked against the chain of the one before."""
        while position < self.end:
            offset = position % self.segment_bytes
            room = min(BLOCK_BYTES, self.segment_bytes - offset, self.end - position)
            block = self._file(position).view(offset, room)
            at = 0
            while not at or at + ENVELOPE_BYTES <= len(block):
                header = peek(block, at, position)
                if chain is not None and chain_after(block, at, chain) != header.chain:
                    raise CorruptEntry(position, "the chain crc does not fit what comes before")
                yield header
                chain = header.chain
                position = header.end
                at += header.size

    def _file(self, position: int) -> File:
        file = self._segments.get(position // self.segment_bytes)
        if file is None:
            raise CorruptEntry(position, "its segment file is missing")
        return file

    def _parts(self, start: int, end: int) -> Iterator[tuple[File, int, int]]:
        if not self.start <= start <= end <= self.end:  # a reader in a thread may come after drop_head
            raise CorruptEntry(start, f"asked for bytes to {end}, but the log reaches from {self.start} to {self.end}")
        while start < end:
            offset = start % self.segment_bytes
            size = min(self.segment_bytes - offset, end - start)
            yield self._file(start), offset, size
            start += size


def _whole(block: memoryview, at: int) -> bool:
    """Whether the block holds all of the entry at `at`, as far as its size field tells."""
    if len(block) - at < ENVELOPE_BYTES:
        return False
    return int.from_bytes(block[at + 4 : at + 8]) <= len(block) - at
