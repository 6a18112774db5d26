"""Holds consume queues and key index against the log while the node runs: rot in them is found by nobody else.

    entries, read and verified beside the loop --> a second Derived on a ComparingDisk --> the first difference

A unit with a flipped bit still looks like a unit, so a start trusts it (`cut_back` looks at order and ends only), and a
consumer would be given other bytes, or nothing, for an acknowledged message.

Law: only bytes that are applied are compared, and only with files of the same topics: a topic that was deleted since
the pass began, or a head that was dropped beyond it, begins a new pass. A step is bounded in entries, because each
costs some 25 us of the loop. What is found is thrown away and dispatched again by the owner.
Not compared: bytes of an index file that no lookup reads (slots that were never used, unit 0).
Does not know: when to run, what a rebuild does."""

from typing import NamedTuple, cast

from broker.state.machine import StateMachine
from store import consumequeue
from store.commitlog import CommitLog
from store.comparison import ComparingDisk
from store.config import StoreConfig
from store.derived import Derived
from store.disk import Disk, DiskError
from store.entry import ENVELOPE_BYTES, CorruptEntry, EntryKind, Header, peek, verify
from store.hardstate import DamagedState
from store.preamble import parse_preamble

BYTES_PER_ENTRY = 128 << 10  # of the scrubber's share: at 8 MiB/s 64 entries, 2 ms of the loop in every second
AUDIT_BYTES = 1 << 20  # read at a time, or one entry


class Piece(NamedTuple):
    """Verified entries of the log from `start` on."""

    start: int
    entries: list[tuple[Header, memoryview]]


class Auditor:
    """One pass after the other over the derived files of an open log."""

    def __init__(self, disk: Disk, config: StoreConfig, log: CommitLog, state: StateMachine) -> None:
        self._disk = disk
        self._config = config
        self._log = log
        self._twin: Derived | None = None
        self._begin(state)

    def _begin(self, state: StateMachine) -> None:
        if self._twin is not None:
            self._twin.close()
        self.position = self._log.start
        self._comparing = ComparingDisk(self._disk)
        self._twin = Derived(cast(Disk, self._comparing), self._config)
        self._topics = {name: topic.created_at for name, topic in state.topics.items()}

    def read(self, share: int, below: int) -> Piece:
        """In a lane: the next entries. Bytes that cannot be read are the scrubber's business."""
        position = self.position
        try:
            return Piece(position, _entries(self._log, position, below, max(1, share // BYTES_PER_ENTRY)))
        except (CorruptEntry, DiskError):
            return Piece(position, [])

    def compare(self, piece: Piece, below: int, state: StateMachine) -> str | None:
        """On the loop: what the files say otherwise than the log, if anything."""
        shown = state.topics
        gone = any(name not in shown or shown[name].created_at != at for name, at in self._topics.items())
        if gone or self._log.start > piece.start:
            self._begin(state)
            return None
        try:
            for header, body in piece.entries:
                if header.kind == EntryKind.DATA:
                    self._dispatch(header, body, state)
                self.position = header.end
        except DamagedState:  # the twin was begun in the middle of a queue whose topic is new: look again
            self._begin(state)
            return None
        assert self._twin is not None
        self._twin.flush()
        found = next((e.difference for e in self._comparing.files.values() if e.difference is not None), None)
        if found is None and self.position >= below:
            stray = self._stray_head()
            self._begin(state)
            return stray
        return None if found is None else f"{found.name} at byte {found.offset}: {found.problem}"

    def _dispatch(self, header: Header, body: memoryview, state: StateMachine) -> None:
        position, shows = header.position, state.shows
        assert self._twin is not None
        self._twin.dispatch(position, header.time_ms, parse_preamble(body), lambda topic: shows(topic, position))

    def _stray_head(self) -> str | None:
        """Bytes below a queue's first message: they would be taken for messages."""
        for name, expected in self._comparing.files.items():
            if name.startswith(consumequeue.DIRECTORY) and expected.covered[0][0] > 0 and self._disk.exists(name):
                for offset, _ in self._comparing.holes(expected):
                    return f"{name} from byte {offset}: something stands below the first message"
        return None


def _entries(log: CommitLog, position: int, below: int, count_max: int) -> list[tuple[Header, memoryview]]:
    room = min(log.segment_bytes - position % log.segment_bytes, below - position)
    if room <= 0:
        return []
    data = memoryview(log.read(position, position + min(room, AUDIT_BYTES)))
    need = peek(data, 0, position).size
    if need > len(data):
        data = memoryview(log.read(position, position + min(room, need)))
    found: list[tuple[Header, memoryview]] = []
    at = 0
    while len(data) - at >= ENVELOPE_BYTES and len(found) < count_max:
        if peek(data, at, position + at).size > len(data) - at:
            break
        header = verify(data, at, position + at, None)
        found.append((header, data[at + ENVELOPE_BYTES : at + header.size]))
        at += header.size
    return found
