"""Where the log should begin: a decision from numbers.

Law: oldest first, whole segments, never the last two, never beyond `limit` (the least of commit, durable and
checkpoint). Aged segments go in the configured hour, or at any hour when the disk is filling up. Above the force mark
the oldest one goes whatever its age: one per decision, because each frees space and the next decision sees it.
Does not know: files, the clock, who else must agree (the leader proposes the target as a command).
"""

from collections.abc import Sequence
from typing import NamedTuple

from store.config import StoreConfig

SEGMENTS_KEPT = 2  # the one being written, and the one before it: followers and readers are there
_HOUR_MS = 3_600_000


class SegmentFacts(NamedTuple):
    start: int
    end: int
    last_time_ms: int  # leader time of its last entry


class RetentionDecision(NamedTuple):
    target: int | None  # the log should begin here; None: leave it
    reason: str
    refuse_writes: bool


def log_start_target(
    segments: Sequence[SegmentFacts], now_ms: int, hour_of_day: int, used_share: float, config: StoreConfig, limit: int
) -> RetentionDecision:
    """`segments` in order of position, the growing one last."""
    used_percent = used_share * 100
    refuse = used_percent >= config.disk_refuse_percent
    allowed = [segment for segment in segments[:-SEGMENTS_KEPT] if segment.end <= limit]
    oldest_ms = now_ms - config.retention_hours * _HOUR_MS
    aged = 0
    while aged < len(allowed) and allowed[aged].last_time_ms <= oldest_ms:
        aged += 1
    if aged and (hour_of_day == config.retention_hour_of_day or used_percent >= config.disk_clean_percent):
        reason = f"{aged} segments are older than {config.retention_hours} hours"
        return RetentionDecision(allowed[aged - 1].end, reason, refuse)
    if allowed and used_percent >= config.disk_force_clean_percent:
        return RetentionDecision(allowed[0].end, f"the disk is {used_percent:.0f} % full", refuse)
    return RetentionDecision(None, "", refuse)
