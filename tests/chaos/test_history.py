"""A history is replayable and keeps the three outcomes apart."""

import pytest

from chaos.history import History, Op, OpPhase, parse_history

OPS = [
    Op(1, "p1", 1, OpPhase.INVOKE, "send", 2, ("a", "b"), (7, 8)),
    Op(2, "r1", 1, OpPhase.INVOKE, "read", 2),
    Op(3, "p1", 1, OpPhase.OK, "send", 2, offset=0, position=48, node="n1"),
    Op(4, "r1", 1, OpPhase.OK, "read", 2, offset=2, seen=((1, "b"),), node="n2"),
    Op(5, "p1", 2, OpPhase.INVOKE, "send", 0, ("c",), (9,)),
]


def test_a_written_history_parses_back() -> None:
    assert parse_history(History(OPS).lines()).ops == OPS


def test_defaults_are_not_written() -> None:
    assert "position" not in next(History(OPS).lines())


def test_an_invoke_is_joined_to_its_end_by_client_and_number() -> None:
    assert History(OPS).pairs("send") == [(OPS[0], OPS[2]), (OPS[4], None)]
    assert History(OPS).pairs("read") == [(OPS[1], OPS[3])]


def test_time_never_goes_back() -> None:
    history = History(OPS)
    with pytest.raises(AssertionError):
        history.add(OPS[0])
