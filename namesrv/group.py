"""One broker group as a name server sees it: who is alive, who leads, what the newest leader said about topics.

    register(leader, term 7) --> fence 7 -- leader gone --> a live follower stands in as id 0 -- leader, term 8 --> ...
                                    |
                                    +-- leader, term 6: refused, now and after 7 is gone

Law: within one incarnation the term of an accepted leader never falls, and a term has one leader for ever; the fence
outlives the leader, its connection and its expiry. Another incarnation is accepted only when nobody of the present one
is alive, and each of the last few keeps its own fence. At most one member is leader. `check` refuses and changes
nothing; `admit` changes and cannot refuse.
Does not know: other groups, limits on how many groups there are, bodies, the clock.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from model.ids import GroupId, Incarnation, NodeId, Term
from namesrv.registration import DataVersion, Fact, Registration, Role, TopicRow, TopicTable, fact, refused

INCARNATIONS_MAX = 8  # a group recreated more often than this while one name server runs is a test bed
NUMBERED = re.compile(r"[A-Za-z]([0-9]{1,9})")  # n0, n1, ...: DLedger's node names; 9 digits stay an int32
STAND_IN_ORDER = {Role.LEADER: 0, Role.FOLLOWER: 1, Role.LEARNER: 2}


@dataclass(slots=True)
class Member:
    """A node that registered and has not been lost since."""

    node: NodeId
    address: str
    term: Term
    role: Role
    connection: int
    seen_ms: int


class Fence(NamedTuple):
    """The newest leader ever accepted."""

    term: Term
    node: NodeId


class Group:
    __slots__ = (
        "_fences", "_known", "_topics_term", "cluster", "empty_since_ms", "incarnation", "members", "name", "topics",
        "version",
    )

    def __init__(self, cluster: str, name: GroupId, incarnation: Incarnation) -> None:
        self.cluster = cluster
        self.name = name
        self.empty_since_ms = 0  # means something only while there is no member
        self._fences: dict[Incarnation, Fence] = {}  # oldest first
        self._begin(incarnation)

    def _begin(self, incarnation: Incarnation) -> None:
        self.incarnation = incarnation
        self.members: dict[NodeId, Member] = {}
        self._known: dict[NodeId, None] = {}  # nodes seen, lost ones too, longest unheard first: ids stay as they are
        self.topics: Mapping[str, TopicRow] = {}
        self.version: DataVersion | None = None
        self._topics_term = Term(-1)

    @property
    def leader(self) -> Member | None:
        return next((member for member in self.members.values() if member.role is Role.LEADER), None)

    @property
    def term(self) -> Term | None:
        """The highest term any leader of this incarnation was accepted with, alive or not."""
        fence = self._fences.get(self.incarnation)
        return None if fence is None else fence.term

    def addresses(self) -> tuple[tuple[int, str], ...]:
        """(id, address) of everyone alive. Id 0 is the leader; without one the last heard follower stands in, for it
        forwards, and clients that ask every 30 s would otherwise have nowhere to write in between."""
        if not self.members:
            return ()
        first = min(self.members.values(), key=lambda m: (STAND_IN_ORDER[m.role], -m.seen_ms, m.address))
        ids = broker_ids(self._known)
        others = ((ids[member.node], member.address) for member in self.members.values() if member is not first)
        return ((0, first.address), *sorted(others))

    def check(self, entry: Registration, nodes_max: int) -> None:
        """Raise RegistrationRefused unless `admit` may follow."""
        # Whoever bears the same name or address is replaced by this registration, so it is in nobody's way.
        others = [m for m in self.members.values() if m.node != entry.node and m.address != entry.address]
        if entry.incarnation != self.incarnation and others:
            raise refused(
                f"group {self.name} has live nodes ({_names(others)}) of incarnation {self.incarnation:x}, "
                f"and {entry.node} belongs to incarnation {entry.incarnation:x}",
                "incarnation_refused", entry, current=self.incarnation, live=_names(others),
                do="stop the nodes of one of the two groups; a recreated group is accepted when the old one is gone",
            )
        if entry.incarnation == self.incarnation:
            known = self.members.get(entry.node)
            if known is not None and entry.term < known.term:
                raise refused(
                    f"{entry.node} of group {self.name} registered with term {entry.term} after term {known.term}",
                    "stale_registration_refused", entry, newest=known.term,
                )
            if len(others) >= nodes_max:
                raise refused(
                    f"group {self.name} has {len(others)} live nodes already, and no more are allowed",
                    "node_refused", entry, limit=nodes_max,
                    do="raise registry.nodes_per_group_max, or stop nodes that do not belong there",
                )
        if entry.role is Role.LEADER:
            self._check_fence(entry)

    def _check_fence(self, entry: Registration) -> None:
        fence = self._fences.get(entry.incarnation)
        if fence is None or entry.term > fence.term:
            return
        if entry.term < fence.term:
            raise refused(
                f"{entry.node} says it leads group {self.name} in term {entry.term}; {fence.node} led in {fence.term}",
                "stale_leader_refused", entry, newest=fence.term, leader=fence.node,
            )
        if entry.node != fence.node:
            raise refused(
                f"{entry.node} and {fence.node} both say they lead group {self.name} in term {entry.term}",
                "two_leaders_refused", entry, leader=fence.node,
                do="stop one of them and keep its files: a term can have one leader only, so this is a bug or a fraud",
            )

    def admit(self, entry: Registration, now_ms: int, connection: int, nodes_max: int) -> list[Fact]:
        """Take a registration that `check` let pass."""
        facts: list[Fact] = []
        if entry.incarnation != self.incarnation:
            facts.append(self._fact("incarnation_changed", before=self.incarnation, after=entry.incarnation))
            self._begin(entry.incarnation)
        facts += self._drop_namesakes(entry, now_ms)
        before = self.leader
        known = self.members.get(entry.node)
        if known is None or known.address != entry.address:
            facts.append(self._fact("broker_registered", node=entry.node, address=entry.address, role=entry.role.value))
        if entry.role is Role.LEADER:
            self._raise_fence(entry)
            if before is not None and before.node != entry.node:
                before.role = Role.FOLLOWER  # it has not said so yet, but its term is over
        self.members[entry.node] = Member(entry.node, entry.address, entry.term, entry.role, connection, now_ms)
        self._remember(entry.node, nodes_max)
        facts += self._leader_facts(before, "resigned")
        if entry.role is Role.LEADER and entry.topics is not None:
            facts += self._take_topics(entry.term, entry.topics)
        return facts

    def drop(self, member: Member, why: str, now_ms: int) -> list[Fact]:
        """A member is gone; fence, topics and ids are kept."""
        before = self.leader
        del self.members[member.node]
        self.empty_since_ms = now_ms
        facts = [self._fact("broker_lost", node=member.node, address=member.address, why=why)]
        return facts + self._leader_facts(before, why)

    def _drop_namesakes(self, entry: Registration, now_ms: int) -> list[Fact]:
        """One address is one process: whoever was known by it before is no longer there."""
        gone = [m for m in self.members.values() if m.address == entry.address and m.node != entry.node]
        return [told for member in gone for told in self.drop(member, "address taken over", now_ms)]

    def _raise_fence(self, entry: Registration) -> None:
        self._fences.pop(entry.incarnation, None)  # the newest stands last
        self._fences[entry.incarnation] = Fence(entry.term, entry.node)
        while len(self._fences) > INCARNATIONS_MAX:
            del self._fences[next(iter(self._fences))]

    def _remember(self, node: NodeId, nodes_max: int) -> None:
        self._known.pop(node, None)
        self._known[node] = None
        lost = [name for name in self._known if name not in self.members]
        for name in lost[: max(0, len(self._known) - nodes_max)]:
            del self._known[name]

    def _leader_facts(self, before: Member | None, why: str) -> list[Fact]:
        after = self.leader
        if after is None:
            if before is None:
                return []
            stand_in = self.addresses()
            instead = stand_in[0][1] if stand_in else None
            return [self._fact("leader_lost", node=before.node, term=before.term, why=why, stand_in=instead)]
        if before is not None and (before.node, before.term, before.address) == (after.node, after.term, after.address):
            return []
        return [self._fact("leader_published", node=after.node, term=after.term, address=after.address)]

    def _take_topics(self, term: Term, table: TopicTable) -> list[Fact]:
        if self.version is not None and (table.version, self._topics_term) == (self.version, term):
            return []
        if self.version is not None and term == self._topics_term and table.version < self.version:
            return [self._fact("stale_topics_ignored", term=term, counter=table.version.counter,
                               newest=self.version.counter)]
        changed = table.rows != self.topics
        self.topics, self.version, self._topics_term = table.rows, table.version, term
        if not changed:
            return []
        return [self._fact("topics_changed", term=term, counter=table.version.counter, topics=len(table.rows))]

    def _fact(self, name: str, **fields: object) -> Fact:
        return fact(name, cluster=self.cluster, group=self.name, **fields)


def broker_ids(nodes: Iterable[NodeId]) -> dict[NodeId, int]:
    """RocketMQ's ids for nodes that do not lead: all different, none 0, the same wherever the same nodes are known.

    A letter and digits is DLedger's own form and gives digits + 1 whoever else is there; the others, and whoever finds
    its number taken, get the smallest free ones in the order of their names.
    """
    ids: dict[NodeId, int] = {}
    taken: set[int] = set()
    rest = []
    for node in sorted(nodes):
        number = NUMBERED.fullmatch(node)
        wanted = int(number[1]) + 1 if number is not None else 0
        if wanted == 0 or wanted in taken:
            rest.append(node)
        else:
            ids[node] = wanted
            taken.add(wanted)
    free = 1
    for node in rest:
        while free in taken:
            free += 1
        ids[node] = free
        taken.add(free)
    return ids


def _names(members: Iterable[Member]) -> str:
    return ", ".join(sorted(member.node for member in members))
