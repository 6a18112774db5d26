"""Every property of the checker can fail: one hand-made bad history each, and a good one that passes."""

from dataclasses import replace

import pytest

from chaos.checker import Evidence, Final, Leadership, Stored, Verdict, Violation, acknowledged_messages, check
from chaos.history import History, Op, OpPhase


def send(number: int, time_us: int, phase: OpPhase, **fields) -> Op:
    return Op(time_us, "p1", number, phase, "send", 0, **fields)


def read(number: int, time_us: int, phase: OpPhase, **fields) -> Op:
    return Op(time_us, "r1", number, phase, "read", 0, **fields)


def good() -> Evidence:
    history = History([
        send(1, 10, OpPhase.INVOKE, labels=("a", "b"), crcs=(1, 2)),
        send(1, 20, OpPhase.OK, offset=0, position=48),
        read(1, 30, OpPhase.INVOKE),
        send(2, 31, OpPhase.INVOKE, labels=("c",), crcs=(3,)),
        read(1, 40, OpPhase.OK, offset=2, seen=((1, "b"),), node="n1"),
        send(2, 50, OpPhase.UNKNOWN),
        send(3, 60, OpPhase.INVOKE, labels=("d",), crcs=(4,)),
        send(3, 61, OpPhase.FAIL),
    ])  # fmt: skip
    stored = [Stored(0, 0, 48, "a", 1, 100), Stored(0, 1, 90, "b", 2, 100), Stored(0, 2, 200, "c", 3, 105)]
    finals = [Final(node, 300, 7, {"q": b"xy"}, {"q": b"xy"}) for node in ("n1", "n2")]
    return Evidence(history, stored, [Leadership(1, 1, "n1"), Leadership(2, 2, "n2")], finals)


def broken(evidence: Evidence) -> list[str]:
    verdict, violations = check(evidence)
    assert (verdict is Verdict.INVALID) == bool(violations)
    return sorted({violation.property for violation in violations})


def with_op(index: int, **changes) -> Evidence:
    evidence = good()
    evidence.history.ops[index] = evidence.history.ops[index]._replace(**changes)
    return evidence


def with_stored(index: int, **changes) -> Evidence:
    evidence = good()
    stored = list(evidence.stored)
    stored[index] = stored[index]._replace(**changes)
    return replace(evidence, stored=stored)


def test_a_good_history_is_valid() -> None:
    assert check(good()) == (Verdict.VALID, [])
    assert acknowledged_messages(good().history) == 2


def test_a_history_without_acknowledgement_shows_nothing() -> None:
    assert check(Evidence(History(), [])) == (Verdict.UNKNOWN, [])


@pytest.mark.parametrize("changes", [{"offset": 1}, {"position": 47}])
def test_p1_fails_when_an_acknowledged_message_is_elsewhere(changes) -> None:
    assert "P1" in broken(with_op(1, **changes))


def test_p1_fails_when_an_acknowledged_message_is_gone() -> None:
    evidence = good()
    assert "P1" in broken(replace(evidence, stored=evidence.stored[:1]))


def test_p1_and_p2_fail_when_stored_bytes_differ() -> None:
    assert broken(with_stored(0, crc=9)) == ["P1", "P2"]


def test_p2_fails_for_a_message_nobody_sent() -> None:
    assert broken(with_stored(2, label="x")) == ["P2"]


def test_p2_fails_for_a_message_in_another_queue() -> None:
    assert "P2" in broken(with_stored(2, queue=1, offset=0))


def test_p3_fails_for_two_leaders_of_a_term() -> None:
    assert broken(replace(good(), leaderships=[Leadership(1, 4, "n1"), Leadership(9, 4, "n2")])) == ["P3"]


def test_p5_fails_for_a_gap() -> None:
    assert broken(with_stored(2, offset=3)) == ["P5"]


def test_p5_fails_when_an_offset_changed_its_message() -> None:
    assert broken(with_op(4, seen=((1, "a"),))) == ["P5"]


def test_p6_fails_for_a_read_that_misses_an_earlier_acknowledgement() -> None:
    assert broken(with_op(4, offset=1)) == ["P6"]


def test_p6_fails_for_a_read_that_saw_what_never_committed() -> None:
    assert broken(with_op(4, offset=9)) == ["P6"]


def test_p6_fails_when_a_later_read_sees_less_than_an_earlier_one() -> None:
    evidence = good()
    evidence.history.ops[4] = evidence.history.ops[4]._replace(offset=3)
    evidence.history.ops += [read(2, 70, OpPhase.INVOKE), read(2, 71, OpPhase.OK, offset=2)]
    assert broken(evidence) == ["P6"]


def test_p7_fails_when_a_derived_file_differs_or_is_missing() -> None:
    for rebuilt in ({"q": b"xz"}, {}, {"q": b"xy", "r": b""}):
        assert broken(replace(good(), finals=[Final("n1", 300, 7, {"q": b"xy"}, rebuilt)])) == ["P7"]


def test_p8_fails_when_chains_differ_at_equal_commit() -> None:
    finals = [Final("n1", 300, 7, {}, {}), Final("n2", 300, 8, {}, {})]
    assert broken(replace(good(), finals=finals)) == ["P8"]
    finals[1] = finals[1]._replace(commit=301)
    assert broken(replace(good(), finals=finals)) == []


def test_p10_fails_for_a_message_stored_twice() -> None:
    evidence = good()
    evidence.stored = [*evidence.stored, Stored(0, 3, 400, "a", 1, 110)]
    assert broken(evidence) == ["P10"]


def test_p10_fails_when_a_retry_gets_another_answer() -> None:
    evidence = good()
    evidence.history.ops += [
        send(4, 70, OpPhase.INVOKE, labels=("a", "b"), crcs=(1, 2)),
        send(4, 71, OpPhase.OK, offset=0, position=49),
    ]
    assert broken(evidence) == ["P1", "P10"]


def test_p13_fails_when_store_time_goes_back() -> None:
    assert broken(with_stored(2, store_ms=99)) == ["P13"]


def test_p14_fails_when_a_refused_message_is_stored() -> None:
    evidence = good()
    evidence.stored = [*evidence.stored, Stored(0, 3, 400, "d", 4, 110)]
    assert broken(evidence) == ["P14"]


def test_what_was_watched_counts() -> None:
    evidence = good()
    evidence.watched = [Violation("P4", "bytes changed", 3, 5)]
    assert broken(evidence) == ["P4"]
