"""What a transcript may demand: outcomes, each in one line.

    check leader 2 | check no leader | check role 1 follower | check term 1 2 3 | check term 1 is 4
    check committed x on 1 2 | check uncommitted x on 1 | check log 1 == log 3 | check gone x on all
    check end 1 is 96 | check start 1 is 256 | check commit 1 is 96 | check durable 1 is 96 | check voters 1 is 1,2
    check read r waits|refused|answered | check fenced 3 | check unfenced 3 | check match 1 3 is 96
    check event rejected at most 3 | check event truncated at least 1 | check silent APPEND

Law: a check that does not hold raises, whoever runs it.
Does not know: how the group got there."""

from collections.abc import Callable, Sequence

from chaos.coredisk import Entry
from chaos.coregroup import CoreGroup
from dledger.core import RaftCore, Role
from dledger.messages import Kind
from model.ids import NodeId


class CheckFailed(AssertionError):
    """The outcome is not what the transcript demands."""


def check(group: CoreGroup, counts: dict[str, int], words: Sequence[str]) -> None:
    """Raise CheckFailed unless the demand holds."""
    topic, *rest = words
    if topic == "event":
        happened, bound = counts.get(rest[0], 0), int(rest[3])
        held, seen = (happened <= bound if rest[2] == "most" else happened >= bound), str(happened)
    else:
        held, seen = _CHECKS[topic](group, rest)
    if not held:
        raise CheckFailed(f"it is {seen}")


def _check_leader(group: CoreGroup, words: Sequence[str]) -> tuple[bool, str]:
    newest = _leaders(group)
    return newest == list(words), f"{newest or 'nobody'}"


def _check_no(group: CoreGroup, words: Sequence[str]) -> tuple[bool, str]:
    assert list(words) == ["leader"], words
    leaders = [name for name in group.running if group.core(name).role is Role.LEADER]
    return not leaders, str(leaders)


def _leaders(group: CoreGroup) -> list[str]:
    """The leader of the highest term: an older one may not know yet that it was deposed."""
    leaders = [(group.core(name).term, name) for name in group.running if group.core(name).role is Role.LEADER]
    return [max(leaders)[1]] if leaders else []


def _check_role(group: CoreGroup, words: Sequence[str]) -> tuple[bool, str]:
    role = group.core(NodeId(words[0])).role.value
    return role == words[1], role


def _check_log(group: CoreGroup, words: Sequence[str]) -> tuple[bool, str]:
    one, other = (group.nodes[NodeId(words[at])].disk for at in (0, 3))
    low = max(one.start, other.start)
    logs = [[entry for entry in disk.entries if entry.position >= low] for disk in (one, other)]
    return logs[0] == logs[1], f"{logs[0]} against {logs[1]}"


def _on(group: CoreGroup, words: Sequence[str]) -> tuple[str, list[NodeId]]:
    assert words[1] == "on", words
    return words[0], group.running if words[2] == "all" else [NodeId(word) for word in words[2:]]


def _check_committed(group: CoreGroup, words: Sequence[str]) -> tuple[bool, str]:
    payload, names = _on(group, words)
    ours: list[Entry] = [entry for entry, _ in group.oracle.committed if entry.payload == payload]
    if not ours:
        return False, "committed nowhere"
    entry = ours[0]
    missing = [
        name
        for name in names
        if group.core(name).commit < entry.end
        or (group.nodes[name].disk.start < entry.end and entry not in group.nodes[name].disk.entries)
    ]
    return not missing, f"missing on {missing}"


def _check_uncommitted(group: CoreGroup, words: Sequence[str]) -> tuple[bool, str]:
    payload, names = _on(group, words)
    having = [
        name
        for name in names
        for entry in group.nodes[name].disk.entries
        if entry.payload == payload and entry.end <= group.core(name).commit
    ]
    return not having, f"committed on {having}"


def _check_gone(group: CoreGroup, words: Sequence[str]) -> tuple[bool, str]:
    payload, names = _on(group, words)
    having = [name for name in names if any(entry.payload == payload for entry in group.nodes[name].disk.entries)]
    return not having, f"still on {having}"


def _check_read(group: CoreGroup, words: Sequence[str]) -> tuple[bool, str]:
    token, wanted = words
    state = "waits" if token not in group.reads else "refused" if group.reads[token] is None else "answered"
    return state == wanted, state


def _check_match(group: CoreGroup, words: Sequence[str]) -> tuple[bool, str]:
    match = group.core(NodeId(words[0])).progress[NodeId(words[1])].match
    return str(match) == words[3], str(match)


def _check_silent(group: CoreGroup, words: Sequence[str]) -> tuple[bool, str]:
    under_way = [message for message in group.wire if message.kind is Kind[words[0].upper()]]
    return not under_way, str(under_way)


def _value(of: Callable[[RaftCore], object]) -> Callable[[CoreGroup, Sequence[str]], tuple[bool, str]]:
    """check end 1 is 96, or: check end 1 2 3 (all equal)."""

    def compare(group: CoreGroup, words: Sequence[str]) -> tuple[bool, str]:
        if "is" in words:
            value = str(of(group.core(NodeId(words[0]))))
            return value == words[2], value
        values = [str(of(group.core(NodeId(name)))) for name in words]
        return len(set(values)) == 1, str(values)

    return compare


def _flag(of: Callable[[RaftCore], bool]) -> Callable[[CoreGroup, Sequence[str]], tuple[bool, str]]:
    def every(group: CoreGroup, words: Sequence[str]) -> tuple[bool, str]:
        values = [of(group.core(NodeId(name))) for name in words]
        return all(values), str(values)

    return every


_CHECKS: dict[str, Callable[[CoreGroup, Sequence[str]], tuple[bool, str]]] = {
    "leader": _check_leader,
    "no": _check_no,
    "role": _check_role,
    "log": _check_log,
    "committed": _check_committed,
    "uncommitted": _check_uncommitted,
    "gone": _check_gone,
    "read": _check_read,
    "match": _check_match,
    "silent": _check_silent,
    "term": _value(lambda core: core.term),
    "end": _value(lambda core: core.end),
    "start": _value(lambda core: core.epochs.start),
    "commit": _value(lambda core: core.commit),
    "durable": _value(lambda core: core.durable),
    "vote": _value(lambda core: core.vote),
    "voters": _value(lambda core: ",".join(sorted(core.membership.voters))),
    "fenced": _flag(lambda core: core.fenced),
    "unfenced": _flag(lambda core: not core.fenced),
    "serving": _flag(lambda core: core.serving),
}
