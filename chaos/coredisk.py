"""A disk of entries for groups of bare cores: what the process sees, and what a crash leaves.

    entries   what the process sees at once
    image     what is on the platter: position -> entry; recovery walks it from the log start
    dirty     written, not handed to a sync; flight: in a sync that has not ended

Law: only `finish_sync`, `truncate`, `hand_over` and `drop_head` change the platter, and the last three are over when
they return. Old bytes stay on the platter until something is written over them or a truncation ends there.
Does not know: the chain crc of the real log; a recovery that needs it to stop would be wrong here."""

from typing import NamedTuple

from dledger.boot import Boot
from dledger.membership import Membership
from dledger.ready import HardState, WriteKind
from model.ids import LogPosition, Term

Row = tuple[LogPosition, Membership]


class Entry(NamedTuple):
    """One entry; the payload is a name, or the membership it carries."""

    position: LogPosition
    end: LogPosition
    term: Term
    kind: WriteKind
    payload: object


def runs_of(entries: list[Entry]) -> tuple[tuple[Term, LogPosition], ...]:
    """The term runs of consecutive entries."""
    runs: list[tuple[Term, LogPosition]] = []
    for entry in entries:
        if not runs or runs[-1][0] != entry.term:
            runs.append((entry.term, entry.position))
    return tuple(runs)


def rows_of(entries: list[Entry]) -> tuple[Row, ...]:
    """The memberships that consecutive entries carry."""
    return tuple((entry.position, entry.payload) for entry in entries if isinstance(entry.payload, Membership))


class CoreDisk:
    """The log and the hard state of one node."""

    def __init__(self, base: Row | None) -> None:
        self.start = LogPosition(0)
        self.base_term = Term(0)
        self.base: tuple[Row, ...] = (base,) if base is not None else ()
        self.control_floor = LogPosition(0)
        self.entries: list[Entry] = []
        self.image: dict[LogPosition, Entry] = {}
        self.hard = HardState(Term(0), None)
        self._dirty: list[Entry] = []
        self._flight: list[Entry] = []
        self._hard_dirty: HardState | None = None
        self._hard_flight: HardState | None = None

    @property
    def end(self) -> LogPosition:
        """Where the log ends for the process."""
        return self.entries[-1].end if self.entries else self.start

    @property
    def unsynced(self) -> int:
        """How many entries a crash may take."""
        return len(self._flight) + len(self._dirty)

    def boundary(self, start: int, bytes_max: int) -> int:
        """See dledger.boot.LogReader."""
        found = [entry.end for entry in self.entries if entry.position >= start]
        assert found, ("the core asked about bytes that were not written", start, self.end)
        return max((end for end in found if end - start <= bytes_max), default=found[0])

    def between(self, start: LogPosition, end: LogPosition) -> tuple[Entry, ...]:
        """The entries of [start, end), which must be whole."""
        found = tuple(entry for entry in self.entries if start <= entry.position < end)
        assert (found[0].position, found[-1].end) == (start, end) if found else start == end, (start, end, found)
        return found

    def holds(self, entry: Entry) -> bool:
        """Whether a crash would leave this entry, or a log that starts above it."""
        return self.image.get(entry.position) == entry or entry.end <= self.start

    def append(self, entry: Entry) -> None:
        """Visible at once, durable after a sync."""
        assert entry.position == self.end, (entry, self.end)
        self.entries.append(entry)
        self._dirty.append(entry)

    def save(self, hard: HardState) -> None:
        """Durable after a sync."""
        self._hard_dirty = hard

    def truncate(self, to: LogPosition) -> None:
        """Durable when this returns: else recovery finds new bytes followed by valid stale ones."""
        self.entries, self._dirty, self._flight = (
            [entry for entry in entries if entry.position < to] for entries in (self.entries, self._dirty, self._flight)
        )
        assert self.end == to, ("truncation inside an entry", to, self.end)
        self._wipe_platter(to)

    def _wipe_platter(self, to: LogPosition) -> None:
        for position in [position for position in self.image if position >= to]:
            del self.image[position]

    def begin_sync(self) -> None:
        """Everything written so far is on its way to the platter."""
        assert not self._flight and self._hard_flight is None
        self._flight, self._dirty = self._dirty, []
        self._hard_flight, self._hard_dirty = self._hard_dirty, None

    def finish_sync(self) -> None:
        """It is there."""
        self._store(self._flight)
        self._flight = []
        if self._hard_flight is not None:
            self.hard, self._hard_flight = self._hard_flight, None

    def _store(self, entries: list[Entry]) -> None:
        for entry in entries:
            for old in [old for old in self.image.values() if old.position < entry.end and old.end > entry.position]:
                del self.image[old.position]
            self.image[entry.position] = entry

    def hand_over(self, start: LogPosition, base_term: Term, base: Row, control_floor: LogPosition) -> None:
        """Begin again at `start`: first the record, then the reset."""
        self.start, self.base_term, self.base, self.control_floor = start, base_term, (base,), control_floor
        self.entries, self.image, self._dirty, self._flight = [], {}, [], []

    def drop_head(self, to: LogPosition, base_term: Term, base: Row) -> None:
        """The log begins at `to` from now on."""
        self.start, self.base_term, self.base = to, base_term, (base,)
        self.entries = [entry for entry in self.entries if entry.position >= to]
        self.image = {position: entry for position, entry in self.image.items() if position >= to}

    def crash(self, reached: int) -> None:
        """The process dies; the first `reached` unsynced entries had reached the platter by themselves."""
        self._store((self._flight + self._dirty)[:reached])
        self.entries, self._dirty, self._flight = [], [], []
        self._hard_dirty = self._hard_flight = None

    def recover(self, commit: int) -> Boot:
        """Walk the platter, cut what does not follow, and say what was found."""
        self.entries, at = [], self.start
        while (entry := self.image.get(at)) is not None:
            self.entries.append(entry)
            at = entry.end
        self._wipe_platter(at)
        known = LogPosition(max(min(commit, self.end), self.start))
        return Boot(
            self.hard, self.start, self.base_term, runs_of(self.entries), self.end, known,
            (*self.base, *rows_of(self.entries)), self.control_floor,
        )  # fmt: skip
