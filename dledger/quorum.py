"""Majority arithmetic on plain values.

Law: a majority of the voters is more than half of them; with no voters there is never a majority."""

from collections.abc import Collection, Mapping

from model.ids import LogPosition, NodeId


def majority(voters: Collection[NodeId]) -> int:
    """How many of these voters make a majority."""
    return len(voters) // 2 + 1


def has_majority(voters: Collection[NodeId], yes: Collection[NodeId]) -> bool:
    """Whether those who said yes contain a majority of the voters; others who said yes do not count."""
    return bool(voters) and sum(1 for node in voters if node in yes) >= majority(voters)


def majority_position(voters: Collection[NodeId], matched: Mapping[NodeId, LogPosition]) -> LogPosition:
    """The highest position that a majority of the voters has reached; a voter without a report counts as 0."""
    if not voters:
        return LogPosition(0)
    reached = sorted((matched.get(node, LogPosition(0)) for node in voters), reverse=True)
    return reached[majority(voters) - 1]
