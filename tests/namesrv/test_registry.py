"""Who is published, told as stories; the bounds; and the fencing rule against a twin that forgets nothing."""

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from model.errors import TopicMissing
from model.ids import GroupId, Incarnation, NodeId, Term
from namesrv.config import RegistryConfig
from namesrv.group import INCARNATIONS_MAX, broker_ids
from namesrv.registration import DataVersion, Fact, Registration, RegistrationRefused, Role, TopicRow, TopicTable
from namesrv.registry import GroupView, Registry

CONFIG = RegistryConfig()
GROUP = GroupId("b0")


def address_of(node: str, group: str = GROUP) -> str:
    return f"10.0.{int(group[1:])}.{sum(node.encode()) % 250 + 1}:10911"


def table(counter: int, *names: str, perm: int = 6) -> TopicTable:
    return TopicTable(DataVersion(counter, 1000 + counter), {name: TopicRow(name, 4, 4, perm) for name in names})


def entry(
    node: str,
    role: str,
    term: int,
    *,
    incarnation: int = 1,
    cluster: str = "c",
    group: str = GROUP,
    address: str | None = None,
    topics: TopicTable | None = None,
) -> Registration:
    return Registration(
        cluster, GroupId(group), Incarnation(incarnation), NodeId(node), address or address_of(node, group),
        Term(term), Role(role), 0 if role == "leader" else 1, topics,
    )


def names(facts: tuple[Fact, ...]) -> list[str]:
    return [told.name for told in facts]


def why_refused(registry: Registry, registration: Registration, now_ms: int = 0, connection: int = 1) -> str:
    before = registry.cluster_info()
    with pytest.raises(RegistrationRefused) as caught:
        registry.register(registration, now_ms, connection)
    assert registry.cluster_info() == before, "a refusal changes nothing"
    assert caught.value.happened and caught.value.do
    return caught.value.fact.name


# Each line: what happens -> the published leader and its term | ids of the published nodes.
#   <node> leader|follower|learner <term> [incarnation N] [at <node>'s address]   <node> lost   <node> leaves   wait <s>
STORIES = {
    "the leader is id 0 and the others keep their numbers": """
        n0 follower 4               -> none | 0=n0
        n1 leader 4                 -> n1@4 | 0=n1 1=n0
        n2 follower 4               -> n1@4 | 0=n1 1=n0 3=n2
        n1 leader 4                 -> n1@4 | 0=n1 1=n0 3=n2""",
    "a new leader replaces the old one before that one says anything": """
        n0 leader 5                 -> n0@5 | 0=n0
        n1 follower 5               -> n0@5 | 0=n0 2=n1
        n1 leader 6                 -> n1@6 | 0=n1 1=n0
        n0 follower 6               -> n1@6 | 0=n1 1=n0""",
    "a leader that steps down takes itself off id 0": """
        n1 follower 5               -> none | 0=n1
        n0 leader 5                 -> n0@5 | 0=n0 2=n1
        n0 follower 5               -> none | 0=n0 2=n1
        n1 leader 6                 -> n1@6 | 0=n1 1=n0""",
    "while nobody leads, the last heard follower stands in, and a learner only when there is nobody else": """
        n0 leader 5                 -> n0@5 | 0=n0
        n1 follower 5               -> n0@5 | 0=n0 2=n1
        wait 1
        n2 follower 5               -> n0@5 | 0=n0 2=n1 3=n2
        wait 1
        n3 learner 5                -> n0@5 | 0=n0 2=n1 3=n2 4=n3
        n0 lost                     -> none | 0=n2 2=n1 4=n3
        n2 lost                     -> none | 0=n1 4=n3
        n1 lost                     -> none | 0=n3
        n2 leader 7                 -> n2@7 | 0=n2 4=n3""",
    "two followers heard at the same moment: the smaller address stands in": """
        n2 follower 5               -> none | 0=n2
        n1 follower 5               -> none | 0=n1 3=n2""",
    "an ex-leader that restarts and registers late with its old term is refused": """
        n0 leader 5                 -> n0@5 | 0=n0
        n1 follower 5               -> n0@5 | 0=n0 2=n1
        n0 lost                     -> none | 0=n1
        n1 leader 6                 -> n1@6 | 0=n1
        n0 leader 5                 -> stale_leader_refused
        n0 follower 6               -> n1@6 | 0=n1 1=n0""",
    "an old leader cannot return after the newer one expired": """
        n1 leader 6                 -> n1@6 | 0=n1
        wait 121                    -> gone
        n0 leader 5                 -> stale_leader_refused
        n0 follower 5               -> none | 0=n0
        n0 leader 5                 -> stale_leader_refused
        n1 leader 6                 -> n1@6 | 0=n1 1=n0""",
    "the leader that was lost may register again in its own term": """
        n0 leader 5                 -> n0@5 | 0=n0
        n0 lost                     -> gone
        n0 leader 5                 -> n0@5 | 0=n0""",
    "two leaders of one term: the second is refused, also when the first is gone": """
        n0 leader 5                 -> n0@5 | 0=n0
        n1 leader 5                 -> two_leaders_refused
        n0 lost                     -> gone
        n1 leader 5                 -> two_leaders_refused
        n1 leader 6                 -> n1@6 | 0=n1""",
    "a follower's late word of an older term does not unseat it as leader": """
        n0 leader 5                 -> n0@5 | 0=n0
        n0 follower 4               -> stale_registration_refused""",
    "a follower with a higher term unseats nobody": """
        n0 leader 5                 -> n0@5 | 0=n0
        n1 follower 9               -> n0@5 | 0=n0 2=n1
        n0 leader 5                 -> n0@5 | 0=n0 2=n1""",
    "silence for 120 s is borne, more is not": """
        n0 leader 5                 -> n0@5 | 0=n0
        wait 60
        n1 follower 5               -> n0@5 | 0=n0 2=n1
        wait 60                     -> n0@5 | 0=n0 2=n1
        wait 1                      -> none | 0=n1
        wait 60                     -> gone""",
    "a broker that leaves is gone at once": """
        n0 leader 5                 -> n0@5 | 0=n0
        n1 follower 5               -> n0@5 | 0=n0 2=n1
        n0 leaves                   -> none | 0=n1
        n0 leaves                   -> none | 0=n1""",
    "a recreated group is refused while one of the old nodes is alive": """
        n0 leader 5                 -> n0@5 | 0=n0
        n1 follower 5               -> n0@5 | 0=n0 2=n1
        n0 lost                     -> none | 0=n1
        n0 leader 1 incarnation 2   -> incarnation_refused
        n2 follower 1 incarnation 2 -> incarnation_refused
        n1 lost                     -> gone
        n0 leader 1 incarnation 2   -> n0@1 | 0=n0
        n1 follower 5               -> incarnation_refused
        n1 leader 6                 -> incarnation_refused""",
    "a wiped single node replaces itself even if its old connection still stands": """
        n0 leader 5                 -> n0@5 | 0=n0
        n0 leader 1 incarnation 2   -> n0@1 | 0=n0
        n0 leader 1 incarnation 3 at n9 -> n0@1 | 0=n9
        n4 leader 1 incarnation 4 at n9 -> n4@1 | 0=n9""",
    "an old group may come back when the new one is gone, but not with an older term than it had": """
        n0 leader 5                 -> n0@5 | 0=n0
        n0 lost                     -> gone
        n0 leader 9 incarnation 2   -> n0@9 | 0=n0
        n0 lost                     -> gone
        n1 leader 4                 -> stale_leader_refused
        n1 leader 5                 -> two_leaders_refused
        n1 leader 6                 -> n1@6 | 0=n1""",
    "an address that another node registers is taken from the first": """
        n0 leader 5                 -> n0@5 | 0=n0
        n1 follower 5 at n0         -> none | 0=n0
        n0 leader 5                 -> n0@5 | 0=n0""",
    "a node that comes back under another address is there once": """
        n0 leader 5                 -> n0@5 | 0=n0
        n0 leader 5 at n9           -> n0@5 | 0=n9""",
}


class Teller:
    """Plays a story; every node has one connection, whose number is that of its name."""

    def __init__(self) -> None:
        self.registry = Registry(CONFIG)
        self.now_ms = 1_000_000

    def play(self, words: list[str]) -> str | None:
        """The refusal's name, if it is one."""
        match words:
            case ["wait", seconds]:
                self.now_ms += int(seconds) * 1000
                self.registry.expire(self.now_ms)
            case [node, "lost"]:
                self.registry.connection_lost(int(node[1:]), self.now_ms)
            case [node, "leaves"]:
                self.registry.unregister("c", GROUP, address_of(node), self.now_ms)
            case [node, role, term, *more]:
                extra = dict(zip(more[::2], more[1::2], strict=True))
                said = entry(
                    node, role, int(term), incarnation=int(extra.get("incarnation", 1)),
                    address=address_of(extra.get("at", node)),
                )
                try:
                    self.registry.register(said, self.now_ms, int(node[1:]))
                except RegistrationRefused as refusal:
                    return refusal.fact.name
            case _:
                raise AssertionError(words)
        return None

    def published(self) -> str:
        view = self.registry.group("c", GROUP)
        if view is None:
            return "gone"
        by_address = {address_of(f"n{number}"): f"n{number}" for number in range(10)}
        leader = "none" if view.leader is None else f"{view.leader.node}@{view.leader.term}"
        return f"{leader} | " + " ".join(f"{number}={by_address[address]}" for number, address in view.addresses)


@pytest.mark.parametrize("story", STORIES)
def test_story(story: str) -> None:
    teller = Teller()
    for line in STORIES[story].strip().splitlines():
        happens, arrow, expected = (part.strip() for part in line.partition("->"))
        before = teller.published()
        refusal = teller.play(happens.split())
        if arrow:
            assert (refusal or teller.published()) == expected, line
        assert refusal is None or teller.published() == before, line


def test_the_end_of_an_old_connection_does_not_undo_a_registration_over_the_next_one() -> None:
    registry = Registry(CONFIG)
    registry.register(entry("n0", "leader", 5), 0, connection=1)
    registry.register(entry("n0", "leader", 5), 10, connection=2)
    assert registry.connection_lost(1, 20) == ()
    assert registry.group("c", GROUP) is not None
    assert names(registry.connection_lost(2, 30)) == ["broker_lost", "leader_lost"]
    assert registry.group("c", GROUP) is None


def test_an_unseated_leader_is_told_of_once_and_a_repeated_registration_is_no_news() -> None:
    registry = Registry(CONFIG)
    first = entry("n0", "leader", 5, topics=table(1, "t"))
    assert names(registry.register(first, 0, 1)) == ["broker_registered", "leader_published", "topics_changed"]
    assert registry.register(first, 30_000, 1) == ()
    assert names(registry.register(entry("n1", "leader", 6), 0, 2)) == ["broker_registered", "leader_published"]
    told = registry.connection_lost(2, 1)
    assert told == (
        Fact("broker_lost", (("cluster", "c"), ("group", GROUP), ("node", "n1"), ("address", address_of("n1")),
                             ("why", "connection lost"))),
        Fact("leader_lost", (("cluster", "c"), ("group", GROUP), ("node", "n1"), ("term", 6),
                             ("why", "connection lost"), ("stand_in", address_of("n0")))),
    )


def test_two_groups_of_a_cluster_share_a_topic_and_the_loss_of_one_leaves_the_other() -> None:
    registry = Registry(CONFIG)
    registry.register(entry("n0", "leader", 5, topics=table(1, "both", "first")), 0, 1)
    registry.register(entry("n0", "leader", 2, group="b1", topics=table(1, "both", "second", perm=4)), 0, 2)
    assert [(r.group.group, r.topic.perm) for r in registry.route("both")] == [("b0", 6), ("b1", 4)]
    assert [r.group.addresses for r in registry.route("second")] == [((0, address_of("n0", "b1")),)]
    assert registry.topics() == registry.topics_of_cluster("c") == ("both", "first", "second")
    assert registry.topics_of_cluster("d") == ()
    assert [view.group for view in registry.cluster_info()] == ["b0", "b1"]
    registry.connection_lost(1, 0)
    assert [r.group.group for r in registry.route("both")] == ["b1"]
    with pytest.raises(TopicMissing):
        registry.route("first")
    assert registry.topics() == ("both", "second")


def test_topics_come_from_the_newest_leader_and_their_version_does_not_fall_within_its_term() -> None:
    registry = Registry(CONFIG)
    registry.register(entry("n1", "follower", 5, topics=table(99, "followers_say")), 0, 2)
    assert registry.topics() == ()
    registry.register(entry("n0", "leader", 5, topics=table(3, "a", "b")), 0, 1)
    assert registry.topics() == ("a", "b")
    told = registry.register(entry("n0", "leader", 5, topics=table(2, "a")), 0, 1)
    assert names(told) == ["stale_topics_ignored"] and registry.topics() == ("a", "b")
    registry.register(entry("n0", "leader", 5), 0, 1)
    assert registry.topics() == ("a", "b"), "a leader that says nothing of topics changes none"
    assert names(registry.register(entry("n0", "leader", 5, topics=table(4, "b")), 0, 1)) == ["topics_changed"]
    registry.register(entry("n1", "leader", 6, topics=table(1, "c")), 0, 2)
    view = registry.group("c", GROUP)
    assert registry.topics() == ("c",) and view is not None and view.version == DataVersion(1, 1001)


def test_topics_outlive_their_leader_and_are_published_with_the_stand_in() -> None:
    registry = Registry(CONFIG)
    registry.register(entry("n0", "leader", 5, topics=table(1, "t")), 0, 1)
    registry.connection_lost(1, 0)
    registry.register(entry("n1", "follower", 5), 0, 2)
    assert [r.group.addresses for r in registry.route("t")] == [((0, address_of("n1")),)]


def test_a_recreated_group_begins_without_the_topics_of_the_old_one() -> None:
    registry = Registry(CONFIG)
    registry.register(entry("n0", "leader", 5, topics=table(9, "old")), 0, 1)
    told = registry.register(entry("n0", "leader", 1, incarnation=2, topics=table(1, "new")), 0, 2)
    assert names(told) == ["incarnation_changed", "broker_registered", "leader_published", "topics_changed"]
    assert registry.topics() == ("new",)


def test_role_and_broker_id_must_not_contradict_one_another() -> None:
    registry = Registry(CONFIG)
    assert why_refused(registry, entry("n0", "follower", 5)._replace(broker_id=0)) == "contradiction_refused"
    assert why_refused(registry, entry("n0", "leader", 5)._replace(broker_id=1)) == "contradiction_refused"


def test_a_group_name_lives_in_one_cluster_at_a_time() -> None:
    registry = Registry(CONFIG)
    registry.register(entry("n0", "leader", 5), 0, 1)
    assert why_refused(registry, entry("n1", "leader", 9, cluster="d")) == "group_name_refused"
    registry.register(entry("n0", "leader", 1, cluster="d"), 0, 2)  # the same address: the cluster was renamed
    assert [view.cluster for view in registry.cluster_info()] == ["d"]


def test_an_address_that_moves_to_another_group_leaves_the_first() -> None:
    registry = Registry(CONFIG)
    registry.register(entry("n0", "leader", 5), 0, 1)
    told = registry.register(entry("n7", "leader", 1, group="b1", address=address_of("n0")), 0, 2)
    assert names(told) == ["broker_lost", "leader_lost", "broker_registered", "leader_published"]
    assert [view.group for view in registry.cluster_info()] == ["b1"]


def test_every_table_has_a_bound_and_says_so() -> None:
    tiny = RegistryConfig(clusters_max=1, groups_max=2, nodes_per_group_max=2, topics_per_group_max=1)
    registry = Registry(tiny)
    registry.register(entry("n0", "leader", 5), 0, 1)
    registry.register(entry("n1", "follower", 5), 0, 2)
    assert why_refused(registry, entry("n2", "follower", 5)) == "node_refused"
    assert why_refused(registry, entry("n2", "leader", 6)) == "node_refused"
    assert why_refused(registry, entry("n0", "leader", 5, topics=table(1, "a", "b"))) == "topics_refused"
    assert why_refused(registry, entry("n0", "leader", 1, cluster="d", group="b5")) == "cluster_refused"
    registry.register(entry("n0", "leader", 5, group="b1"), 0, 3)
    assert why_refused(registry, entry("n0", "leader", 5, group="b2")) == "group_refused"


def test_room_is_made_by_forgetting_the_group_that_has_been_empty_longest() -> None:
    registry = Registry(RegistryConfig(groups_max=2))
    for number in (1, 2):
        registry.register(entry("n0", "leader", 5, group=f"b{number}"), 0, number)
    registry.connection_lost(2, 10)
    registry.connection_lost(1, 20)
    told = registry.register(entry("n0", "leader", 5, group="b3"), 30, 3)
    assert told[0] == Fact("group_forgotten", (("cluster", "c"), ("group", "b2"), ("term", 5), ("why", "room needed")))
    assert why_refused(registry, entry("n1", "leader", 4, group="b1")) == "stale_leader_refused"


def test_the_cluster_that_has_been_empty_longest_gives_way_to_a_new_one() -> None:
    registry = Registry(RegistryConfig(clusters_max=3))
    for number in (1, 2, 3):
        registry.register(entry("n0", "leader", 5, cluster=f"c{number}", group=f"b{number}"), 0, number)
    registry.connection_lost(2, 10)
    registry.connection_lost(1, 20)
    told = registry.register(entry("n0", "leader", 5, cluster="c4", group="b4"), 30, 4)
    assert names(told) == ["group_forgotten", "broker_registered", "leader_published"]
    assert dict(told[0].fields)["cluster"] == "c2"
    assert [view.cluster for view in registry.cluster_info()] == ["c3", "c4"]


def test_the_fence_is_remembered_for_the_stated_time_and_no_longer() -> None:
    config = RegistryConfig(expiry_ms=100, scan_ms=10, memory_ms=1000)
    registry = Registry(config)
    registry.register(entry("n0", "leader", 5), 0, 1)
    registry.expire(101)
    assert registry.expire(1101) == ()
    assert why_refused(registry, entry("n1", "leader", 4), 1101) == "stale_leader_refused"
    assert names(registry.expire(1102)) == ["group_forgotten"]
    registry.register(entry("n1", "leader", 4), 1102, 2)


def test_fences_of_past_incarnations_are_bounded() -> None:
    registry = Registry(CONFIG)
    for incarnation in range(1, INCARNATIONS_MAX + 2):
        registry.register(entry("n0", "leader", 5, incarnation=incarnation), 0, 1)
    assert why_refused(registry, entry("n0", "leader", 4, incarnation=2)) == "stale_leader_refused"
    registry.register(entry("n0", "leader", 4, incarnation=1), 0, 1)  # nine incarnations ago


@pytest.mark.parametrize(
    "nodes, ids",
    [
        (["n0", "n1", "n2"], [1, 2, 3]),
        (["n2", "n11"], [3, 12]),
        (["alpha", "beta"], [1, 2]),
        (["alpha", "n0"], [2, 1]),
        (["a1", "b1", "c1"], [2, 1, 3]),
        (["n007", "n7"], [8, 1]),
        (["n1234567890"], [1]),
    ],
)
def test_ids_follow_the_digits_else_the_order_of_names(nodes: list[str], ids: list[int]) -> None:
    assert [broker_ids(map(NodeId, nodes))[NodeId(node)] for node in nodes] == ids


def test_the_loss_of_a_node_does_not_renumber_the_others() -> None:
    registry = Registry(CONFIG)
    for number, node in enumerate(["alpha", "beta", "gamma", "delta"]):
        registry.register(entry(node, "leader" if node == "delta" else "follower", 5), 0, number)
    view = registry.group("c", GROUP)
    registry.connection_lost(0, 0)
    after = registry.group("c", GROUP)
    assert view is not None and after is not None
    assert set(after.addresses) == set(view.addresses) - {(1, address_of("alpha"))}


def test_ids_of_nodes_long_gone_are_given_to_others() -> None:
    registry = Registry(replace(CONFIG, nodes_per_group_max=2))
    for number, node in enumerate(["alpha", "beta", "gamma"]):
        registry.register(entry(node, "follower", 5), number, number)
        registry.connection_lost(number, number)
    registry.register(entry("beta", "leader", 6), 10, 7)
    registry.register(entry("gamma", "follower", 6), 10, 8)
    view = registry.group("c", GROUP)
    assert view is not None and view.addresses == ((0, address_of("beta")), (2, address_of("gamma")))


NODES = ("n0", "n1", "n2", "x")
EXPIRY_MS = 100


class FencingTwin(RuleBasedStateMachine):
    """The twin keeps every accepted leader for ever and searches the whole list."""

    @initialize()
    def start(self) -> None:
        self.registry = Registry(RegistryConfig(expiry_ms=EXPIRY_MS, scan_ms=10, memory_ms=10**9))
        self.now_ms = 0
        self.leaders: list[tuple[int, int, str]] = []  # (incarnation, term, node)
        self.live: dict[str, tuple[int, int, int]] = {}  # node -> (incarnation, term, heard)
        self.lead: str | None = None
        self.published_terms: dict[int, int] = {}

    def expected(self, node: str, role: str, term: int, incarnation: int) -> bool:
        if any(known[0] != incarnation for other, known in self.live.items() if other != node):
            return False
        if node in self.live and self.live[node][0] == incarnation and term < self.live[node][1]:
            return False
        return role != "leader" or not any(
            led == incarnation and (led_term > term or (led_term == term and led_node != node))
            for led, led_term, led_node in self.leaders
        )

    @rule(
        node=st.sampled_from(NODES), role=st.sampled_from(["leader", "leader", "follower", "learner"]),
        term=st.integers(0, 5), incarnation=st.sampled_from([1, 1, 1, 2]),
    )
    def register(self, node: str, role: str, term: int, incarnation: int) -> None:
        expected = self.expected(node, role, term, incarnation)
        before = self.registry.cluster_info()
        try:
            self.registry.register(
                entry(node, role, term, incarnation=incarnation), self.now_ms, NODES.index(node)
            )
        except RegistrationRefused:
            assert not expected
            assert self.registry.cluster_info() == before
            return
        assert expected
        self.live[node] = (incarnation, term, self.now_ms)
        if role == "leader":
            self.leaders.append((incarnation, term, node))
            self.lead = node
        elif self.lead == node:
            self.lead = None

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        self.forget(node := data.draw(st.sampled_from(sorted(self.live))))
        self.registry.connection_lost(NODES.index(node), self.now_ms)

    @rule(passed_ms=st.integers(1, EXPIRY_MS + 1))
    def wait(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        for node in [node for node, (_, _, heard) in self.live.items() if self.now_ms - heard > EXPIRY_MS]:
            self.forget(node)
        self.registry.expire(self.now_ms)

    def forget(self, node: str) -> None:
        del self.live[node]
        self.lead = None if self.lead == node else self.lead

    def view(self) -> GroupView | None:
        return self.registry.group("c", GROUP)

    @invariant()
    def the_published_leaders_term_never_falls(self) -> None:
        view = self.view()
        if view is not None and view.leader is not None:
            assert view.leader.term >= self.published_terms.get(view.incarnation, 0)
            self.published_terms[view.incarnation] = view.leader.term

    @invariant()
    def the_twin_agrees(self) -> None:
        view = self.view()
        assert (view is None) == (not self.live)
        if view is not None:
            assert (None if view.leader is None else view.leader.node) == self.lead
            assert sorted(address for _, address in view.addresses) == sorted(map(address_of, self.live))

    @invariant()
    def everyone_alive_has_one_id_and_somebody_has_0(self) -> None:
        view = self.view()
        if view is not None:
            ids = [number for number, _ in view.addresses]
            assert ids[0] == 0 and ids == sorted(set(ids))
            assert view.leader is None or view.addresses[0][1] == view.leader.address


TestFencing = FencingTwin.TestCase
TestFencing.settings = settings(max_examples=60, stateful_step_count=30, deadline=None, derandomize=True)
