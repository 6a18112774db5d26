"""What the simulated network may do to a letter, and what it may not."""

from broker.ports import Hello, Letter
from chaos.sim import World
from chaos.simnet import SimNet, Weather, freeze
from dledger.messages import Kind, Message
from model.ids import Incarnation, NodeId, Term

ONE, TWO = NodeId("n1"), NodeId("n2")


class Ends:
    """Two nodes that write down what reaches them."""

    def __init__(self, weather: Weather, seed: int = 1) -> None:
        self.world = World(seed)
        self.net = SimNet(self.world, weather)
        self.got: list[int] = []
        self.broken: list[tuple[str, str]] = []
        for node in (ONE, TWO):
            self.net.attach(node, lambda letter: self.got.append(letter.incarnation), self._lost(node))

    def _lost(self, node: NodeId):
        return lambda peer: self.broken.append((node, peer))

    def send(self, count: int, source: NodeId = ONE, target: NodeId = TWO) -> None:
        for number in range(count):
            self.net.send(Letter(source, target, Incarnation(number), Hello(None, (), False)))

    def later(self) -> list[int]:
        self.world.run_until(self.world.now_us + 10_000_000)
        return self.got


def test_fair_weather_keeps_everything_in_order() -> None:
    ends = Ends(Weather())
    ends.send(200)
    assert ends.later() == list(range(200))


def test_loss_loses_about_its_share() -> None:
    ends = Ends(Weather(loss=0.5))
    ends.send(400)
    assert 120 < len(ends.later()) < 280


def test_doubled_letters_arrive_twice() -> None:
    ends = Ends(Weather(double=1.0))
    ends.send(5)
    assert sorted(ends.later()) == sorted(2 * list(range(5)))


def test_reordering_changes_the_order_and_loses_nothing() -> None:
    ends = Ends(Weather(reorder=0.5))
    ends.send(100)
    got = ends.later()
    assert got != sorted(got)
    assert sorted(got) == list(range(100))


def test_a_one_way_cut_leaves_the_other_direction_alone() -> None:
    ends = Ends(Weather())
    mend = ends.net.cut([(ONE, TWO)])
    ends.send(3)
    ends.send(2, TWO, ONE)
    assert ends.later() == [0, 1]
    mend()
    ends.send(1)
    assert ends.later() == [0, 1, 0]


def test_two_partitions_over_one_link_are_mended_one_by_one() -> None:
    ends = Ends(Weather())
    mend, mend_second = ends.net.cut([(ONE, TWO)]), ends.net.cut([(ONE, TWO)])
    mend()
    ends.send(1)
    assert ends.later() == []
    mend_second()
    ends.send(1)
    assert ends.later() == [0]


def test_a_broken_link_takes_what_is_under_way_and_both_ends_hear_of_it() -> None:
    ends = Ends(Weather())
    ends.send(3)
    ends.net.break_link(ONE, TWO, heard=True)
    assert ends.later() == []
    assert sorted(ends.broken) == [(ONE, TWO), (TWO, ONE)]
    ends.send(1)
    assert ends.later() == [0]


def test_what_starts_to_be_cut_under_way_does_not_arrive() -> None:
    ends = Ends(Weather())
    ends.send(1)
    ends.net.cut([(ONE, TWO)])
    assert ends.later() == []


def test_bytes_are_copied_when_they_are_sent() -> None:
    raw = bytearray(b"abcdef")
    message = Message(Kind.APPEND, ONE, TWO, Term(1), payload=[memoryview(raw)[:3], memoryview(raw)[3:]])
    frozen = freeze(Letter(ONE, TWO, Incarnation(1), message))
    raw[0] = 0
    assert isinstance(frozen.body, Message)
    assert frozen.body.payload == b"abcdef"
