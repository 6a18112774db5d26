"""Bytes of old segments on their way out: verified beside the loop, and what went away meanwhile is no damage."""

from random import Random
from typing import Any

import pytest

from broker.mail import Poster
from broker.ports import Letter
from chaos.simdisk import SimDisk
from dledger.messages import Kind, Message
from model.ids import Incarnation, LogPosition, NodeId, Term
from store.commitlog import CommitLog
from store.entry import EntryKind
from store.scan import Damage
from store.segment import segment_name

SIZE = 4096


class Held:
    """A lane whose job runs when the test says so."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Any, Any]] = []

    def submit(self, job: Any, done: Any) -> None:
        self.jobs.append((job, done))

    def run(self) -> None:
        job, done = self.jobs.pop(0)
        done(job())


class Sent(list[Letter]):
    def send(self, letter: Letter) -> None:
        self.append(letter)


class Case:
    def __init__(self) -> None:
        self.disk = SimDisk(Random(1))
        self.log = CommitLog.open_at(self.disk, SIZE, 0, 0, 0, 0)
        for _ in range(5):
            self.log.append_entry(1, 1, EntryKind.NOOP, bytes(1952))
            self.log.append_entry(1, 1, EntryKind.BLANK, bytes(SIZE - 2000 - 48))
        self.disk.sync(self.log.begin_sync())
        self.lane, self.sent, self.damage = Held(), Sent(), list[Damage]()
        self.poster = Poster(
            NodeId("a"), Incarnation(1), self.sent, self.lane, self.log, lambda start: pytest.fail("no hand-over"),
            lambda function: function, self.damage.append,
        )  # fmt: skip
        self.poster.post(
            Message(Kind.APPEND, NodeId("a"), NodeId("b"), Term(1), position=LogPosition(0), end=LogPosition(SIZE))
        )
        assert not self.sent and len(self.lane.jobs) == 1, "old bytes are read beside the loop"


def test_old_bytes_are_sent_when_they_verify() -> None:
    case = Case()
    case.lane.run()
    (letter,) = case.sent
    assert isinstance(letter.body, Message) and isinstance(letter.body.payload, list)
    assert len(letter.body.payload[0]) == SIZE and not case.damage


def test_old_bytes_that_do_not_verify_are_damage_and_are_not_sent() -> None:
    case = Case()
    case.disk.flip_bit(segment_name(0), 100, 3)
    case.lane.run()
    assert [damage.position for damage in case.damage] == [0] and not case.sent


def test_bytes_that_were_dropped_or_cut_meanwhile_are_no_damage() -> None:
    dropped, cut = Case(), Case()
    dropped.log.drop_head(2 * SIZE)
    cut.log.truncate(2000)
    for case in (dropped, cut):
        case.lane.run()
        assert not case.sent and not case.damage
