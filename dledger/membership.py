"""Who belongs to the group: voters and learners, one change at a time.

Law: a membership is in force as soon as its entry is in the log, and is rolled back with it. Two successive voter
sets differ by at most one node, so their majorities overlap. A member is (node, incarnation): what a wiped machine
says under its old name counts for nothing.
Does not know: how a membership is written into an entry, who asked for the change."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from model.ids import Incarnation, LogPosition, NodeId


class Member(NamedTuple):
    """One node of a membership."""

    node: NodeId
    incarnation: Incarnation
    voter: bool


@dataclass(frozen=True)
class Membership:
    """A set of members; `EMPTY` is what a joiner starts with, and it can neither vote nor campaign."""

    members: tuple[Member, ...]
    voters: frozenset[NodeId] = field(init=False, repr=False, compare=False)
    incarnations: dict[NodeId, Incarnation] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "members", tuple(sorted(self.members)))
        object.__setattr__(self, "voters", frozenset(m.node for m in self.members if m.voter))
        object.__setattr__(self, "incarnations", {m.node: m.incarnation for m in self.members})
        assert len(self.incarnations) == len(self.members), self.members

    @property
    def nodes(self) -> Iterable[NodeId]:
        """All members, voters and learners, in a fixed order."""
        return self.incarnations.keys()

    def votes(self, node: NodeId, incarnation: Incarnation) -> bool:
        """Whether this very incarnation is a voter: a wiped machine is not the voter whose name it bears."""
        return node in self.voters and self.incarnations[node] == incarnation

    def without(self, node: NodeId) -> tuple[Member, ...]:
        """The members other than `node`."""
        return tuple(m for m in self.members if m.node != node)


EMPTY = Membership(())


class ChangeKind(Enum):
    """What an administrator, or a leader that sees a wiped node return, can ask for."""

    ADD_LEARNER = "add_learner"  # also: a voter's new incarnation returns as a learner
    PROMOTE = "promote"
    REMOVE = "remove"


class Change(NamedTuple):
    """One step of membership change."""

    kind: ChangeKind
    node: NodeId
    incarnation: Incarnation = Incarnation(0)


def changed(current: Membership, change: Change) -> Membership | None:
    """The membership after `change`; None when it makes no sense or would leave no voter."""
    others = current.without(change.node)
    known = current.incarnations.get(change.node)
    if change.kind is ChangeKind.ADD_LEARNER:
        if known == change.incarnation:
            return None
        after = Membership((*others, Member(change.node, change.incarnation, voter=False)))
    elif change.kind is ChangeKind.PROMOTE:
        if known is None or change.node in current.voters:
            return None
        after = Membership((*others, Member(change.node, known, voter=True)))
    else:
        if known is None:
            return None
        after = Membership(others)
    return after if after.voters else None


class MembershipHistory:
    """The memberships of a log with the positions of their entries; the first is the one in force at the log start."""

    __slots__ = ("_rows",)

    def __init__(self, rows: Iterable[tuple[LogPosition, Membership]]) -> None:
        self._rows = list(rows)

    @property
    def latest(self) -> Membership:
        """The newest membership in the log, committed or not: the one in force."""
        return self._rows[-1][1] if self._rows else EMPTY

    @property
    def latest_position(self) -> LogPosition:
        """Where the newest membership's entry starts (-1: it is older than the log)."""
        return self._rows[-1][0] if self._rows else LogPosition(-1)

    @property
    def rows(self) -> tuple[tuple[LogPosition, Membership], ...]:
        """All rows, oldest first."""
        return tuple(self._rows)

    def append(self, position: LogPosition, membership: Membership) -> None:
        """A membership entry at `position` was written."""
        assert position > self.latest_position, (position, self.latest_position)
        self._rows.append((position, membership))

    def truncate(self, to: LogPosition) -> None:
        """Roll back what stands at or above `to`; the one in force at the log start stands below it and stays."""
        while self._rows and self._rows[-1][0] >= to:
            self._rows.pop()

    def in_force_at(self, position: LogPosition) -> tuple[LogPosition, Membership]:
        """The membership that the log below `position` ends with."""
        for row in reversed(self._rows):
            if row[0] < position:
                return row
        return LogPosition(-1), EMPTY

    def since(self, commit: LogPosition) -> Iterable[Membership]:
        """The last known-committed membership and all later ones."""
        for position, membership in reversed(self._rows):
            yield membership
            if position < commit:
                return

    def drop_head(self, to: LogPosition) -> None:
        """Forget what was superseded below `to`, except the one in force there."""
        while len(self._rows) > 1 and self._rows[1][0] < to:
            del self._rows[0]
