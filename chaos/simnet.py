"""A network that loses, delays, doubles, reorders and splits.

    send --> [lost?] --> arrival = now + delay, behind its predecessors --> deliver, if the link still is

Law: what is sent is a value: bytes are copied when they are sent, so nobody can change them under way. A link is
directed, a partition may be one-way, and a link that broke takes everything under way with it: a late message of a
dead connection would be believed. Both ends may hear of the break.
Does not know: what letters mean, nodes (it calls whoever is attached)."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from broker.ports import Letter
from chaos.sim import World
from dledger.messages import Message
from model.ids import NodeId

BREAK_HEARD_US = (200, 30_000)  # a reset is seen at once, or after a keep-alive


@dataclass
class Weather:
    """How bad every link is at the moment."""

    loss: float = 0.0
    double: float = 0.0
    reorder: float = 0.0
    delay_low_us: int = 100
    delay_high_us: int = 1_000
    tail: float = 0.01  # share of messages that take `tail_us` longer
    tail_us: int = 20_000


class Link:
    """One direction between two nodes."""

    __slots__ = ("arrival_us", "blocked", "life", "slow_us")

    def __init__(self) -> None:
        self.blocked = 0  # how many partitions cover it
        self.life = 0  # rises when the connection breaks: what was under way is gone
        self.arrival_us = 0  # of the last letter in order
        self.slow_us = 0


class SimNet:
    """All links of a group."""

    def __init__(self, world: World, weather: Weather) -> None:
        self.weather = weather
        self.sent = 0
        self.lost = 0
        self._world = world
        self._links: dict[tuple[str, str], Link] = {}
        self._receivers: dict[str, tuple[Callable[[Letter], None], Callable[[NodeId], None]]] = {}

    def attach(self, node: NodeId, deliver: Callable[[Letter], None], link_lost: Callable[[NodeId], None]) -> None:
        """Bring letters for `node` to `deliver`, and news of broken links to `link_lost`."""
        self._receivers[node] = (deliver, link_lost)

    def link(self, source: str, target: str) -> Link:
        """The link in that direction; it exists as soon as somebody asks."""
        found = self._links.get((source, target))
        if found is None:
            found = self._links[source, target] = Link()
        return found

    def send(self, letter: Letter) -> None:
        """The Peers port."""
        world, weather = self._world, self.weather
        link = self.link(letter.source, letter.target)
        self.sent += 1
        if letter.target not in self._receivers or link.blocked or world.random.random() < weather.loss:
            self.lost += 1
            return
        letter = freeze(letter)
        self._launch(letter, link)
        if weather.double and world.random.random() < weather.double:
            self._launch(letter, link)

    def _launch(self, letter: Letter, link: Link) -> None:
        world, weather = self._world, self.weather
        delay = link.slow_us + world.between(weather.delay_low_us, weather.delay_high_us)
        if world.random.random() < weather.tail:
            delay += world.between(0, weather.tail_us)
        arrival = world.now_us + delay
        if weather.reorder and world.random.random() < weather.reorder:
            arrival += world.between(0, 2 * weather.delay_high_us)
        else:
            arrival = link.arrival_us = max(arrival, link.arrival_us + 1)
        world.at(arrival, partial(self._arrive, letter, link, link.life))

    def _arrive(self, letter: Letter, link: Link, life: int) -> None:
        if link.life != life or link.blocked:
            self.lost += 1
            return
        self._receivers[letter.target][0](letter)

    # Faults.

    def cut(self, pairs: Iterable[tuple[str, str]]) -> Callable[[], None]:
        """Block these directed links; call what is returned to mend them again."""
        links = [self.link(source, target) for source, target in pairs]
        for link in links:
            link.blocked += 1

        def mend() -> None:
            for link in links:
                link.blocked = max(0, link.blocked - 1)

        return mend

    def break_link(self, one: NodeId, other: NodeId, *, heard: bool) -> None:
        """The connection between two nodes dies, with all it carries; `heard`: both ends notice."""
        for source, target in ((one, other), (other, one)):
            link = self.link(source, target)
            link.life += 1
            link.arrival_us = self._world.now_us
            if heard and target in self._receivers:
                self._world.after(self._world.between(*BREAK_HEARD_US), partial(self._receivers[target][1], source))

    def heal(self) -> None:
        """No partition, no slow link, no loss."""
        for link in self._links.values():
            link.blocked = link.slow_us = 0
        self.weather = Weather()


def freeze(letter: Letter) -> Letter:
    """The letter with its bytes copied."""
    body = letter.body
    if isinstance(body, Message) and body.payload is not None:
        payload = body.payload
        if isinstance(payload, list | tuple):
            payload = b"".join(payload)
        elif isinstance(payload, memoryview | bytearray):
            payload = bytes(payload)
        return letter._replace(body=body._replace(payload=payload))
    return letter
