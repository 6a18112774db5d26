"""The planted bugs of store and broker: each breaks one promise around the core, and names what must notice.

Law: every order of steps that survives a crash, every proof before an answer and every door for a node without its
bytes has at least one bug here. A row names the seed of the simulator that noticed it last ("seed 7"), or the test by
its path; a seed is a hint, because every change of the simulator deals the faults anew, and the hunt goes on from it.
Where one line alone is harmless because a second line of defence holds, both are broken: the row says so.
Does not know: how bugs are hunted (chaos/planted_run.py), consensus (chaos/planted_core.py)."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from broker import mail, opening, repair
from broker.applying import Applier
from broker.fencing import Forming
from broker.greeting import Greeter
from broker.housekeeping import Housekeeping
from broker.leading import Leading
from broker.pending import PendingTable
from broker.proposing import Proposer
from broker.replica import Replica
from broker.state.dedup import Dedup
from broker.state.machine import StateMachine
from broker.syncing import SyncRounds, Watermarker
from broker.writing import Writer
from chaos.planted import Planted, patch_source, planted
from chaos.simdisk import SimDisk
from store import scan, segment, snapshot
from store.commitlog import CommitLog
from store.derived import Derived
from store.hardstate import MirroredRecord


@contextmanager
def _damage_is_cut() -> Iterator[None]:
    """Either line alone is harmless: the watermark fences a node that is too short, the scan finds why it is."""
    with ExitStack() as stack:
        stack.enter_context(patch_source(scan.scan, "if walk.position < durable else None", "if False else None"))
        stack.enter_context(
            patch_source(opening.open_log, "lost_floor=LogPosition(records.marks.durable)", "lost_floor=zero")
        )
        yield


@contextmanager
def _sync_tried_again() -> Iterator[None]:
    """Alone it is harmless: a disk that failed once refuses every later sync, so here it forgets, as a kernel does."""
    again = "try:\n            self._disk.sync(ticket)\n        except Exception:\n            self._disk.sync(ticket)"
    with ExitStack() as stack:
        stack.enter_context(patch_source(SyncRounds.pump, "self._disk.sync(ticket)", again))
        stack.enter_context(patch_source(SimDisk.sync, "if self._sync_failed is not None:", "if False:"))
        yield


SYSTEM_PLANTED: list[Planted] = [
    # ---- the disk before the word
    planted(
        "log_not_synced", "mistake 9", "acknowledges bytes of the log that no sync covered",
        SyncRounds.pump, "self._disk.sync(ticket)", "pass", "seed 1",
    ),
    planted(
        "vote_not_saved", "mistake 1", "lets a vote leave that is not in the hard state",
        SyncRounds.pump, "if hard_state is not None:", "if False:", "seed 1",
    ),
    planted(
        "answers_overtake_the_sync", "mistakes 1 and 9", "sends what waits for the disk at once",
        Replica._obey, "ready.messages:", "(*ready.messages, *ready.after_sync):", "seed 1",
    ),
    planted(
        "failed_sync_ignored", "mistake 11", "takes a failed sync for a done one",
        SyncRounds.pump, "self._disk.sync(ticket)",
        "try:\n            self._disk.sync(ticket)\n        except Exception:\n            pass", "seed 1",
    ),
    Planted(
        "failed_sync_tried_again", "mistake 11", "syncs again after a failure, and believes the second answer",
        _sync_tried_again, "seed 1",
    ),
    planted(
        "record_not_synced", "mistake 2", "overwrites both copies of a small record without a sync between them",
        MirroredRecord._overwrite, "self._disk.sync(self._disk.ticket([file]))", "pass", "seed 1",
    ),
    planted(
        "segment_without_a_name", "mistake 14", "writes to a new segment whose directory was never synced",
        segment.allocate, "disk.sync_dir(DIRECTORY)", "pass", "seed 1",
    ),
    planted(
        "clean_stop_without_a_sync", "mistake 14", "declares everything durable at a clean stop and syncs nothing",
        Replica.stop, "self._disk.sync(self.log.begin_sync())", "pass",
        "tests/broker/test_watermarks.py::test_a_clean_stop_syncs_what_no_round_has_covered_yet",
    ),
    # ---- recovery and watermarks
    Planted(
        "damage_taken_for_a_torn_tail", "mistake 12", "cuts the log at damage below the watermark and goes on voting",
        _damage_is_cut, "seed 8",
    ),
    planted(
        "truncation_not_synced", "rule 9", "writes over cut bytes before the cut is on disk",
        CommitLog.truncate, "write_synced(self._disk, self._tail, to % self.segment_bytes, ZERO_ENVELOPE)", "pass",
        "tests/store/test_commitlog.py::test_a_truncation_is_durable_when_it_returns",
    ),
    planted(
        "watermark_outlives_a_truncation", "mistake 12", "cuts the log and leaves the durable watermark above its end",
        Writer.truncate, "self._marks.lower(to, lambda: self._log.chain_at(to))", "pass",
        "tests/broker/test_watermarks.py::test_a_truncation_takes_the_watermark_along",
    ),
    planted(
        "queued_watermark_outlives_a_truncation", "found by reading", "saves a watermark from before a truncation",
        Watermarker.job, "if generation == self._generation:", "if True:",
        "tests/broker/test_found_by_reading.py::test_a_queued_watermark_is_void_after_any_truncation",
    ),
    planted(
        "watermark_beyond_the_sync", "mistake 14", "records as durable what is only written",
        Housekeeping._current_marks,
        "self._marks_at(core.durable, core.commit)", "self._marks_at(core.end, core.commit)", "seed 12",
    ),
    planted(
        "recovered_tail_not_written_again", "mistake 11", "counts on pages that a failed sync left in memory only",
        CommitLog.__dict__["open_at"].__func__,
        "log._rewrite(start if durable is None else max(start, durable))", "pass", "seed 1",
    ),
    planted(
        "repair_with_unproven_bytes", "mistake 12", "mends its log with whatever a peer has there, committed or not",
        repair.proven_end, "if end <= committed or (", "if True or (",
        "tests/broker/test_watermarks.py::test_a_repair_takes_no_bytes_that_only_continue_the_chain",
    ),
    planted(
        "foreign_bytes_appended", "rule 9", "appends received bytes that do not continue its chain crc",
        CommitLog.append_raw, "if chain_after(rest, 0, self.chain) != first.chain:", "if False:",
        "tests/store/test_commitlog.py::test_raw_bytes_that_do_not_continue_our_chain_are_refused",
    ),
    planted(
        "drain_only_after_an_append", "found by seeds", "lets an append cut bytes that are not written yet",
        Replica._step, "self._drain()  # the own", "pass  # the own",
        "tests/broker/test_rare_orders.py::test_the_own_no_op_is_written_before_a_newer_leaders_append_cuts_it",
    ),
    # ---- checkpoints, hand-over, the head of the log
    planted(
        "checkpoint_before_the_queues", "mistake 14", "writes a checkpoint of queues that are not on disk",
        Housekeeping._checkpoint, "derived.sync(ticket)", "pass", "seed 1",
    ),
    planted(
        "head_dropped_when_applied", "mistake 15", "drops the log's head as soon as the command is applied",
        Housekeeping.turn, "if self._checkpoint_due():",
        "if self._replica.state.log_start > log.start:\n        log.drop_head(self._replica.state.log_start)\n"
        "        self._replica.core.log_start_moved(log.start)\n    if self._checkpoint_due():", "seed 3",
    ),
    planted(
        "handover_keeps_the_watermark", "rule 18", "takes the old log's watermark for the new one's",
        Writer.install, "self._marks.set(Watermarks(0, 0, 0))", "pass",
        "tests/broker/test_watermarks.py::"
        "test_a_hand_over_cut_short_never_leaves_a_mark_of_the_old_log_nor_a_record_without_its_log",
    ),
    planted(
        "handover_resets_first", "rule 18", "throws its log away before the new record is on disk",
        Writer.install, "snapshot.write(self._disk, control)",
        "self._log.reset(control.log_start, control.base_chain)\n    snapshot.write(self._disk, control)",
        "tests/broker/test_watermarks.py::"
        "test_a_hand_over_cut_short_never_leaves_a_mark_of_the_old_log_nor_a_record_without_its_log",
    ),
    planted(
        "snapshot_prunes_first", "mistake 14", "removes older snapshots before the new one is on disk",
        snapshot.write, 'for copy in "01":',
        'for position, copy in _copies(disk):\n        disk.remove(_name(position, copy))\n    for copy in "01":',
        "tests/store/test_snapshot.py::test_a_crash_at_any_step_of_a_write_leaves_the_old_or_the_new_one",
    ),
    planted(
        "applied_twice_below_a_snapshot", "mistake 15", "applies entries that the control state holds already",
        Applier._apply, "ahead = header.position < self.state.position", "ahead = False", "seed 1",
    ),
    # ---- applying and deriving
    planted(
        "uncommitted_applied", "mistake 25", "applies everything that is written",
        Replica._apply, "self._applier.advance(core.commit)", "self._applier.advance(core.end)", "seed 1",
    ),
    planted(
        "queues_not_cut_back", "mistake 25", "keeps units beyond the checkpoint when it starts",
        Derived.cut_back, "if queue.cut_back(to_position, log_start):", "if False:", "seed 1",
    ),
    planted(
        "dedup_not_fed", "mistake 23", "forgets what producers have stored",
        StateMachine._batch, "self.dedup.store((batch.producer, batch.topic, batch.queue), answer)", "pass", "seed 1",
    ),
    planted(
        "dedup_not_restored", "mistake 23", "loses the duplicate filter with a restart",
        StateMachine.__dict__["restore"].__func__, 'state.dedup.restore(parts["dedup"])', "pass", "seed 8",
    ),
    planted(
        "dedup_goes_with_the_head", "mistake 23", "forgets producers whose last messages lie below the log start",
        Dedup.forget_below, "self._keys =",
        "self._producers = {s: r for s, r in self._producers.items() if r.last.position >= log_start}\n"
        "    self._keys =",
        "tests/broker/test_state.py::test_keys_below_the_log_start_go_and_numbered_producers_stay",
    ),
    planted(
        "time_follows_the_clock", "mistake 22", "stamps entries with a clock that may jump back",
        Writer.time_ms, "max(self._clock.now_ms(), self._log.end_time_ms)", "self._clock.now_ms()", "seed 1",
    ),
    # ---- answers
    planted(
        "answer_when_written", "mistake 9", "answers a send as soon as it is written",
        Proposer.propose, "self.pending.add(pending)", "pending.settle(True)", "seed 1",
    ),
    planted(
        "answer_without_looking", "mistake 24", "says done although another leader's entry stands there",
        PendingTable.complete, "term_at(LogPosition(pending.position)) == pending.term", "True", "seed 6",
    ),
    planted(
        "open_sends_refused_at_step_down", "mistake 24", "says refused of what another leader may still commit",
        Proposer.end_leading, "self._leading = None",
        "self._leading = None\n    while self.pending._heap:\n        self.pending._heap.pop()[2].settle(False)",
        "seed 6",
    ),
    planted(
        "view_kept_over_a_step_down", "mistake 18", "numbers messages as it did when it led before",
        Proposer.end_leading, "self._leading = None", "pass", "seed 1",
    ),
    planted(
        "serves_before_its_term_is_applied", "mistake 19", "numbers messages on state that lacks the last leader's",
        Proposer.watch, "if own_term_applied:", "if True:", "seed 1",
    ),
    planted(
        "duplicate_not_attached", "mistake 23", "writes a repeated send again while the first is under way",
        Leading.judge, "if joined is not None:\n            return joined",
        "if joined is not None:\n            return None", "seed 1",
    ),
    planted(
        "old_answer_disturbs_the_new_view", "found by reading", "an old send's fate clears its twin of a later term",
        Proposer._take, "_send_answer(leading, verdict, waiting)",
        '_send_answer(type("Now", (), {"applied": lambda _, r: self._leading and self._leading.applied(r)})(), '
        "verdict, waiting)",
        "tests/broker/test_found_by_reading.py::"
        "test_an_old_pending_send_that_was_overwritten_does_not_disturb_its_twin_of_a_later_term",
    ),
    planted(
        "read_before_applied", "mistake 18", "answers a read before its state has reached the read index",
        Replica._obey, "self._reads.append((answer.position, reply))",
        "reply(ReadResult(Outcome.DONE, answer.position))",
        "tests/broker/test_rare_orders.py::test_a_read_waits_until_a_backlog_of_committed_entries_is_applied",
    ),
    # ---- who may take part
    planted(
        "wiped_node_keeps_its_incarnation", "mistake 13", "comes back from an empty disk as the voter it was",
        opening.load_records, "random.getrandbits(IDENTITY_BITS)", "1 + sum(config.node.node.encode())", "seed 12",
    ),
    planted(
        "majority_forms_a_group", "mistake 13", "forms a group when most configured voters are empty",
        Forming.genesis, "len(seen) == len(self._voters) and all(self._agreed.get(voter) == seen for voter in others)",
        "2 * len(seen) > len(self._voters)", "seed 10",
    ),
    planted(
        "group_forms_on_hearsay", "found by reading", "forms a group when it has heard each voter be empty once",
        Forming.genesis, " and all(self._agreed.get(voter) == seen for voter in others)", "",
        "tests/broker/test_forming.py::test_to_have_heard_everybody_is_not_enough_all_must_have_heard_the_same",
    ),
    # ---- found by seeds: what kept a group from coming back
    planted(
        "old_bytes_asked_for_again_and_again", "mistake 26", "reads the same old bytes anew at every probe",
        mail.Poster._fetch, "if key in self._fetching:", "if False:",
        "tests/broker/test_rare_orders.py::test_old_bytes_are_read_once_at_a_time_however_often_they_are_asked_for",
    ),
    planted(
        "stranger_to_a_newer_leader", "found by seeds", "says hello to its configured voters only",
        Greeter.tick, "({leader} if leader is not None else set())", "set()",
        "tests/broker/test_rare_orders.py::test_a_wiped_voter_returns_to_a_leader_that_its_configuration_never_named",
    ),
]  # fmt: skip
