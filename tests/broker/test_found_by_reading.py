"""Bugs that a reader found before any seed did; each test failed before its fix (docs/TRACK_RECORD.md)."""

from random import Random

from broker.fencing import Forming
from broker.ports import Hello, Outcome, SendRequest, SendResult
from broker.proposing import Proposer
from broker.state.commands import encode, topic_set
from broker.state.machine import StateMachine
from broker.syncing import Watermarker
from chaos.simdisk import SimDisk
from dledger.boot import Boot, CoreConfig
from dledger.core import RaftCore
from dledger.membership import Member, Membership
from dledger.ready import HardState
from model.batch import columns
from model.errors import MessageIllegal, NotLeader
from model.ids import Incarnation, LogPosition, NodeId, Term
from model.message import build_many
from store.hardstate import WatermarkFile, Watermarks
from store.preamble import pack_preamble, parse_preamble

CONFIG = CoreConfig(16384, 5, 25, 50, 5, 4096, 16384)


class _NoLog:
    def boundary(self, start: int, bytes_max: int) -> int:
        raise AssertionError("not asked for")


def lone_leader(term: int) -> RaftCore:
    """A group of one, leading in `term` with its no-op committed."""
    me = Membership((Member(NodeId("a"), Incarnation(1), voter=True),))
    zero = LogPosition(0)
    boot = Boot(HardState(Term(term - 1), None), zero, Term(0), (), zero, zero, ((LogPosition(-1), me),))
    core = RaftCore(NodeId("a"), Incarnation(1), CONFIG, boot, _NoLog(), Random(1))
    while not core.serving:
        core.tick()
        while (ready := core.ready()) is not None:
            if ready.mark is not None:
                core.synced(ready.mark)
    return core


def state_with_topic() -> StateMachine:
    state = StateMachine()
    empty = columns(b"")
    state.apply(0, 0, parse_preamble(pack_preamble(encode([topic_set("t", 1, 1, 6)]), (), *empty)))
    return state


def request(sequence: int) -> SendRequest:
    messages = build_many("t", [b"body"], queue=0)
    return SendRequest("t", 0, b"producer", sequence, messages, columns(messages))


def test_an_old_pending_send_that_was_overwritten_does_not_disturb_its_twin_of_a_later_term() -> None:
    state, proposer = state_with_topic(), Proposer(8192, bytes(8))
    first, second, third = list[SendResult](), list[SendResult](), list[SendResult]()
    old = lone_leader(1)
    proposer.watch(old, state, leads=True, own_term_applied=True, gone=NotLeader())
    proposer.send(request(0), first.append)
    assert proposer.propose(old, 1)
    proposer.watch(old, state, leads=False, own_term_applied=False, gone=NotLeader())  # stepped down, then truncated
    old_end = old.end
    new = lone_leader(3)
    assert new.propose(1000, None) is not None  # its log is longer already
    proposer.watch(new, state, leads=True, own_term_applied=True, gone=NotLeader())
    proposer.send(request(0), second.append)
    assert proposer.propose(new, 2)
    proposer.pending.complete(old_end, lambda position: 2)  # another leader's entry stands where the old one was
    assert first[0].outcome is Outcome.REFUSED and not second
    proposer.send(request(0), third.append)
    assert not proposer.propose(new, 3)  # it joins its twin; stored again it would be there twice
    proposer.pending.complete(new.end, lambda position: 3)
    assert second[0].outcome is Outcome.DONE and second == third


def test_a_queued_watermark_is_void_after_any_truncation() -> None:
    disk = SimDisk(Random(1))
    file = WatermarkFile(disk)
    marker = Watermarker(file, Watermarks(0, 0, 0))
    marker.set(Watermarks(64, 64, 1))
    late_job = marker.job(Watermarks(256, 64, 2))
    marker.lower(128, lambda: 3)  # above the saved mark, below the queued one
    late_job()
    assert file.load() == Watermarks(64, 64, 1)


def test_a_group_forms_only_when_all_voters_see_the_same_empty_voters() -> None:
    a, b, c = NodeId("a"), NodeId("b"), NodeId("c")
    lonely = Forming(c, Incarnation(3), (a, b, c))
    lonely.heard(a, Incarnation(1), Hello(None, (), answer_wanted=False))
    # a and the first b have formed a group since; b was wiped and says hello as somebody new
    lonely.heard(b, Incarnation(9), Hello(None, (), answer_wanted=False))
    assert lonely.genesis() is None
    everybody = ((a, Incarnation(1)), (b, Incarnation(9)), (c, Incarnation(3)))
    lonely.heard(b, Incarnation(9), Hello(None, everybody, answer_wanted=False))
    assert lonely.genesis() is None
    lonely.heard(a, Incarnation(1), Hello(None, everybody, answer_wanted=False))
    assert lonely.genesis() == everybody


def test_columns_that_contradict_the_messages_are_refused_before_they_are_in_the_log() -> None:
    proposer, answers = Proposer(8192, bytes(8)), list[SendResult]()
    good = request(0)
    for bad in (
        good._replace(columns=good.columns._replace(lengths=good.columns.lengths + 1)),
        good._replace(columns=good.columns._replace(tags=good.columns.tags[:0])),
        good._replace(producer=bytes(256)),
        good._replace(topic="u"),
        good._replace(messages=b"", columns=columns(b"")),
    ):
        proposer.send(bad, answers.append)
    assert len(answers) == 5 and all(isinstance(answer.error, MessageIllegal) for answer in answers)
