"""Who waits for which entry: answered only by what was committed at its place, never by a guess."""

from functools import partial
from random import Random

import pytest

from broker.pending import Pending, PendingTable
from broker.ports import Outcome
from broker.writing import Writer
from tests.broker.group import Group


def waiting(table: PendingTable, position: int, end: int, term: int) -> list[bool]:
    heard: list[bool] = []
    pending = Pending(0, position, end, term)
    pending.replies.append(heard.append)
    table.add(pending)
    return heard


def test_an_entry_is_stored_when_its_own_term_is_committed_there_and_refused_when_another_is() -> None:
    table = PendingTable()
    ours, theirs = waiting(table, 100, 200, 3), waiting(table, 200, 300, 3)
    table.complete(300, lambda position: 3 if position == 100 else 4)
    assert (ours, theirs) == ([True], [False])
    assert len(table) == 0


def test_nothing_is_said_before_something_is_committed_at_its_place() -> None:
    table = PendingTable()
    heard = waiting(table, 100, 200, 3)
    table.complete(100, lambda position: 3)
    assert heard == []
    table.complete(200, lambda position: 3)
    assert heard == [True]


def test_a_shorter_entry_in_its_place_decides_at_once() -> None:
    table = PendingTable()
    heard = waiting(table, 100, 200, 3)
    table.complete(148, lambda position: 4)
    assert heard == [False]


def _note(order: list[int], end: int, stored: bool) -> None:
    order.append(end)


def test_answers_come_in_the_order_of_the_log_whatever_the_order_of_asking() -> None:
    table = PendingTable()
    order: list[int] = []
    ends = list(range(100, 2100, 100))
    Random(1).shuffle(ends)
    for end in ends:
        pending = Pending(0, end - 100, end, 1)
        pending.replies.append(partial(_note, order, end))
        table.add(pending)
    table.complete(5000, lambda position: 1)
    assert order == sorted(ends)


def test_a_duplicate_that_attached_hears_the_same_and_nobody_hears_twice() -> None:
    heard: list[tuple[str, bool]] = []
    pending = Pending(0, 0, 10, 1)
    pending.replies.append(lambda stored: heard.append(("first", stored)))
    pending.replies.append(lambda stored: heard.append(("again", stored)))
    pending.settle(True)
    pending.settle(False)
    assert heard == [("first", True), ("again", True)]


def test_what_a_hand_over_replaced_gets_no_answer_at_all() -> None:
    table = PendingTable()
    below, above = waiting(table, 100, 200, 3), waiting(table, 200, 300, 3)
    table.forget_below(200)
    table.complete(300, lambda position: 9)
    assert (below, above) == ([], [False])


# ---- the same, seen from a client ------------------------------------------------------------------------------------


def cut_off_leader() -> tuple[Group, str, list[object]]:
    """A leader writes an entry that reaches nobody, and a new leader is elected without it."""
    group = Group().formed()
    group.topic()
    old = group.lead()
    group.cut(old.node)
    asked = group.ask(old, bodies=[b"only here"])
    group.until(lambda: group.leader is not None and group.leader.node != old.node, what="a new leader")
    group.step(100)
    return group, old.node, asked


def test_a_written_send_whose_leader_was_deposed_is_not_refused_while_its_fate_is_open() -> None:
    group, old, asked = cut_off_leader()
    core = group[old].core
    assert core is not None and core.leader != old, "it has stepped down"
    assert asked == [], "its entry may still be committed elsewhere, as far as it can know"


def test_it_is_refused_once_something_else_is_committed_in_its_place() -> None:
    group, old, asked = cut_off_leader()
    group.heal()
    group.until(lambda: asked, what="an answer")
    assert [result.outcome for result in asked] == [Outcome.REFUSED]  # type: ignore[attr-defined]
    group.assert_equal()
    assert b"only here" not in group[old].log.read(0, group[old].log.end)


def test_control_a_table_that_believes_a_truncation_would_be_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    truncate = Writer.truncate
    group, old, asked = cut_off_leader()
    replica = group[old]
    commit = replica.applied

    def and_refuse(writer: Writer, to: int) -> None:
        truncate(writer, to)
        replica._proposer.pending.complete(1 << 40, lambda position: -1)

    monkeypatch.setattr(Writer, "truncate", and_refuse)
    group.heal()
    applied = replica.applied
    for _ in range(50):
        if asked:
            break
        applied = replica.applied
        group.step()
    assert asked and applied == commit, "told before anything was committed there"


def test_it_is_done_when_the_new_leader_had_it_all_along() -> None:
    group = Group().formed()
    group.topic()
    old = group.lead()
    others = [name for name in group.nodes if name != old.node]
    group.cut(others[0], old.node, one_way=True)  # the entry arrives, the acknowledgement does not
    group.cut(others[1], old.node)
    asked = group.ask(old, bodies=[b"on its way"], producer=b"p", sequence=0)
    group.settle()
    assert asked == []
    group.cut(old.node)
    group.until(lambda: group.leader is not None and group.leader.node == others[0], what="the one that has it leads")
    assert asked == [], "the old leader cannot know yet"
    group.heal()
    group.until(lambda: asked, what="an answer")
    assert asked.done and asked.only.offset == 0
    assert group.put(bodies=[b"on its way"], producer=b"p", sequence=0) == asked.only, "a retry gets the same answer"
