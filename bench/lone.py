"""A group of one: a production Replica on a real directory, driven by hand.

    send, create_topic ---> turn ---> jobs of its lanes ---> turn ... until nothing is left to do

Law: production classes only; lanes run their jobs between turns, in order, so a run depends on nothing but its calls.
Does not know: what is measured or tested on it.
"""

from collections import deque
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from broker.config import BrokerConfig, NodeConfig
from broker.ports import Letter, Outcome, SendRequest, SendResult
from broker.replica import Replica
from model.batch import columns
from model.message import build_many
from store.config import StoreConfig
from store.realdisk import RealDisk

T = TypeVar("T")
START_MS = 1_700_000_000_000
TURNS_MAX = 10_000  # more without rest would be a loop that never ends


class HandLane:
    """Jobs wait here until `run`."""

    def __init__(self) -> None:
        self._jobs: deque[tuple[Callable[[], Any], Callable[[Any], None]]] = deque()

    def submit(self, job: Callable[[], T], done: Callable[[T | Exception], None]) -> None:
        self._jobs.append((job, done))

    def run(self) -> bool:
        """Run what waits; False when there was nothing."""
        if not self._jobs:
            return False
        job, done = self._jobs.popleft()
        try:
            result = job()
        except Exception as error:  # a lane hands every failure to `done`, whatever it is
            done(error)
        else:
            done(result)
        return True


class HandClock:
    """Time that moves when it is told to."""

    def __init__(self) -> None:
        self.ms = START_MS

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms


class NoPeers:
    """A group of one has nobody to talk to."""

    def send(self, letter: Letter) -> None:
        """Lost."""


def lone_config(directory: Path, store: StoreConfig, node: str = "n1", cluster: str = "c1") -> BrokerConfig:
    """The configuration of a node that is its own majority."""
    return BrokerConfig(
        node=NodeConfig(cluster=cluster, group="g1", node=node, voters=(node,), directory=str(directory)), store=store
    )


def request(topic: str, queue: int, bodies: list[bytes], properties: bytes | list[bytes] = b"") -> SendRequest:
    """A sub-batch as a client hands it over, columns included."""
    messages = build_many(topic, bodies, properties, queue=queue)
    return SendRequest(topic, queue, b"", -1, messages, columns(messages))


class Lone:
    """One node that leads itself."""

    def __init__(self, config: BrokerConfig) -> None:
        self.config = config
        self.clock = HandClock()
        self.sync_lane, self.background = HandLane(), HandLane()
        self.disk = RealDisk(Path(config.node.directory))
        self.replica = Replica(
            config, self.disk, self.sync_lane, self.background, NoPeers(), self.clock, Random(1)
        )

    def start(self) -> "Lone":
        """Open the directory and become the leader."""
        self.replica.start()
        for _ in range(TURNS_MAX):
            if self.replica.core is not None and self.replica.core.serving:
                break
            self.tick()
        return self

    def tick(self) -> None:
        """One tick passes."""
        self.clock.ms += self.config.raft.tick_ms
        self.replica.tick()
        self.settle()

    def settle(self) -> None:
        """Turns and jobs until nothing is left to do."""
        for _ in range(TURNS_MAX):
            more = self.replica.turn()
            jobs = self.sync_lane.run() | self.background.run()
            if not more and not jobs:
                return
        raise AssertionError("the replica does not come to rest")

    def create_topic(self, name: str, queues: int) -> None:
        self._answered(lambda reply: self.replica.create_topic(name, queues, reply))

    def delete_topic(self, name: str) -> None:
        self._answered(lambda reply: self.replica.delete_topic(name, reply))

    def send(self, *requests: SendRequest) -> None:
        """Store these sub-batches; what arrives together becomes one entry."""
        answers: list[SendResult] = []
        for each in requests:
            self.replica.send(each, answers.append)
        self.settle()
        _all_done(answers, len(requests))

    def stop(self) -> None:
        """A clean end."""
        self.replica.stop()

    def kill(self) -> None:
        """The process ends here: nothing is written any more, the lock goes with it."""
        self.replica.log.close()
        self.replica.derived.close()
        self.disk.unlock()

    def _answered(self, ask: Callable[[Callable[[SendResult], None]], None]) -> None:
        answers: list[SendResult] = []
        ask(answers.append)
        self.settle()
        _all_done(answers, 1)


def _all_done(answers: list[SendResult], count: int) -> None:
    wrong = [answer for answer in answers if answer.outcome is not Outcome.DONE]
    assert len(answers) == count and not wrong, wrong or f"{len(answers)} answers to {count} requests"
