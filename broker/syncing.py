"""One sync in flight, covering every write made before it started; and the watermarks that outlive a crash.

    want, want, want ---> round 1 (all of it) ---> done: after_sync leaves, the core hears the mark
                   want ------------------------> round 2 ...

Law: a message that waits for the disk leaves only after a round that began after everything it depends on was
written. A failed round is never tried again: nothing is acknowledged and the replica stops. Persisted watermarks never
claim more than what was synced here, and a truncation lowers them before it cuts.
Does not know: what the messages say."""

import threading
from collections.abc import Callable
from typing import NamedTuple

from dledger.messages import Message
from dledger.ready import HardState, SyncMark
from model.ports import Lane
from store import hardstate
from store.disk import Disk, SyncTicket
from store.hardstate import HardStateFile, WatermarkFile, Watermarks


class Synced(NamedTuple):
    """What a finished round allows."""

    mark: SyncMark
    messages: list[Message]


class SyncRounds:
    """Group commit: joins what is wanted while a round runs into the next one."""

    def __init__(
        self, lane: Lane, disk: Disk, hard_file: HardStateFile, ticket: Callable[[], SyncTicket],
        done: Callable[[Synced | Exception], None],
    ) -> None:  # fmt: skip
        self._lane = lane
        self._disk = disk
        self._hard_file = hard_file
        self._ticket = ticket
        self._done = done
        self._running = False
        self._hard_state: HardState | None = None
        self._mark: SyncMark | None = None
        self._messages: list[Message] = []

    def want(self, hard_state: HardState | None, mark: SyncMark, messages: list[Message]) -> None:
        """Sync everything written so far, then let these messages go."""
        if hard_state is not None:
            self._hard_state = hard_state
        self._mark = mark
        self._messages += messages

    def pump(self) -> None:
        """Start a round if something is wanted and none runs."""
        if self._running or self._mark is None:
            return
        self._running = True
        hard_state, round_ = self._hard_state, Synced(self._mark, self._messages)
        self._hard_state, self._mark, self._messages = None, None, []
        ticket = self._ticket()

        def job() -> Synced:
            if hard_state is not None:
                self._hard_file.save(hardstate.HardState(hard_state.term, hard_state.vote or ""))
            self._disk.sync(ticket)
            return round_

        self._lane.submit(job, self._finished)

    def _finished(self, result: Synced | Exception) -> None:
        self._running = False
        self._done(result)


class Watermarker:
    """Keeps the watermarks of the log on disk; saved now and then, lowered at once."""

    def __init__(self, file: WatermarkFile, marks: Watermarks) -> None:
        self._file = file
        self._lock = threading.Lock()  # a save runs in a lane, a truncation on the loop
        self._generation = 0
        self.saved = marks

    def job(self, marks: Watermarks) -> Callable[[], None]:
        """A job that saves these marks unless a truncation came first."""
        generation = self._generation

        def save() -> None:
            with self._lock:
                if generation == self._generation:
                    self._save(marks)

        return save

    def lower(self, to: int, chain: Callable[[], int]) -> None:
        """The log is about to be cut at `to`: no mark above it may stay, or still be saved by a job."""
        with self._lock:
            self._generation += 1
            if self.saved.durable > to:
                self._save(Watermarks(to, min(self.saved.commit, to), chain()))

    def set(self, marks: Watermarks) -> None:
        """Save these marks now (blocking), whatever a job still wants to save."""
        with self._lock:
            self._generation += 1
            self._save(marks)

    def _save(self, marks: Watermarks) -> None:
        if marks != self.saved:
            self._file.save(marks)
            self.saved = marks
