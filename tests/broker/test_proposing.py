"""From requests that wait to one entry, to answers that are true."""

from typing import Any, cast

import pytest

from broker import proposing
from broker.composing import Composition
from broker.leading import Leading
from broker.ports import Outcome, SendRequest
from broker.proposing import Order, Overwritten, Proposer
from broker.state.commands import topic_delete, topic_set
from dledger.core import RaftCore
from model.errors import MessageIllegal, NotLeader, Overloaded, SequenceGap, TopicMissing
from model.message import POSITION_AT
from store.entry import ENVELOPE_BYTES
from store.preamble import parse_preamble
from tests.broker.group import Asked, request
from tests.broker.test_state import Tape, with_topic

LIMIT = 4096


class StubCore:
    """Places entries one after another in term 1; the test says when they are committed."""

    def __init__(self, end: int) -> None:
        self.end = self.commit = end
        self.term = 1
        self.transferring = False
        self.proposed: list[tuple[int, Composition]] = []

    def propose(self, size: int, token: Composition) -> int:
        assert size == token.size <= LIMIT
        position, self.end = self.end, self.end + size
        self.proposed.append((position, token))
        return position


class Desk:
    """A proposer with a leader's view over a tape of applied entries."""

    def __init__(self, *, serving: bool = True) -> None:
        self.tape: Tape = with_topic()
        self.stub = StubCore(self.tape.end)
        self.core = cast(RaftCore, self.stub)
        self.proposer = Proposer(LIMIT, bytes(8))
        self.watch(applied=serving)

    def watch(self, *, leads: bool = True, applied: bool = True) -> None:
        self.proposer.watch(
            self.core, self.tape.state, leads=leads, own_term_applied=applied, gone=NotLeader(leader="n9")
        )

    def send(self, sent: SendRequest | None = None, **what: Any) -> Asked:
        asked = Asked()
        self.proposer.send(sent or request(**what), asked.append)
        return asked

    def order(self, command: Any, topic: str | None) -> Asked:
        asked = Asked()
        self.proposer.order(Order(command, topic, asked.append))
        return asked

    def propose(self) -> bool:
        return self.proposer.propose(self.core, 1_000)

    def commit(self, terms: int = 1) -> None:
        """Everything proposed is committed and applied; `terms`: the term that stands there."""
        for position, composition in self.stub.proposed:
            if terms == self.stub.term:
                preamble = parse_preamble(bytes(composition.body))
                self.tape.state.apply(position, position + composition.size, preamble)
            self.tape.end = position + composition.size
        self.stub.proposed, self.stub.commit = [], self.stub.end
        self.proposer.pending.complete(self.stub.end, lambda position: terms)


def test_all_that_waits_becomes_one_entry_and_each_hears_its_own_offset() -> None:
    desk = Desk()
    asked = [desk.send(bodies=[b"x"] * 2, queue=queue) for queue in (0, 1, 0)]
    assert desk.propose() and not desk.propose()
    (position, composition), = desk.stub.proposed
    assert len(parse_preamble(bytes(composition.body)).batches) == 3
    assert not any(asked), "nothing is said before it is committed"
    desk.commit()
    assert [answer.only.offset for answer in asked] == [0, 0, 2]
    places = [answer.only.position for answer in asked]
    assert places == sorted(places) and places[0] > position + ENVELOPE_BYTES
    body = bytes(composition.body)
    for place in places:
        at = place - position - ENVELOPE_BYTES
        says = body[at + POSITION_AT : at + POSITION_AT + 8]
        assert int.from_bytes(says, "big") == place, "a message says where it lies"


def test_nothing_is_proposed_before_the_own_term_is_applied() -> None:
    desk = Desk(serving=False)
    desk.send()
    assert not desk.propose()
    desk.watch()
    assert desk.propose()


def test_an_entry_is_never_larger_than_its_limit_and_the_rest_waits_in_order() -> None:
    desk = Desk()
    asked = [desk.send(bodies=[b"x" * 900]) for _ in range(9)]
    while desk.propose():
        pass
    assert len(desk.stub.proposed) == 3
    desk.commit()
    assert [answer.only.offset for answer in asked] == list(range(9))


def test_what_can_never_fit_is_refused_at_once_and_what_just_fits_is_not() -> None:
    desk = Desk()
    assert isinstance(desk.send(bodies=[b"x" * 4000]).only.error, MessageIllegal)
    size = 3500
    while not (refused := desk.send(bodies=[b"x" * size])):
        size += 1
    assert isinstance(refused.only.error, MessageIllegal)
    while desk.propose():
        pass
    assert all(composition.size <= LIMIT for _, composition in desk.stub.proposed)


def test_too_much_that_waits_is_refused_and_may_be_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposing, "WAITING_BYTES_MAX", 1000)
    desk = Desk()
    desk.send(bodies=[b"x" * 500])
    refused = desk.send(bodies=[b"x" * 500]).only
    assert isinstance(refused.error, Overloaded) and refused.error.retriable
    assert desk.propose()
    assert desk.send(bodies=[b"x" * 500]) == []


def test_too_much_that_is_not_committed_holds_the_next_entry_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proposing, "UNCOMMITTED_BYTES_MAX", 100)
    desk = Desk()
    desk.send()
    assert desk.propose()
    desk.send()
    assert not desk.propose()
    desk.commit()
    assert desk.propose()


def test_nothing_is_proposed_while_leadership_is_handed_over() -> None:
    desk = Desk()
    desk.send()
    desk.stub.transferring = True
    assert not desk.propose()
    desk.stub.transferring = False
    assert desk.propose()


def test_what_was_never_written_is_refused_when_leadership_goes_and_what_was_written_is_not() -> None:
    desk = Desk()
    written = desk.send(producer=b"p", sequence=0)
    assert desk.propose()
    waiting, ordered = desk.send(), desk.order(topic_set("u", 1, 1, 6), "u")
    desk.watch(leads=False)
    for answer in (waiting, ordered):
        assert answer.only.outcome is Outcome.REFUSED and answer.only.error.leader == "n9"
    assert written == [], "another leader may have it"
    desk.commit()
    assert written.done


def test_an_entry_that_was_replaced_is_refused_as_overwritten() -> None:
    desk = Desk()
    sent, ordered = desk.send(), desk.order(topic_set("u", 1, 1, 6), "u")
    assert desk.propose()
    desk.watch(leads=False)
    desk.commit(terms=2)
    for answer in (sent, ordered):
        assert answer.only.outcome is Outcome.REFUSED and isinstance(answer.only.error, Overwritten)


def test_a_duplicate_attaches_to_the_one_that_is_waiting_written_or_stored() -> None:
    desk = Desk()
    first, twin = (desk.send(producer=b"p", sequence=0) for _ in range(2))
    assert desk.propose()
    late = desk.send(producer=b"p", sequence=0)
    assert not desk.propose() and late == []
    desk.commit()
    again = desk.send(producer=b"p", sequence=0)
    assert not desk.propose()
    assert first.only == twin.only == late.only == again.only and first.done
    assert desk.tape.state.next_offsets[("t", 0)] == 1


def test_a_gap_and_a_missing_topic_are_refused_without_holding_up_the_rest() -> None:
    desk = Desk()
    gap, missing, good = desk.send(producer=b"p", sequence=3), desk.send(topic="nowhere"), desk.send()
    assert desk.propose()
    assert isinstance(gap.only.error, SequenceGap) and isinstance(missing.only.error, TopicMissing)
    desk.commit()
    assert good.done


def test_a_change_of_a_topic_is_a_barrier_for_that_topic_and_for_no_other() -> None:
    desk = Desk()
    made = desk.order(topic_set("u", 1, 1, 6), "u")
    early, other = desk.send(topic="u"), desk.send(topic="t")
    assert desk.propose() and not desk.propose()
    assert early == []
    desk.commit()
    assert made.done and other.done
    assert desk.propose()
    desk.commit()
    assert early.done and early.only.offset == 0


def test_sends_behind_a_deletion_are_judged_after_it() -> None:
    desk = Desk()
    before = desk.send(producer=b"p", sequence=0)
    assert desk.propose()
    gone = desk.order(topic_delete("t"), "t")
    after = desk.send(producer=b"p", sequence=1)
    assert desk.propose()
    desk.commit()
    desk.propose()
    assert before.done and gone.done
    assert isinstance(after.only.error, TopicMissing)


def test_control_without_the_barrier_a_send_would_be_judged_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Leading, "topic_changing", lambda leading, topic: None)
    desk = Desk()
    desk.order(topic_set("u", 1, 1, 6), "u")
    early = desk.send(topic="u")
    desk.propose()
    assert isinstance(early.only.error, TopicMissing)
