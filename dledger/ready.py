"""Everything the core can ask for or report.

Law: the shell handles the fields of a `Ready` in their order; `after_sync` leaves only when everything above it, and
everything of earlier Readys, is on disk; then `core.synced(mark)` is called."""

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from dledger.messages import Message
from model.ids import LogPosition, NodeId, Term


class WriteKind(IntEnum):
    """What a write is: the first four are entries the shell packs, RAW are received bytes as they came."""

    DATA = 1
    NOOP = 2
    MEMBERSHIP = 3
    BLANK = 4
    RAW = 5


class Write(NamedTuple):
    """Bytes [position, end) to be written; the token is never opened by the core."""

    position: LogPosition
    end: LogPosition
    term: Term
    kind: WriteKind
    token: object
    token_start: LogPosition  # RAW: where the payload in `token` begins; its bytes below `position` are there already


class HardState(NamedTuple):
    """What must never be forgotten."""

    term: Term
    vote: NodeId | None


class SyncMark(NamedTuple):
    """What a finished sync proves; one from before a truncation never raises durable."""

    end: LogPosition
    generation: int
    hard_version: int


class Event(NamedTuple):
    """A fact: the same tuple becomes log line, counter and transcript line."""

    name: str
    fields: tuple[tuple[str, object], ...]


class ReadAnswer(NamedTuple):
    """A read may be served from state applied to `position`; None: leadership was lost, ask again elsewhere."""

    token: object
    position: LogPosition | None


class Ready(NamedTuple):
    """One round of work, in the order in which it must be done."""

    handover: Message | None  # replace log and state by what this message carries; first the record, then the reset
    truncate_to: LogPosition | None  # drop the log above this, durably, before anything is written
    writes: Sequence[Write]
    hard_state: HardState | None
    mark: SyncMark | None  # something to sync; hand this to `synced` when it is on disk
    messages: Sequence[Message]  # may leave at once
    after_sync: Sequence[Message]  # vote requests and votes
    commit: LogPosition  # safe to apply up to here
    reads: Sequence[ReadAnswer]
    events: Sequence[Event]
