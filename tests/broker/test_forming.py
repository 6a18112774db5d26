"""How a group comes into being, and how a machine that lost its disk comes back: as somebody new."""

from random import Random

import pytest

from broker.fencing import Forming
from broker.ports import Hello, Letter, Phase
from dledger.core import RaftCore
from dledger.messages import Kind, Message
from model.ids import Incarnation, NodeId
from tests.broker.group import Group

N0, N1, N2 = (NodeId(f"n{number}") for number in range(3))


def phases(group: Group) -> dict[str, Phase]:
    return {replica.node: replica.phase for replica in group.up}


# ---- forming ---------------------------------------------------------------------------------------------------------


def test_a_group_forms_only_when_all_configured_voters_are_there_and_empty() -> None:
    group = Group().start("n0", "n1")
    group.step(200)
    assert set(phases(group).values()) == {Phase.FORMING}
    group.start("n2")
    group.lead()
    group.assert_equal()
    assert len({replica.state.genesis for replica in group.up}) == 1


def test_it_forms_also_when_hellos_are_lost() -> None:
    group = Group()
    random = Random(1)
    group.lost = lambda letter: isinstance(letter.body, Hello) and random.random() < 0.7
    group.start()
    group.lead()
    group.assert_equal()


def test_who_was_left_out_when_the_others_formed_the_group_enters_it_as_the_one_it_knows() -> None:
    group = Group()

    def lost(letter: Letter) -> bool:  # n2 says that it sees all three, and never hears that the others do
        body = letter.body
        return letter.target == "n2" and isinstance(body, Hello) and (len(body.seen) == 3 or body.genesis is not None)

    group.lost = lost
    group.start()
    group.lead()
    group.topic()
    group.put(bodies=[b"without n2"])
    assert phases(group)["n2"] is Phase.FORMING
    group.heal()
    group.assert_equal()
    assert group.votes("n2") and len(group.lead().core.memberships.rows) == 1  # type: ignore[union-attr]


def forming() -> Forming:
    return Forming(N0, Incarnation(1), (N2, N0, N1))


ALL = ((N0, Incarnation(1)), (N1, Incarnation(2)), (N2, Incarnation(3)))


def test_an_empty_node_forms_nothing_when_somebody_belongs_to_a_group() -> None:
    fence = forming()
    fence.heard(N1, Incarnation(2), Hello(None, ALL, False))
    assert fence.genesis() is None
    other = ((N0, Incarnation(9)), *ALL[1:])
    fence.heard(N2, Incarnation(3), Hello(other, (), False))
    assert fence.genesis() is None and fence.must_join


def test_all_agree_on_the_genesis_whatever_the_order_of_hellos() -> None:
    for order in (ALL[1:], ALL[:0:-1]):
        fence = forming()
        for node, incarnation in order:
            fence.heard(node, incarnation, Hello(None, ALL, False))
        assert fence.genesis() == ALL


def test_to_have_heard_everybody_is_not_enough_all_must_have_heard_the_same() -> None:
    fence = forming()
    fence.heard(N1, Incarnation(2), Hello(None, ALL, False))
    fence.heard(N2, Incarnation(3), Hello(None, (*ALL[:1], (N1, Incarnation(8)), *ALL[2:]), False))
    assert fence.genesis() is None, "n2 knows another n1, perhaps one that was wiped after it had formed a group"


# ---- wiped machines --------------------------------------------------------------------------------------------------


def test_a_wiped_node_comes_back_as_a_learner_and_votes_when_it_has_everything() -> None:
    group = Group().formed("n0")
    group.topic()
    group.put(bodies=[b"before"])
    old = group["n2"].incarnation
    group.wipe("n2")
    group.put(bodies=[b"meanwhile"])
    roles: list[tuple[bool, bool]] = []
    group.start("n2")
    assert group["n2"].incarnation != old

    def voter_again() -> bool:
        member = group.lead().core.membership  # type: ignore[union-attr]
        known = member.incarnations.get(N2) == group["n2"].incarnation
        roles.append((known, N2 in member.voters))
        return group.votes("n2")

    group.until(voter_again, what="n2 votes again")
    assert (True, False) in roles, "it was a learner first"
    group.assert_equal()
    assert len(group.lead().core.memberships.rows) == 3  # type: ignore[union-attr]


def test_a_learner_neither_votes_nor_campaigns() -> None:
    group = Group().formed("n0")
    group.topic()
    group.wipe("n2")
    group.start("n2")
    group.until(lambda: N2 not in group.lead().core.membership.voters, what="a learner")  # type: ignore[union-attr]
    group.crash("n0", "n1")
    group.carried.clear()
    group.step(300)
    asked = {letter.body.kind for letter in group.carried if isinstance(letter.body, Message)}
    assert not asked & {Kind.PREVOTE, Kind.VOTE}, asked


def wiped_and_stale() -> tuple[Group, int]:
    """n1 missed the last messages, n2 lost its disk, n0 (who has everything) is down."""
    group = Group().formed("n0")
    group.topic()
    group.converge()
    group.crash("n1")
    for number in range(3):
        group.put(bodies=[b"acknowledged"], producer=b"p", sequence=number)
    end = group["n0"].log.end
    group.step(10)
    group.crash("n0")
    group.wipe("n2")
    group.start("n1", "n2")
    group.step(500)
    return group, end


def test_a_wiped_and_a_stale_node_never_elect_a_leader_that_lost_acknowledged_messages() -> None:
    group, end = wiped_and_stale()
    assert not any(group.nodes[name].saw("leader_elected") for name in ("n1", "n2"))
    group.start("n0")
    leader = group.lead()
    assert leader.node == "n0" and leader.log.end > end
    group.until(lambda: group.votes("n2"), what="n2 votes again")
    group.assert_equal()
    assert all(replica.state.next_offsets[("t", 0)] == 3 for replica in group.up)


def test_control_if_a_wiped_node_could_vote_under_its_old_name_the_stale_one_would_lead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(RaftCore, "fenced", property(lambda core: False))
    monkeypatch.setattr(RaftCore, "_counts", lambda core, message: True)
    group, _ = wiped_and_stale()
    assert group.nodes["n1"].saw("leader_elected") and ("t", 0) not in group["n1"].state.next_offsets


def test_two_wiped_nodes_of_three_form_no_second_group_beside_the_one_that_remembers() -> None:
    group = Group().formed("n0")
    group.topic()
    group.put(bodies=[b"kept"])
    group.crash("n0")
    group.wipe("n1")
    group.wipe("n2")
    group.start("n1", "n2")
    group.step(300)
    assert set(phases(group).values()) == {Phase.FORMING}
    group.start("n0")
    group.step(300)
    assert group.leader is None and b"kept" in group["n0"].log.read(0, group["n0"].log.end)
