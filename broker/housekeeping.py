"""What a running replica does now and then: watermarks, checkpoints, the next segment, retention, scrubbing, promotion.

Law: a checkpoint at Q is written only when the log is synced beyond Q, the derived files are synced to Q and the
watermark says so, in this order; the log's head is dropped only when a checkpoint at or above its new start is on disk.
Slow parts run in the background lane, one at a time each.
Does not know: messages, elections."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from broker.auditing import Auditor, Piece
from broker.codec import encode_membership
from broker.config import BrokerConfig
from broker.syncing import Watermarker
from dledger.membership import Change, ChangeKind
from dledger.progress import Mode
from model.clock import Clock
from model.errors import DiskAlmostFull
from model.ids import LogPosition
from store import snapshot
from store.commitlog import CommitLog
from store.disk import Disk, DiskError
from store.entry import CorruptEntry
from store.hardstate import Watermarks
from store.retention import SegmentFacts, log_start_target
from store.scrub import ScrubStep, scrub
from store.snapshot import ControlSnapshot

if TYPE_CHECKING:
    from broker.replica import Replica

T = TypeVar("T")
MARK_EVERY_MS = 60  # how often it is recorded what was synced; a busy background lane adds to it
PROMOTE_EVERY_MS = 500
SCRUB_EVERY_MS = 1000
RETENTION_EVERY_MS = 10_000
DIRTY_FILES_MAX = 512  # derived files not synced yet: a checkpoint lets them go
HOUR_MS = 3_600_000


class Housekeeping:
    """Periodic work of one open log."""

    def __init__(
        self, replica: "Replica", config: BrokerConfig, disk: Disk, clock: Clock, marks: Watermarker
    ) -> None:
        self._replica = replica
        self._config = config
        self._disk = disk
        self._clock = clock
        self._marks = marks
        self._ticks = 0
        self._ensured_segment = -1
        self.checkpointing = False
        self._marking = False
        self._scrubbing = False
        self._scrub = ScrubStep(replica.log.start, replica.log.start_chain, None)
        self._opened_end = replica.log.end
        self._auditor = Auditor(disk, config.store, replica.log, replica.state)

    # ---- cadence -------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """One tick has passed."""
        self._ticks += 1
        if self._due(MARK_EVERY_MS):
            self._save_marks()
        if self._due(PROMOTE_EVERY_MS):
            self._promote()
        if self._due(SCRUB_EVERY_MS):
            self._scrub_on()
        if self._due(RETENTION_EVERY_MS):
            self._retain()

    def turn(self) -> None:
        """After each turn: is the next segment there, is a checkpoint due."""
        log = self._replica.log
        segment = log.end // log.segment_bytes
        if segment != self._ensured_segment:
            self._ensured_segment = segment
            self._background(log.ensure_next, lambda result: None)
        if self._checkpoint_due():
            self._checkpoint()

    def _due(self, every_ms: int) -> bool:
        return self._ticks % max(1, every_ms // self._config.raft.tick_ms) == 0

    def _background(self, job: Callable[[], T], done: Callable[[T], None]) -> None:
        """Run a job beside the loop; a failing disk stops the replica."""

        def finished(result: T | Exception) -> None:
            if isinstance(result, Exception):
                self._replica.fail(f"{result}")
            else:
                done(result)

        self._replica.background.submit(job, self._replica.here(finished))

    # ---- watermarks ----------------------------------------------------------------------------------------------

    def _current_marks(self) -> Watermarks | None:
        """What is synced now; None while the saved mark is higher: bytes were lost, and only the saved mark knows."""
        core = self._replica.core
        assert core is not None
        return self._marks_at(core.durable, core.commit)

    def _marks_at(self, durable: int, commit: int) -> Watermarks | None:
        if durable < self._marks.saved.durable:
            return None
        return Watermarks(durable, min(commit, durable), self._replica.log.chain_at(durable))

    def known_marks(self) -> Watermarks | None:
        """The same for a log that may be damaged; None when that cannot be told."""
        try:
            return self._current_marks()
        except (CorruptEntry, DiskError):
            return None

    def _save_marks(self) -> None:
        marks = self._current_marks()
        if marks is None or marks == self._marks.saved or self._marking:
            return
        self._marking = True
        job = self._marks.job(marks)

        def done(result: object) -> None:
            self._marking = False

        self._background(job, done)

    # ---- checkpoints and the head of the log ---------------------------------------------------------------------

    def _checkpoint_due(self) -> bool:
        replica, core = self._replica, self._replica.core
        assert core is not None
        control = replica.control
        if self.checkpointing or control is None or replica.applied != replica.state.position:
            return False
        due = (
            replica.applied - control.position >= self._config.store.checkpoint_bytes
            or replica.state.log_start > replica.log.start
            or replica.derived.dirty_count > DIRTY_FILES_MAX
        )
        return due and replica.applied <= core.durable and self._current_marks() is not None

    def _checkpoint(self) -> None:
        self.checkpointing = True
        control, marks, derived = self._control_now(), self._current_marks(), self._replica.derived
        assert marks is not None
        ticket, save_marks = derived.flush(), self._marks.job(marks)

        def job() -> None:
            derived.sync(ticket)
            save_marks()
            snapshot.write(self._disk, control)

        self._background(job, lambda result: self._checkpointed(control))

    def _checkpointed(self, control: ControlSnapshot) -> None:
        replica, core = self._replica, self._replica.core
        assert core is not None
        self.checkpointing = False
        replica.control = control
        if control.log_start > replica.log.start:
            replica.log.drop_head(control.log_start)
            replica.derived.drop_below(control.log_start)
            core.log_start_moved(LogPosition(replica.log.start))
            replica.event("log_start_moved", start=replica.log.start)
            self._ensured_segment = -1  # the dropped files are cleared away or used again

    def close(self) -> None:
        """A last checkpoint, so that the next start has nothing to do; the log is synced already."""
        replica, core = self._replica, self._replica.core
        assert core is not None
        if replica.control is None or replica.applied != replica.state.position or self.checkpointing:
            return
        marks = self._marks_at(core.end, core.commit)
        if marks is not None:
            replica.derived.sync(replica.derived.flush())
            self._marks.set(marks)
            snapshot.write(self._disk, self._control_now())

    def _control_now(self) -> ControlSnapshot:
        """The control state as it is applied now, for a log that begins where the state says."""
        replica = self._replica
        start = max(replica.log.start, min(replica.state.log_start, replica.applied))
        chain, state = replica.log.chain_at(replica.applied), replica.state.snapshot()
        return self._anchored(start, replica.applied, chain, replica.applied_time_ms, state)

    def control_for(self, start: LogPosition) -> ControlSnapshot:
        """The newest checkpoint, for a follower whose log will begin at `start`."""
        control = self._replica.control
        assert control is not None and control.position >= start, (control, start)
        return self._anchored(start, control.position, control.chain, control.time_ms, control.state)

    def _anchored(self, start: int, position: int, chain: int, time_ms: int, state: bytes) -> ControlSnapshot:
        """State at `position` with what must be known of a log that begins at `start`: terms, members, chain crc."""
        core = self._replica.core
        assert core is not None
        first, last = LogPosition(start), LogPosition(position)
        rows = [core.memberships.in_force_at(first)]
        rows += [row for row in core.memberships.rows if start <= row[0] < position]
        return ControlSnapshot(
            position=position,
            log_start=start,
            base_term=core.epochs.term_before(first),
            base_chain=self._replica.log.chain_at(start),
            epochs=core.epochs.runs(first, last),
            memberships=tuple((at, encode_membership(membership)) for at, membership in rows),
            chain=chain,
            time_ms=time_ms,
            state=state,
        )

    # ---- the rest ------------------------------------------------------------------------------------------------

    def log_start_limit(self) -> int:
        """Up to where the log's head may go."""
        core = self._replica.core
        assert core is not None
        return min(core.commit, core.durable)

    def _promote(self) -> None:
        """A wiped voter that has caught up votes again."""
        core = self._replica.core
        assert core is not None
        if not core.serving:
            return
        for node, progress in core.progress.items():
            caught_up = progress.mode is Mode.REPLICATE and progress.match >= core.commit
            if caught_up and node not in core.membership.voters and node in self._config.node.voters:
                self._replica.change_membership(Change(ChangeKind.PROMOTE, node), lambda accepted: None)
                return

    def _scrub_on(self) -> None:
        replica, core = self._replica, self._replica.core
        assert core is not None
        share = self._config.store.scrub_bytes_per_second * SCRUB_EVERY_MS // 1000
        below = min(core.durable, core.commit)
        # Until everything found at start is applied again, queues of a topic that it deletes may be gone already.
        audit_below = min(core.durable, replica.applied) if replica.applied >= self._opened_end else replica.log.start
        if self._scrubbing or not share or below <= replica.log.start:
            return
        self._scrubbing = True
        log, last, auditor = replica.log, self._scrub, self._auditor

        def done(result: tuple[ScrubStep, Piece]) -> None:
            self._scrubbing = False
            self._scrub, piece = result
            if self._scrub.damage is not None:
                replica.damaged(self._scrub.damage)
                return
            difference = auditor.compare(piece, audit_below, replica.state)
            if difference is not None:
                replica.rebuild(difference)

        self._background(lambda: (_scrub_share(log, last, share, below), auditor.read(share, audit_below)), done)

    def _retain(self) -> None:
        """The leader decides from age, hour and disk usage where the log should begin."""
        replica, log = self._replica, self._replica.log
        used = self._disk.usage()
        size, segments = log.segment_bytes, []
        for base in range(log.start, log.end - size, size):
            segments.append(SegmentFacts(base, base + size, log.header_at(base + size).time_ms))
        segments.append(SegmentFacts(log.end // size * size, log.end, log.end_time_ms))
        now_ms = self._clock.now_ms()
        hour = now_ms // HOUR_MS % 24
        decision = log_start_target(segments, now_ms, hour, used, self._config.store, self.log_start_limit())
        refused = DiskAlmostFull(f"the disk of this broker is {used:.0%} full") if decision.refuse_writes else None
        replica.refusal = refused
        if decision.target is not None and replica.core is not None and replica.core.serving:
            replica.event("retention", target=decision.target, reason=decision.reason)
            replica.propose_log_start(decision.target)


def _scrub_share(log: CommitLog, step: ScrubStep, share: int, below: int) -> ScrubStep:
    """Steps until the share of bytes is used up, the log is through, or damage is found: a step ends at a segment."""
    while share > 0 and step.damage is None:
        before = step.next_position
        step = scrub(log, before, share, below, step.chain)
        if step.next_position <= before:
            break
        share -= step.next_position - before
    return step
