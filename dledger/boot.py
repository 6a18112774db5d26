"""What a core is born with: its constants, what recovery found, and the arithmetic of where an entry may stand.

Law: room left in a segment is 0 or at least one envelope, so that a blank always fits.
Does not know: how recovery found it."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from dledger.epochs import Run
from dledger.membership import Membership
from dledger.ready import HardState
from model.ids import LogPosition, Term

ENVELOPE_BYTES = 48  # the smallest entry; equal to the store's envelope (the shell asserts it)


class CoreConfig(NamedTuple):
    """All in ticks and bytes; segment_bytes is a constant of the group."""

    segment_bytes: int
    heartbeat_ticks: int
    election_ticks_min: int
    election_ticks_max: int
    link_loss_ticks_max: int
    append_bytes_max: int
    in_flight_bytes_max: int


class Boot(NamedTuple):
    """What recovery found; the log up to `end` has been synced again, for a killed process leaves bytes in a cache."""

    hard_state: HardState
    start: LogPosition
    base_term: Term
    runs: Sequence[Run]
    end: LogPosition
    commit: LogPosition
    memberships: Sequence[tuple[LogPosition, Membership]]
    control_floor: LogPosition = LogPosition(0)  # control state is ahead of the log to here: no vote before
    lost_floor: LogPosition = LogPosition(0)  # acknowledged to here, but bytes were lost: no vote until caught up


class LogReader(Protocol):
    """The one question the core asks about bytes."""

    def boundary(self, start: int, bytes_max: int) -> int:
        """The end of the last whole entry of [start, start + bytes_max], of one entry at least.

        `start` is below the end of what was written: the core cuts unwritten entries itself."""
        ...


def placement(end: LogPosition, size: int, segment_bytes: int) -> tuple[int, LogPosition]:
    """(size of the blank that must come first or 0, position) for an entry of `size` bytes appended at `end`."""
    assert size >= ENVELOPE_BYTES and (size <= segment_bytes - ENVELOPE_BYTES or size == segment_bytes), size
    room = segment_bytes - end % segment_bytes
    if size == room or size <= room - ENVELOPE_BYTES:
        return 0, end
    return room, LogPosition(end + room)
