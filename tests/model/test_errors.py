"""Errors say what happened, what it means and what to do; traits hold the rest."""

from model import errors
from model.errors import ConfigError, MQError, NotLeader, OutcomeUnknown, Refused, StartError


def every_class(base: type[MQError]) -> list[type[MQError]]:
    return [base, *(each for child in base.__subclasses__() for each in every_class(child))]


def test_a_message_has_three_parts() -> None:
    error = errors.StoreLocked("/data/n0/lock is held by process 17")
    assert str(error).split("; ")[0] == "/data/n0/lock is held by process 17"
    assert "another process is using this store" in str(error) and "use another directory" in str(error)
    assert str(MQError("a", means="b", do="c")) == "a; b; c"
    assert str(MQError("a")) == "a"


def test_not_leader_names_the_leader_when_it_is_known() -> None:
    assert str(NotLeader(leader="n2")).endswith("ask the leader, n2")
    assert NotLeader().leader is None and "name server" in str(NotLeader())
    assert NotLeader.retriable and NotLeader.stale_route


def test_an_unknown_outcome_is_never_a_refusal() -> None:
    assert not issubclass(OutcomeUnknown, Refused) and OutcomeUnknown.retriable


def test_no_error_uses_a_code_that_makes_clients_give_up_or_roll_back() -> None:
    assert {each.code for each in every_class(MQError)}.isdisjoint({0, 2, 10, 11, 12})


def test_whatever_prevents_a_start_exits_with_two() -> None:
    assert all(each.exit_code == 2 for each in every_class(StartError) if issubclass(each, StartError))
    assert str(ConfigError(["a", "b"])).splitlines()[1:] == ["  - a", "  - b"]
    assert "1 mistake;" in str(ConfigError(["a"]))
