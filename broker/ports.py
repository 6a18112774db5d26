"""What a Replica needs from the outside and says to the outside: values and protocols, no behaviour.

Law: a Replica touches the world only through these ports, so the simulator and the real process run the same class.

A letter is what travels between nodes of one group: a Raft message with its bytes, or what is
spoken before consensus runs: forming a group, joining it again after a wipe, repairing damaged bytes."""

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple, Protocol

from dledger.messages import Message
from model.batch import Columns
from model.errors import MQError
from model.ids import Incarnation, LogPosition, NodeId


class Phase(Enum):
    """What a Replica is busy with."""

    FORMING = "forming"  # empty directory: asks all configured voters whether they are empty too
    REPAIRING = "repairing"  # bytes below the durable watermark do not verify: fenced, asks peers for them
    RUNNING = "running"  # consensus runs (perhaps as a fenced node or as a joiner without membership)
    STOPPED = "stopped"  # ended by its owner, or by itself after a failure: `Replica.failure` says why


class Hello(NamedTuple):
    """An empty node asks, everybody answers: `genesis` is None while the speaker is empty."""

    genesis: tuple[tuple[NodeId, Incarnation], ...] | None  # the first voters of the group the speaker belongs to
    seen: tuple[tuple[NodeId, Incarnation], ...]  # an empty speaker: all configured voters it knows to be empty
    answer_wanted: bool


class RepairAsk(NamedTuple):
    """A fenced node asks for committed bytes from `position` on."""

    position: LogPosition


class RepairGive(NamedTuple):
    """Verified entries from `position` on (perhaps none), committed below `commit`."""

    position: LogPosition
    commit: LogPosition
    payload: bytes


class Letter(NamedTuple):
    """Anything that travels between two nodes of a group."""

    source: NodeId
    target: NodeId
    incarnation: Incarnation
    body: Message | Hello | RepairAsk | RepairGive


class Peers(Protocol):
    """Outgoing side of the network; never blocks, may lose anything."""

    def send(self, letter: Letter) -> None:
        """Send when possible; the payload's views must be copied or pinned before this returns."""
        ...


class Outcome(Enum):
    """The three truths about a request; an unknown one is never reported as refused."""

    DONE = "done"
    REFUSED = "refused"  # nothing happened and nothing will
    UNKNOWN = "unknown"


class SendRequest(NamedTuple):
    """One sub-batch for one queue: messages in the stored layout back to back, with their columns."""

    topic: str
    queue: int
    producer: bytes  # producer id, b"" for none
    sequence: int  # number of this sub-batch per (producer, queue); -1: `producer` is a dedup key, or nothing
    messages: bytes
    columns: Columns


class SendResult(NamedTuple):
    """The answer to a send; a retry of a stored sub-batch gets the first answer again."""

    outcome: Outcome
    offset: int = -1  # queue offset of the first message
    position: int = -1  # commitlog position of the first message
    error: MQError | None = None  # REFUSED: why, with its traits; NotLeader names the leader when it is known


Reply = Callable[[SendResult], None]


class ReadResult(NamedTuple):
    """A linearizable read may be served from state applied to `position` (already applied when this is called)."""

    outcome: Outcome
    position: int = -1
    error: MQError | None = None
