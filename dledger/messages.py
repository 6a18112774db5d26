"""What nodes of a group say to each other, as values.

Law: a log range travels as extent + term runs; its bytes are an opaque payload that the core never opens. The runs
and memberships of a received range are read from the verified bytes by the shell, never believed from the wire."""

from enum import IntEnum
from typing import NamedTuple

from dledger.epochs import Run
from dledger.membership import Membership
from model.ids import Incarnation, LogPosition, NodeId, Term

NOTHING_PROVED = LogPosition(-1)  # "alive, but no position proved in this term yet": a different answer from 0


class Kind(IntEnum):
    """The kinds of message; each has one `_on_<kind>` in the core."""

    PREVOTE = 1
    PREVOTE_REPLY = 2
    VOTE = 3
    VOTE_REPLY = 4
    APPEND = 5
    ACK = 6
    REJECT = 7
    BEAT = 8
    BEAT_REPLY = 9
    HANDOVER = 10
    CAMPAIGN_NOW = 11


class Message(NamedTuple):
    """One message; which fields mean something depends on the kind."""

    kind: Kind
    source: NodeId
    target: NodeId
    term: Term
    incarnation: Incarnation = Incarnation(0)  # of the source: what counts toward a majority must come from a member
    position: LogPosition = LogPosition(0)  # APPEND prev, votes log end, acks durable, REJECT echo of prev, HANDOVER S
    position_term: Term = Term(0)  # term of the byte before `position`
    end: LogPosition = LogPosition(0)  # APPEND end of extent, acks proved, REJECT own end, HANDOVER control position
    commit: LogPosition = LogPosition(0)
    runs: tuple[Run, ...] = ()
    memberships: tuple[tuple[LogPosition, Membership], ...] = ()
    hint_term: Term = Term(0)  # REJECT: the last own epoch that could agree ...
    hint_end: LogPosition = LogPosition(0)  # ... and where it ends
    beat: int = 0  # heartbeat round, echoed: proves that the answer is younger than the question
    granted: bool = False
    flag: bool = False  # VOTE: leadership transfer, REJECT: fresh joiner
    payload: object = None
