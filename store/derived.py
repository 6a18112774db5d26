"""Everything that is derived from the log: all consume queues and the key index.

    committed entry --> preamble --> columns --+--> consumequeue/<topic>/<queue>/
                                               +--> index/

Law: the files are a function of the log [log start, dispatched) and of which topics were deleted where; a rebuild gives
the same names and bytes. Nothing here is worth repairing byte by byte: what does not verify is thrown away whole and
dispatched again (`cut_back` says from where).

Checkpoint at C: everything below C is dispatched; `flush` on the loop, `sync` of its ticket in a lane, and only then
may C be written down. After a start, `cut_back(C, log_start)` before anything else. It restores the files as of C, with
one exception: queues of a topic that was deleted above C may be gone already; the same deletion comes again.

A rebuild takes a while, and a crash in the middle leaves files that look well and are complete to nowhere near C. So
files are only thrown away under a durable record of doubt, config/doubt.<n>; a start that finds one begins anew, and
the first checkpoint after the rebuild removes it.
A queue without messages does not exist here; its next offset is part of the replicated state.
Does not know: commands, which topics exist, what is committed.
"""

import errno
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any, Protocol

import crc32c
import numpy as np
from numpy.typing import NDArray

from store import consumequeue, keyindex
from store.config import StoreConfig
from store.consumequeue import PLAIN_UNITS_MAX, REBUILD, UNIT, UNIT_BYTES, ConsumeQueue, pack_units, queue_directory
from store.disk import Disk, DiskError
from store.entry import ENVELOPE_BYTES
from store.handles import DerivedTicket, Handles
from store.hardstate import DamagedState
from store.keyindex import KeyIndex

_DOUBT = re.compile(r"doubt\.(\d{1,9})")


class Batch(Protocol):
    """The part of a sub-batch that matters here."""

    @property
    def topic(self) -> str: ...
    @property
    def queue(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def first_offset(self) -> int: ...


class Columns(Protocol):
    """The part of a preamble that matters here."""

    @property
    def batches(self) -> Sequence[Batch]: ...
    @property
    def lengths(self) -> NDArray[Any]: ...
    @property
    def tags(self) -> NDArray[Any]: ...
    @property
    def key_counts(self) -> NDArray[Any]: ...
    @property
    def keys(self) -> NDArray[Any]: ...
    @property
    def messages_at(self) -> int: ...


class Derived:
    """All queues and the index of one store. Opening lists directories and reads no file."""

    def __init__(self, disk: Disk, config: StoreConfig) -> None:
        self._disk = disk
        self._config = config
        self._handles = Handles(disk)
        self._queues: dict[tuple[str, int], ConsumeQueue] = {}
        self.damage: DamagedState | None = None  # why everything was thrown away since the start
        numbers = [int(found[1]) for found in map(_DOUBT.fullmatch, disk.list("config")) if found is not None]
        self._doubts = [f"config/doubt.{number}" for number in numbers]
        self._doubt_count = max(numbers, default=0)
        self._settled: list[str] = []  # doubts that the next checkpoint removes: the files were thrown away since
        for topic in disk.list(consumequeue.DIRECTORY):
            for queue in disk.list(f"{consumequeue.DIRECTORY}/{topic}"):
                if queue.isascii() and queue.isdecimal():
                    self._open_queue(topic, int(queue))
        self.index = KeyIndex(disk, self._handles, config.index_slots, config.index_units, config.segment_bytes)

    @property
    def dirty_count(self) -> int:
        """Open files in the next ticket. A checkpoint is due when there are many: they cannot be closed before."""
        return self._handles.dirty_count

    def queue(self, topic: str, queue: int) -> ConsumeQueue | None:
        """The queue, None if it holds no message."""
        return self._queues.get((topic, queue))

    def queues(self) -> Iterator[tuple[str, int, ConsumeQueue]]:
        """All queues that hold a message, in order of their names."""
        for topic, queue in sorted(self._queues):
            yield topic, queue, self._queues[topic, queue]

    def dispatch(
        self, position: int, time_ms: int, preamble: Columns, wanted: Callable[[str], bool] | None = None
    ) -> None:
        """Enter one committed data entry.

        In a rebuild, `wanted` tells whether messages of a topic at this position still count (the topic was not deleted
        since). Keys are entered all the same: the index never forgets a topic before its segment goes.
        Raises DamagedState if a queue does not end where the entry goes on: `clear` and dispatch all again, or leave it
        to the next start, which will."""
        lengths, key_counts = preamble.lengths, preamble.key_counts
        if not len(lengths):
            return
        first = position + ENVELOPE_BYTES + preamble.messages_at
        starts: NDArray[np.int64]
        if len(lengths) < PLAIN_UNITS_MAX:
            sizes = lengths.tolist()
            at = list(accumulate(sizes[:-1], initial=first))
            packed = b"".join(map(UNIT.pack, at, sizes, preamble.tags.tolist()))
            starts = np.array(at) if len(preamble.keys) else np.empty(0, np.int64)
        else:
            starts = np.empty(len(lengths), np.int64)
            starts[0] = 0
            np.cumsum(lengths[:-1], out=starts[1:])
            starts += first
            packed = pack_units(starts, lengths, preamble.tags)
        try:
            self._append(preamble.batches, packed, wanted)
        except DamagedState:
            self.distrust()
            raise
        if len(preamble.keys):
            self.index.put_many(preamble.keys, np.repeat(starts, key_counts), time_ms)

    def flush(self) -> DerivedTicket:
        """Everything dispatched up to now, which must be all below the checkpoint; cheap, on the loop."""
        ticket = self._handles.flush()._replace(doubts=tuple(self._settled))
        self._settled = []
        return ticket

    def sync(self, ticket: DerivedTicket) -> None:
        """Slow, in a lane: on return all of the ticket is durable."""
        self._disk.sync(ticket.files)
        for directory in ticket.directories:
            try:
                self._disk.sync_dir(directory)
            except DiskError as error:
                if error.errno != errno.ENOENT:  # the queue was dropped since: there is no name to keep
                    raise
        for doubt in ticket.doubts:
            self._disk.remove_tree(doubt)

    def distrust(self) -> None:
        """Some of these files are wrong: whatever happens, the next start dispatches everything again."""
        self._doubt_count += 1
        doubt = f"config/doubt.{self._doubt_count}"
        self._disk.replace(doubt, b"The consume queues and the index are being rebuilt from the log.\n")
        self._doubts.append(doubt)

    def cut_back(self, to_position: int, log_start: int) -> int:
        """After a start: keep exactly what belongs to [log_start, to_position).

        Returns where to go on dispatching: `to_position`, or `log_start` if the files could not be trusted and are
        gone (`damage` says why). Bytes not synced before the crash may be anything and are no damage."""
        self.damage = None
        try:
            if self._doubts:
                raise DamagedState("a rebuild of the queues and the index is due, or was cut short", do=REBUILD)
            for key, queue in list(self._queues.items()):
                if queue.cut_back(to_position, log_start):
                    self._queues.pop(key).remove()
            self.index.cut_back(to_position, log_start)
        except DamagedState as damage:
            self.discard(damage)
            return log_start
        return to_position

    def discard(self, damage: DamagedState) -> None:
        """These files cannot be trusted: go on dispatching at the log start."""
        self.clear()
        self.damage = damage

    def drop_below(self, log_start: int) -> None:
        """The log begins here now. Its new start must be durable elsewhere before this is called."""
        for key, queue in list(self._queues.items()):
            if queue.drop_below(log_start):
                self._queues.pop(key).remove()
        self.index.drop_below(log_start)

    def delete_topic(self, topic: str) -> None:
        """Remove the topic's queues; durable with the next ticket."""
        for key in [key for key in self._queues if key[0] == topic]:
            self._queues.pop(key).remove()
        self._disk.remove_tree(queue_directory(topic, 0).rpartition("/")[0])
        self._handles.touch_directory(consumequeue.DIRECTORY)

    def clear(self) -> None:
        """Remove everything; from now on the files are complete only when all of the log was dispatched again."""
        if not self._doubts:
            self.distrust()
        self._settled += self._doubts
        self._doubts = []
        for queue in self._queues.values():
            queue.remove()
        self._queues.clear()
        self.index.remove()
        for directory in (consumequeue.DIRECTORY, keyindex.DIRECTORY):  # what else may lie there
            self._disk.remove_tree(directory)
        self._handles.touch_directory("")

    def close(self) -> None:
        self._handles.close()

    def fingerprint(self) -> dict[str, int]:
        """crc32c of each derived file."""
        return fingerprint(self._disk)

    def _open_queue(self, topic: str, queue: int) -> ConsumeQueue:
        directory = queue_directory(topic, queue)
        opened = ConsumeQueue(self._disk, self._handles, directory, self._config.queue_file_units)
        self._queues[topic, queue] = opened
        return opened

    def _append(self, batches: Sequence[Batch], packed: bytes, wanted: Callable[[str], bool] | None) -> None:
        view = memoryview(packed)
        at = 0
        for batch in batches:
            end = at + batch.count * UNIT_BYTES
            if end > at and (wanted is None or wanted(batch.topic)):
                queue = self._queues.get((batch.topic, batch.queue))
                if queue is None:
                    queue = self._open_queue(batch.topic, batch.queue)
                queue.append_packed(batch.first_offset, view[at:end])
            at = end


def fingerprint(disk: Disk) -> dict[str, int]:
    """crc32c of each derived file of a store."""
    names = [f"{keyindex.DIRECTORY}/{name}" for name in disk.list(keyindex.DIRECTORY)]
    for topic in disk.list(consumequeue.DIRECTORY):
        for queue in disk.list(f"{consumequeue.DIRECTORY}/{topic}"):
            directory = f"{consumequeue.DIRECTORY}/{topic}/{queue}"
            names += [f"{directory}/{name}" for name in disk.list(directory)]
    return {name: crc32c.crc32c(disk.read(name)) for name in names}


def differences(ours: dict[str, int], theirs: dict[str, int]) -> list[str]:
    """What two fingerprints disagree about, one line each."""
    found = []
    for name in sorted(ours.keys() | theirs.keys()):
        if name not in theirs:
            found.append(f"{name}: only here")
        elif name not in ours:
            found.append(f"{name}: missing here")
        elif ours[name] != theirs[name]:
            found.append(f"{name}: {ours[name]:08x} here, {theirs[name]:08x} there")
    return found
