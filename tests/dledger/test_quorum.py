"""Majority arithmetic against the dumbest twin: try every position."""

from hypothesis import given
from hypothesis import strategies as st

from dledger.quorum import has_majority, majority, majority_position
from model.ids import LogPosition, NodeId

NAMES = [NodeId(name) for name in "abcdefg"]
voters_of = st.sets(st.sampled_from(NAMES))
matched_of = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 20).map(LogPosition))


@given(voters_of, matched_of)
def test_the_majority_position_is_the_highest_that_more_than_half_reached(
    voters: set[NodeId], matched: dict[NodeId, LogPosition]
) -> None:
    reached = [p for p in range(21) if 2 * sum(1 for v in voters if matched.get(v, 0) >= p) > len(voters)]
    assert majority_position(voters, matched) == max(reached, default=0)


@given(voters_of, st.sets(st.sampled_from(NAMES)))
def test_a_majority_is_more_than_half_of_the_voters_and_nobody_else_counts(
    voters: set[NodeId], yes: set[NodeId]
) -> None:
    assert has_majority(voters, yes) == (2 * len(voters & yes) > len(voters))


@given(voters_of, st.sets(st.sampled_from(NAMES)), st.sets(st.sampled_from(NAMES)))
def test_two_majorities_share_a_voter(voters: set[NodeId], one: set[NodeId], other: set[NodeId]) -> None:
    if has_majority(voters, one) and has_majority(voters, other):
        assert one & other & voters


@given(voters_of, st.sampled_from(NAMES), st.data())
def test_majorities_of_sets_that_differ_by_one_node_overlap(
    voters: set[NodeId], node: NodeId, data: st.DataObject
) -> None:
    after = voters ^ {node}
    one = data.draw(st.sets(st.sampled_from(NAMES)))
    other = data.draw(st.sets(st.sampled_from(NAMES)))
    if has_majority(voters, one) and has_majority(after, other):
        assert one & other


def test_no_voters_have_no_majority() -> None:
    assert not has_majority((), NAMES)
    assert majority_position((), {}) == 0
    assert [majority(NAMES[:count]) for count in (1, 2, 3, 4, 5)] == [1, 2, 2, 3, 3]
