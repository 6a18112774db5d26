"""The leader's own view: what is judged on applied state plus what is pending, and how offsets are given."""

from typing import Any

import pytest

from broker.leading import Leading, Wait
from broker.pending import Pending
from broker.state.commands import topic_delete, topic_set
from broker.state.dedup import ANSWERS_KEPT, Answer
from model.errors import MessageIllegal, SequenceGap, TopicMissing
from store.preamble import SubBatch
from tests.broker.group import request
from tests.broker.test_state import Tape, with_topic


class Leader:
    """A tape of applied entries and a leader's view of it."""

    def __init__(self, tape: Tape | None = None) -> None:
        self.tape = tape or with_topic()
        self.view = Leading(self.tape.state, term=1)

    def propose(self, sequence: int, *, queue: int = 0, count: int = 1, producer: bytes = b"p") -> tuple[Any, SubBatch]:
        sent = request("t", queue, [b"x"] * count, producer, sequence)
        assert self.view.judge(sent) is None
        batch = self.view.number(sent)
        self.view.proposed(sent, Pending(batch.first_offset))
        return sent, batch

    def apply(self, sent: Any, batch: SubBatch) -> None:
        self.tape.put(batch)
        self.view.applied(sent)

    def judge(self, sequence: int, *, producer: bytes = b"p") -> Any:
        return self.view.judge(request("t", 0, [b"x"], producer, sequence))


def test_offsets_go_on_from_applied_state_and_over_what_is_pending() -> None:
    leader = Leader()
    leader.tape.put(SubBatch("t", 0, 5, 0))
    first, second = leader.propose(0, count=3)[1], leader.propose(1, count=2)[1]
    other = leader.propose(0, queue=1)[1]
    assert (first.first_offset, second.first_offset, other.first_offset) == (5, 8, 0)


def test_a_duplicate_of_a_pending_send_attaches_to_it() -> None:
    leader = Leader()
    leader.propose(0)
    leader.propose(1)
    for sequence in (0, 1):
        joined = leader.judge(sequence)
        assert isinstance(joined, Pending) and joined.offset == sequence


def test_a_duplicate_of_an_applied_send_gets_its_answer_also_while_later_ones_are_pending() -> None:
    leader = Leader()
    leader.apply(*leader.propose(0))
    leader.propose(1)
    answer = leader.judge(0)
    assert isinstance(answer, Answer) and (answer.sequence, answer.offset) == (0, 0)


@pytest.mark.parametrize("pending", [0, 1, 3])
def test_a_gap_is_refused_on_applied_state_plus_what_is_pending(pending: int) -> None:
    leader = Leader()
    leader.apply(*leader.propose(0))
    for sequence in range(1, pending + 1):
        leader.propose(sequence)
    refused = leader.judge(pending + 2)
    assert isinstance(refused, SequenceGap) and f"is {pending + 1}, not {pending + 2}" in str(refused)
    assert leader.judge(pending + 1) is None


def test_control_a_view_of_applied_state_alone_would_refuse_the_next_of_a_pipeline() -> None:
    leader = Leader()
    leader.propose(0)
    assert leader.judge(1) is None
    assert isinstance(Leading(leader.tape.state, 1).judge(request("t", 0, [b"x"], b"p", 1)), SequenceGap)


def test_a_send_whose_answer_is_no_longer_kept_is_done_without_a_place() -> None:
    leader = Leader()
    for sequence in range(ANSWERS_KEPT + 1):
        leader.apply(*leader.propose(sequence))
    assert leader.judge(0) == Answer(0, -1, -1)


def test_keyed_sends_attach_while_pending_and_are_answered_afterwards() -> None:
    leader = Leader()
    sent, batch = leader.propose(-1, producer=b"key")
    assert isinstance(leader.judge(-1, producer=b"key"), Pending)
    leader.apply(sent, batch)
    assert isinstance(leader.judge(-1, producer=b"key"), Answer)


def test_a_send_without_identity_is_always_new() -> None:
    leader = Leader()
    leader.propose(-1, producer=b"")
    assert leader.judge(-1, producer=b"") is None


def test_a_missing_topic_and_a_missing_queue_are_refused() -> None:
    view = Leader().view
    assert isinstance(view.judge(request("nowhere")), TopicMissing)
    for queue in (2, -1):
        assert isinstance(view.judge(request("t", 1)._replace(queue=queue)), MessageIllegal)


def test_sends_wait_while_their_topic_changes_also_when_it_changes_twice() -> None:
    leader = Leader()
    leader.view.topic_changing("t")
    leader.view.topic_changing("t")
    assert isinstance(leader.judge(0), Wait)
    leader.view.topic_changed("t")
    assert isinstance(leader.judge(0), Wait)
    leader.view.topic_changed("t")
    assert leader.judge(0) is None


def test_a_topic_that_was_deleted_and_made_again_begins_at_offset_0_and_sequence_0() -> None:
    leader = Leader()
    leader.apply(*leader.propose(0, count=4))
    leader.view.topic_changing("t")
    leader.tape.put(control=(topic_delete("t"),))
    leader.tape.put(control=(topic_set("t", 2, 2, 6),))
    leader.view.topic_changed("t")
    assert leader.propose(0)[1].first_offset == 0
