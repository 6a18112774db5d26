"""The planted bugs of consensus: each breaks one rule, and names the transcript, or the seeds, that must notice.

Law: every rule that protects committed bytes has at least one bug here. `noticed` is how a bug is hunted; with nothing
planted it must find nothing.
Does not know: the store and the broker; their bugs are planted elsewhere."""

from chaos.coredisk import CoreDisk
from chaos.corewalk import walk
from chaos.planted import SEEDS, Planted, planted
from chaos.transcripts import DIRECTORY, run
from dledger.core import RaftCore
from dledger.progress import Progress
from dledger.reads import PendingReads
from dledger.timer import ElectionTimer

SEEDS_TRIED = 400  # how many walks a bug may survive before we say that seeds do not see it

CORE_PLANTED: list[Planted] = [
    planted(
        "match_at_prev", "rule 1", "compares the term of the byte at prev instead of the byte before it",
        RaftCore._on_append, "self.epochs.term_before(prev)",
        "(self.epochs.term_at(prev) if prev < self.end else self.epochs.last_term)", SEEDS,
    ),
    planted(
        "blank_of_the_old_term", "rule 2", "counts a blank at a term's start to the term before",
        RaftCore._write_own, "self.epochs.append(self.term,",
        "self.epochs.append(self.epochs.last_term if kind is WriteKind.BLANK else self.term,",
        "s01_blank_opens_a_term",
    ),
    planted(
        "hinted_end_without_the_epoch", "rule 5", "probes at the hinted end although it lacks that epoch",
        RaftCore._agreeing_position, "self.epochs.end_below(hint_term) if", "hint_end if",
        "s10_twelve_divergent_epochs",
    ),
    planted(
        "hint_taken_for_a_match", "rule 6", "takes the hint of a reject for a proved position",
        Progress.rejected, "self.mode, self.next = Mode.PROBE, target",
        "self.mode, self.next, self.match = Mode.PROBE, target, target", SEEDS,
    ),
    planted(
        "ack_of_the_own_end", "rule 7", "acknowledges its own durable end instead of what it proved in this term",
        RaftCore._ack, "proved = self._proved", "proved = self.end", "ack_of_the_own_end",
    ),
    planted(
        "nothing_proved_is_zero", "rule 7", "says 0 when it has proved nothing yet",
        RaftCore._ack, "end=proved if durable >= 0 else NOTHING_PROVED", "end=max(proved, LogPosition(0))",
        "follower_answers_before_it_proved",
    ),
    planted(
        "truncates_to_the_message", "rule 8, mistake 6", "cuts its log to the end of any append that arrives",
        RaftCore._take_bytes, "if message.end <= self.end:",
        "if message.end < self.end:\n        self._truncate(message.end)\n    if message.end <= self.end:",
        "stale_append_does_not_truncate",
    ),
    planted(
        "truncates_to_prev", "rule 8", "cuts its log at the start of a differing append, not at the difference",
        RaftCore._take_bytes, "if different is not None:", "if start < overlap:\n            different = start",
        SEEDS,
    ),
    planted(
        "lazy_truncation", "rule 9", "does not make a truncation durable before writing on",
        CoreDisk.truncate, "self._wipe_platter(to)", "pass", "s02_lazy_truncation",
    ),
    planted(
        "old_sync_counts", "rule 10", "believes a sync that began before a truncation",
        RaftCore.synced, "mark.generation == self._generation and ", "", "s06_sync_from_before_a_truncation",
    ),
    planted(
        "leadership_resumed", "rule 11", "goes on leading its term after a restart",
        RaftCore.__init__, "self.role = Role.FOLLOWER",
        "self.role = Role.LEADER if self.vote == node and self.epochs.last_term == self.term else Role.FOLLOWER", SEEDS,
    ),
    planted(
        "ack_before_the_term", "rule 12", "acknowledges while its term is not on disk",
        RaftCore._ack, "self._hard_durable < self._hard_version or proved < 0", "proved < 0", SEEDS,
    ),
    planted(
        "term_below_the_log", "rule 12", "recovers a term lower than that of its last byte",
        RaftCore.__init__, "if self.epochs.last_term > self.term:", "if False:", "s12_ack_of_a_term_not_on_disk",
    ),
    planted(
        "only_the_newest_voters_campaign", "rule 13", "does not campaign when its newest membership drops it",
        RaftCore._may_campaign, "self.memberships.since(self.commit)", "[self.membership]", "s09_two_nodes_removal",
    ),
    planted(
        "any_reject_counts", "rule 14", "acts on a reject that does not answer the outstanding probe",
        Progress.rejected, "self.mode is Mode.PROBE and prev != self.next", "False", "stale_reject",
    ),
    planted(
        "newest_membership_handed_over", "rule 15", "hands over the latest membership, not the one at the log start",
        RaftCore._say_handover, "self.memberships.in_force_at(start)", "self.memberships.rows[-1]",
        "handover_carries_the_membership_at_the_start",
    ),
    planted(
        "change_before_the_noop", "rule 17", "changes the membership before a commit in its own term",
        RaftCore.change, "not self.serving or in_flight", "self.role is not Role.LEADER or in_flight",
        "s03_ongaro_one_add_one_remove",
    ),
    planted(
        "two_changes_at_once", "rule 17", "writes a second membership change while one is in flight",
        RaftCore.change, "or in_flight or", "or", "one_change_at_a_time",
    ),
    planted(
        "handover_discards_the_tail", "rule 18", "throws its log away although it agrees at the log start",
        RaftCore._on_handover, "elif not fresh and start <= self.end and", "elif False and",
        "s05_handover_overtaken_by_append",
    ),
    planted(
        "handover_keeps_a_foreign_tail", "rule 18", "keeps its log although the term before the log start differs",
        RaftCore._on_handover, "self.epochs.term_before(start) == message.position_term", "True",
        "handover_above_other_term",
    ),
    planted(
        "commit_beyond_the_proved", "rule 20, mistake 8", "follows the leader's commit into its own unproved tail",
        RaftCore._follow_commit,
        "if min(leader_commit, self._proved) > self.commit:\n        self.commit = min(leader_commit, self._proved)",
        "if min(leader_commit, self.end) > self.commit:\n        self.commit = min(leader_commit, self.end)",
        "s11_commit_beyond_what_was_proved",
    ),
    planted(
        "old_term_committed_by_counting", "rule 21, mistake 4", "commits an older term's bytes by counting copies",
        RaftCore._advance_commit, " or self.epochs.term_before(reached) != self.term", "", "s04_figure_8",
    ),
    planted(
        "prevote_ignores_the_lease", "rule 22", "grants a prevote while it hears the leader",
        RaftCore._on_prevote, "and not self._leased() ", "", "link_loss_is_a_hint",
    ),
    planted(
        "own_broken_link_keeps_the_lease", "rule 22", "waits out the lease of a leader whose link broke",
        ElectionTimer.leader_link_lost, "self._heard = None", "pass", "link_loss_is_a_hint",
    ),
    planted(
        "vote_before_sync", "mistake 1", "gives its vote before the vote is on disk",
        RaftCore._on_vote, "granted=True, after_sync=True", "granted=True", "vote_before_sync",
    ),
    planted(
        "vote_request_before_sync", "the vote request race", "asks for votes before its tail and term are on disk",
        RaftCore._campaign, "flag=transfer, after_sync=True", "flag=transfer", "vote_request_race",
    ),
    planted(
        "candidate_forgets_its_vote", "mistake 3", "does not record that it voted for itself",
        RaftCore._campaign, "self._set_hard_state(Term(self.term + 1), self.node)",
        "self._set_hard_state(Term(self.term + 1), None)", "candidate_records_its_own_vote",
    ),
    planted(
        "no_noop", "mistake 5", "writes no no-op when it is elected",
        RaftCore._lead, "self._append_own(ENVELOPE_BYTES, None, WriteKind.NOOP)", "pass", "noop_commits_an_old_tail",
    ),
    planted(
        "match_goes_back", "mistake 7", "believes the newest ack even if it is lower",
        Progress.accepted, "if durable <= self.match:", "if durable == self.match:", "reordered_and_repeated_acks",
    ),
    planted(
        "leader_counts_itself_early", "mistake 10", "counts its own bytes before they are on its disk",
        RaftCore._advance_commit, "matched[self.node] = self.durable", "matched[self.node] = self.end",
        "leader_does_not_count_itself_before_its_sync",
    ),
    planted(
        "old_incarnation_counts", "mistake 13", "takes what a wiped node once said for the new one's word",
        RaftCore._counts, "self.membership.incarnations.get(message.source) == message.incarnation",
        "message.source in self.membership.incarnations", "ack_of_an_old_incarnation",
    ),
    planted(
        "wiped_node_campaigns", "mistake 13", "finds its name among the voters and forgets its incarnation",
        RaftCore._may_campaign, "m.votes(self.node, self.incarnation)", "self.node in m.voters",
        "wiped_node_is_not_the_voter_of_its_name",
    ),
    planted(
        "membership_not_rolled_back", "mistake 16", "keeps a membership whose entry was cut off",
        RaftCore._truncate, "self.memberships.truncate(to)", "pass", "s08_membership_rolled_back",
    ),
    planted(
        "two_votes_in_a_term", "mistake 17", "votes for whoever asks last",
        RaftCore._on_vote, "self.fenced or self.vote not in (None, message.source) or", "self.fenced or",
        "vote_survives_a_crash",
    ),
    planted(
        "vote_without_log_check", "the election restriction", "votes for a candidate whose log is older",
        RaftCore._log_allows, ">= (self.epochs.last_term, self.end)", ">= (0, 0)", "votes_need_an_up_to_date_log",
    ),
    planted(
        "read_trusts_old_answers", "mistake 18", "serves a read on answers to an earlier heartbeat",
        RaftCore.read_index, "self._beat + 1", "self._beat", "read_at_a_deposed_leader",
    ),
    planted(
        "learners_confirm_reads", "mistake 18", "counts learners when it confirms that it leads",
        PendingReads.confirmed, "for node in voters)", "for node in {*beats, me})", "read_counts_voters_only",
    ),
    planted(
        "read_before_own_commit", "mistake 19", "serves reads before a byte of its term is committed",
        RaftCore.read_index, "if not self.serving:", "if self.role is not Role.LEADER:",
        "read_before_the_first_commit_of_a_term",
    ),
    planted(
        "no_check_quorum", "mistake 20", "leads on although it hears no majority",
        RaftCore._tick_leader, "if not has_majority(self.membership.voters, {*alive, self.node}):", "if False:",
        "check_quorum",
    ),
    planted(
        "no_prevote", "mistake 21", "campaigns at every timeout without asking first",
        RaftCore.tick, "self._prevote()", "self._campaign(transfer=False)", "prevote_of_a_returning_node",
    ),
    planted(
        "learners_commit", "the commit rule", "counts learners toward a majority",
        RaftCore._advance_commit, "majority_position(self.membership.voters, matched)",
        "majority_position(self.membership.incarnations, matched)", SEEDS,
    ),
    planted(
        "promoted_before_it_has_anything", "found by seeds", "makes a voter of a joiner that received nothing",
        RaftCore.change, "change.kind is ChangeKind.PROMOTE and not self._caught_up(change.node)", "False",
        "promoted_too_early",
    ),
    planted(
        "handed_over_voter_is_mute", "found by seeds", "refuses its vote until its log reaches its control state",
        RaftCore.__dict__["fenced"].fget, "return self._lost_floor > 0 or",
        "return self.durable < self._control_floor or self._lost_floor > 0 or", "handed_over_voter_votes",
    ),
    planted(
        "sends_below_the_log_start", "found in review", "goes on sending from below the log start",
        RaftCore._send_bytes, "    progress.next = max(progress.next, self.epochs.start)\n    while", "    while",
        "log_start_moves_past_a_slow_follower",
    ),
    planted(
        "asks_about_unwritten_bytes", "found in review", "asks the log where entries end that are not in it yet",
        RaftCore._cut, "if not self._out.writes or start < self._out.writes[0].position:", "if True:",
        "several_entries_in_one_round",
    ),
    planted(
        "handover_at_every_beat", "found in review", "takes an answer from before the hand-over for its acceptance",
        Progress.accepted, "self.mode is Mode.HANDOVER and proved >= self.next", "self.mode is Mode.HANDOVER",
        "handover_is_sent_once",
    ),
]  # fmt: skip


def noticed(caught_by: str) -> str | None:
    """What the named transcript, or the seeds, have to complain about; None when all is well."""
    try:
        if caught_by != SEEDS:
            run((DIRECTORY / f"{caught_by}.txt").read_text(encoding="utf-8"))
            return None
        for seed in range(SEEDS_TRIED):
            walk(seed)
    except Exception as error:  # a broken core may fail in any way; that it fails is what counts
        return f"{type(error).__name__}: {error}"
    return None
