"""All groups of all clusters: register, unregister, lose, expire; and what clients and administrators may ask.

    brokers --register--> Registry --route(topic), cluster_info(), topics()--> clients
                             ^
      connection_lost, expire(now)

Law: a registration is taken whole or refused whole, and a refusal changes nothing. An address belongs to one node: the
last accepted registration has it. Group names are unique among live groups of all clusters, for clients know a group
by its name alone. A group without a live node is in no answer, but its fence and topics are remembered for
`memory_ms`, or until `groups_max` or `clusters_max` needs the room: then the longest empty goes first.
Every change comes back as facts. Does not know: the clock, connections (only their numbers), bodies, logging.
"""

from collections.abc import Iterator
from typing import NamedTuple

from model.errors import TopicMissing
from model.ids import GroupId, Incarnation, NodeId, Term
from namesrv.config import RegistryConfig
from namesrv.group import Group, Member
from namesrv.registration import DataVersion, Fact, Registration, Role, TopicRow, fact, refused

Key = tuple[str, GroupId]


class LeaderView(NamedTuple):
    node: NodeId
    address: str
    term: Term


class GroupView(NamedTuple):
    """A live group as answers show it."""

    cluster: str
    group: GroupId
    incarnation: Incarnation
    leader: LeaderView | None
    addresses: tuple[tuple[int, str], ...]  # (RocketMQ's broker id, ip:port), never empty, the first id is 0
    version: DataVersion | None  # of its topic table; None before any leader told one


class TopicRoute(NamedTuple):
    """One group that has the topic asked for."""

    group: GroupView
    topic: TopicRow


class Registry:
    def __init__(self, config: RegistryConfig) -> None:
        self._config = config
        self._groups: dict[Key, Group] = {}

    def register(self, entry: Registration, now_ms: int, connection: int) -> tuple[Fact, ...]:
        """Take a registration that came over `connection` (any number that names it), or raise RegistrationRefused."""
        self._check(entry)
        key = (entry.cluster, entry.group)
        group = self._groups.get(key)
        facts: list[Fact] = []
        if group is None:
            for victim in self._make_room(entry):
                facts += self._forget(victim, "room needed")
            group = self._groups[key] = Group(entry.cluster, entry.group, entry.incarnation)
        else:
            group.check(entry, self._config.nodes_per_group_max)
        for other, member in list(self._members()):
            if member.address == entry.address and other is not group:
                facts += other.drop(member, "address taken over", now_ms)
        facts += group.admit(entry, now_ms, connection, self._config.nodes_per_group_max)
        return tuple(facts)

    def unregister(self, cluster: str, group: GroupId, address: str, now_ms: int) -> tuple[Fact, ...]:
        """A broker says good-bye; one that is not known is no matter."""
        known = self._groups.get((cluster, group))
        gone = [] if known is None else [(known, m) for m in known.members.values() if m.address == address]
        return self._drop(gone, "unregistered", now_ms)

    def connection_lost(self, connection: int, now_ms: int) -> tuple[Fact, ...]:
        """Whoever last registered over this connection is gone.

        Asked by connection and not by address: the end of an old connection can be noticed after its broker has
        registered anew over the next one, and must not take that registration away.
        """
        gone = [(group, member) for group, member in self._members() if member.connection == connection]
        return self._drop(gone, "connection lost", now_ms)

    def expire(self, now_ms: int) -> tuple[Fact, ...]:
        """Every `scan_ms`: drop the silent, forget groups that nobody has stood for in a long time."""
        config = self._config
        silent = [(group, m) for group, m in self._members() if now_ms - m.seen_ms > config.expiry_ms]
        facts = list(self._drop(silent, "silent", now_ms))
        for key, group in list(self._groups.items()):
            if not group.members and now_ms - group.empty_since_ms > config.memory_ms:
                facts += self._forget(key, "long empty")
        return tuple(facts)

    def route(self, topic: str) -> tuple[TopicRoute, ...]:
        """Where a topic lives, by cluster and group; TopicMissing when no live group has it."""
        found = [TopicRoute(_view(group), row) for group in self._live() if (row := group.topics.get(topic))]
        if not found:
            raise TopicMissing(f"no live group has the topic {topic!r}")
        return tuple(found)

    def cluster_info(self) -> tuple[GroupView, ...]:
        """Every live group, by cluster and name."""
        return tuple(_view(group) for group in self._live())

    def group(self, cluster: str, group: GroupId) -> GroupView | None:
        """One group, if anyone of it is alive."""
        known = self._groups.get((cluster, group))
        return _view(known) if known is not None and known.members else None

    def topics(self) -> tuple[str, ...]:
        """Every topic of a live group, sorted."""
        return tuple(sorted({name for group in self._live() for name in group.topics}))

    def topics_of_cluster(self, cluster: str) -> tuple[str, ...]:
        """The same for one cluster; nothing for one that is not known."""
        return tuple(sorted({name for group in self._live() if group.cluster == cluster for name in group.topics}))

    def _check(self, entry: Registration) -> None:
        """What can be said without knowing the group's past."""
        limit = self._config.topics_per_group_max
        if (entry.role is Role.LEADER) != (entry.broker_id == 0):
            raise refused(
                f"{entry.node} registers as {entry.role.value} with broker id {entry.broker_id}; "
                f"id 0 belongs to the leader alone",
                "contradiction_refused", entry, broker_id=entry.broker_id,
            )
        if entry.topics is not None and len(entry.topics.rows) > limit:
            raise refused(
                f"group {entry.group} announces {len(entry.topics.rows)} topics; at most {limit} are allowed",
                "topics_refused", entry, limit=limit, do="raise registry.topics_per_group_max, or delete topics",
            )
        for group in self._live():
            taken = any(member.address != entry.address for member in group.members.values())
            if group.name == entry.group and group.cluster != entry.cluster and taken:
                raise refused(
                    f"group {group.name} is already alive in cluster {group.cluster}",
                    "group_name_refused", entry, current=group.cluster,
                    do="give one of the two another name: clients know a group by its name alone",
                )

    def _make_room(self, entry: Registration) -> list[Key]:
        """The empty groups that give way to a new one; refuses when all the room is taken by live groups."""
        config = self._config
        victims: list[Key] = []
        clusters = {cluster for cluster, _ in self._groups}
        if entry.cluster not in clusters and len(clusters) >= config.clusters_max:
            since = {cluster: self._empty_since(cluster) for cluster in clusters - {g.cluster for g in self._live()}}
            if not since:
                raise refused(
                    f"{len(clusters)} clusters are alive already, and no more are allowed",
                    "cluster_refused", entry, limit=config.clusters_max, do="raise registry.clusters_max",
                )
            oldest = min(since, key=lambda cluster: (since[cluster], cluster))
            victims = [key for key in self._groups if key[0] == oldest]
        if len(self._groups) - len(victims) >= config.groups_max:
            empty = [key for key, group in self._groups.items() if not group.members and key not in victims]
            if not empty:
                raise refused(
                    f"{len(self._groups)} groups are alive already, and no more are allowed",
                    "group_refused", entry, limit=config.groups_max, do="raise registry.groups_max",
                )
            victims.append(min(empty, key=lambda key: (self._groups[key].empty_since_ms, key)))
        return victims

    def _empty_since(self, cluster: str) -> int:
        return max(group.empty_since_ms for group in self._groups.values() if group.cluster == cluster)

    def _forget(self, key: Key, why: str) -> list[Fact]:
        group = self._groups.pop(key)
        assert not group.members, key
        return [fact("group_forgotten", cluster=group.cluster, group=group.name, term=group.term, why=why)]

    def _live(self) -> Iterator[Group]:
        return (self._groups[key] for key in sorted(self._groups) if self._groups[key].members)

    def _members(self) -> Iterator[tuple[Group, Member]]:
        # A scan, not an index by address and one by connection: at the default bounds it is 2048 steps at most.
        return ((group, member) for group in self._groups.values() for member in group.members.values())

    @staticmethod
    def _drop(gone: list[tuple[Group, Member]], why: str, now_ms: int) -> tuple[Fact, ...]:
        return tuple(told for group, member in gone for told in group.drop(member, why, now_ms))


def _view(group: Group) -> GroupView:
    leader = group.leader
    return GroupView(
        group.cluster, group.name, group.incarnation,
        None if leader is None else LeaderView(leader.node, leader.address, leader.term),
        group.addresses(), group.version,
    )
