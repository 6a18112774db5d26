"""What the core asks of the disk, done in the order that survives a crash at any point.

Law: a truncation lowers the durable watermark before it cuts, or a cut that broke off would look like damage. A
hand-over writes its record before it resets the log, and first takes back what the old log proved. Leader time never
goes back along the log, whatever the clock does.
Does not know: why something is written, who waits for it."""

from broker.codec import encode_membership
from broker.composing import Composition
from broker.mail import Received
from broker.syncing import Watermarker
from dledger.membership import Membership
from dledger.messages import Message
from dledger.ready import Write, WriteKind
from model.clock import Clock
from store import snapshot
from store.commitlog import CommitLog
from store.derived import Derived
from store.disk import Disk
from store.entry import EntryKind
from store.hardstate import Watermarks
from store.snapshot import ControlSnapshot


class Writer:
    """Writes, cuts and replaces one log."""

    def __init__(self, disk: Disk, log: CommitLog, marks: Watermarker, clock: Clock) -> None:
        self._disk = disk
        self._log = log
        self._marks = marks
        self._clock = clock

    def time_ms(self) -> int:
        """The leader time of an entry written now."""
        return max(self._clock.now_ms(), self._log.end_time_ms)

    def write(self, write: Write) -> None:
        """Append one write at the end of the log; durable only after a sync."""
        log, token = self._log, write.token
        assert write.position == log.end, (write, log.end)
        if isinstance(token, Received):
            log.append_raw(write.token_start, token.payload, write.position - write.token_start, token.extent)
        elif isinstance(token, Composition):
            log.append_entry(write.term, token.time_ms, EntryKind.DATA, token.body)
        elif isinstance(token, Membership):
            log.append_entry(write.term, self.time_ms(), EntryKind.MEMBERSHIP, encode_membership(token))
        elif write.kind is WriteKind.BLANK:
            log.fill_blank(write.term, log.end_time_ms)  # not the clock's: the entry behind it has its time already
        else:
            log.append_entry(write.term, self.time_ms(), EntryKind.NOOP, b"")
        assert log.end == write.end, (write, log.end)

    def truncate(self, to: int) -> None:
        """Cut the log back to `to`, durably."""
        self._marks.lower(to, lambda: self._log.chain_at(to))
        self._log.truncate(to)

    def install(self, message: Message, derived: Derived) -> ControlSnapshot:
        """Begin anew with the control state of a hand-over and an empty log."""
        control = message.payload
        assert isinstance(control, ControlSnapshot)
        self._marks.set(Watermarks(0, 0, 0))  # the old log proves nothing about the new snapshot
        snapshot.write(self._disk, control)
        derived.clear()
        self._log.reset(control.log_start, control.base_chain)
        self._marks.set(Watermarks(control.log_start, control.log_start, control.base_chain))
        return control
