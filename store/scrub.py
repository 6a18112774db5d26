"""Slow verification of bytes that nobody reads: rot is found while other replicas can still repair it.

Law: a step is bounded and changes nothing; the next step continues where it stopped, then begins again at the start.
Runs off the loop, on preads of its own. Does not know: when to run, how damage is repaired.
"""

from typing import NamedTuple

from store.commitlog import CommitLog
from store.disk import DiskError
from store.entry import ENVELOPE_BYTES, CorruptEntry, Walk
from store.scan import Damage


class ScrubStep(NamedTuple):
    next_position: int  # an entry boundary: where the next step begins
    chain: int | None  # the chain crc there, for the next step; None: begins anew
    damage: Damage | None


def scrub(
    log: CommitLog, from_position: int, bytes_max: int, below: int | None = None, chain: int | None = None
) -> ScrubStep:
    """Verify about bytes_max (at least one entry) from a boundary; `below` bounds it to bytes that no truncation will
    take away meanwhile (default: the end of the log), `chain` is what the step before returned."""
    end = log.end if below is None else below
    start = log.start
    if not start < from_position < end:  # at the start, wrapped, or the head was dropped since
        from_position, chain = start, log.start_chain
    if from_position >= end:
        return ScrubStep(start, None, None)
    room = min(log.segment_bytes - from_position % log.segment_bytes, end - from_position)
    walk = Walk(from_position, chain)
    try:
        size = min(room, max(bytes_max, ENVELOPE_BYTES))
        if walk.consume(log.read(from_position, from_position + size), 0) == 0:  # one entry is larger than a step
            if walk.need > room:
                raise CorruptEntry(from_position, "the entry reaches beyond its segment")
            walk.consume(log.read(from_position, from_position + walk.need), 0)
    except (CorruptEntry, DiskError) as error:
        if log.start > from_position or log.end < end:  # dropped or cut under our hands
            return ScrubStep(log.start, None, None)
        reason = error.reason if isinstance(error, CorruptEntry) else str(error)
        return ScrubStep(walk.position, None, Damage(walk.position, reason, end))
    return ScrubStep(walk.position, walk.chain, None)
