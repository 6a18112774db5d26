"""What a broker says about itself when it registers, and how the name server answers with facts.

Law: a registration is a plain value whose parts were checked by whoever made it; (incarnation, term) says how new it
is. Does not know: the wire, the tables, time.
"""

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from model.errors import Refused
from model.ids import GroupId, Incarnation, NodeId, Term


class Role(Enum):
    """What a node is in its Raft group; a candidate registers as a follower, for it leads nobody."""

    LEADER = "leader"
    FOLLOWER = "follower"
    LEARNER = "learner"


class TopicRow(NamedTuple):
    """A topic as one group has it: what a route says about it."""

    name: str
    read_queues: int
    write_queues: int
    perm: int  # 1 inherit, 2 write, 4 read, 8 priority
    sys_flag: int = 0  # 1 unit, 2 unit subscription


class DataVersion(NamedTuple):
    """How new a topic table is; the counter counts changes, so it weighs more than a clock."""

    counter: int
    timestamp_ms: int


class TopicTable(NamedTuple):
    version: DataVersion
    rows: Mapping[str, TopicRow]


class Registration(NamedTuple):
    cluster: str
    group: GroupId  # RocketMQ's broker name
    incarnation: Incarnation  # identity of the Raft group, equal on all its nodes: a recreated group has another
    node: NodeId
    address: str  # ip:port that clients dial
    term: Term
    role: Role
    broker_id: int  # RocketMQ's own: 0 claims leadership, and must not contradict `role`
    topics: TopicTable | None  # None: nothing said; only a leader's is used


class Fact(NamedTuple):
    """A change of state, told once: the same tuple becomes log line and counter."""

    name: str
    fields: tuple[tuple[str, object], ...]


def fact(name: str, **fields: object) -> Fact:
    return Fact(name, tuple(fields.items()))


class RegistrationRefused(Refused):
    """The tables stay as they were; `fact` is for the log."""

    do = "look at the broker: it is behind, misconfigured, or not the one it says it is"

    def __init__(self, happened: str, fact: Fact, *, do: str | None = None) -> None:
        super().__init__(happened, do=do)
        self.fact = fact


def refused(
    happened: str, name: str, entry: Registration, *, do: str | None = None, **fields: object
) -> RegistrationRefused:
    """A refusal and its fact, which says who asked for what."""
    about = fact(name, cluster=entry.cluster, group=entry.group, node=entry.node, address=entry.address,
                 incarnation=entry.incarnation, term=entry.term, role=entry.role.value, **fields)
    return RegistrationRefused(happened, about, do=do)


class Malformed(Refused):
    """Bytes or fields that make no sense as a request to a name server."""

    do = "mend the sender; the same request will be refused again"
