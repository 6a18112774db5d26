"""Judges a finished run: numbered properties over the history, the committed log and the final stores.

    P1  what was acknowledged is present, at the answered offset and position, with the sent bytes
    P2  nothing is invented: every stored message was sent
    P3  one leader a term
    P4  committed bytes never change                                    (watched while the run goes: oracles.py)
    P5  offsets of a queue have no gaps and never change their message
    P6  reads by read index are linearizable
    P7  derived files equal a rebuild from the log, byte for byte
    P8  the chain crc is equal where commit is equal
    P9  term, commit and applied never go back                          (oracles.py)
    P10 what was sent with an identity is stored once, whatever was retried
    P11 healed, the group leads, commits and converges within a bound
    P12 after a disk error a replica stops and acknowledges nothing     (simcluster.py)
    P13 store times of a queue never go back
    P14 refused means that nothing happened
    P15 no assertion fails and no exception escapes                     (simcluster.py)
    W1-W8 white-box oracles                                             (oracles.py)

Law: a checker reads values and changes nothing; each property is one function and can fail alone. The verdict has
three values, and `unknown` (nothing was acknowledged, so nothing was shown) never counts as valid.
Does not know: how the evidence was gathered, simulators."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from chaos.history import History, Op, OpPhase

FAULTS_SHOWN_MAX = 3  # of one property: the first ones explain, the rest repeat


class Verdict(StrEnum):
    """What a run shows."""

    VALID = "valid"
    INVALID = "invalid"
    UNKNOWN = "unknown"


class Violation(NamedTuple):
    """A broken property."""

    property: str
    sentence: str
    seed: int = -1
    time_us: int = -1

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.property} at {self.time_us / 1e6:.6f} s: {self.sentence}"


class Stored(NamedTuple):
    """One message of the committed log."""

    queue: int
    offset: int
    position: int
    label: str
    crc: int  # of the message with its stamped fields zeroed
    store_ms: int


class Leadership(NamedTuple):
    """Somebody became leader."""

    time_us: int
    term: int
    node: str


class Final(NamedTuple):
    """One node's store at the end."""

    node: str
    commit: int
    chain: int  # chain crc at `commit`
    derived: dict[str, bytes]  # name -> content
    rebuilt: dict[str, bytes]


@dataclass
class Evidence:
    """All that a run leaves behind."""

    history: History
    stored: Sequence[Stored]  # in the order of the log
    leaderships: Sequence[Leadership] = ()
    finals: Sequence[Final] = ()
    anonymous: frozenset[str] = frozenset()  # clients that send without an identity
    watched: Sequence[Violation] = field(default_factory=list)  # found while the run went


def check(evidence: Evidence) -> tuple[Verdict, list[Violation]]:
    """The verdict and the first few violations of each property."""
    violations = list(evidence.watched)
    for number, judge in PROPERTIES.items():
        for index, (time_us, sentence) in enumerate(judge(evidence)):
            if index >= FAULTS_SHOWN_MAX:
                break
            violations.append(Violation(number, sentence, time_us=time_us))
    if violations:
        return Verdict.INVALID, violations
    shown = any(op.phase is OpPhase.OK and op.what == "send" for op in evidence.history)
    return (Verdict.VALID if shown else Verdict.UNKNOWN), []


Fault = tuple[int, str]  # time, sentence


def acknowledged_is_present(evidence: Evidence) -> Iterator[Fault]:
    """P1."""
    at = {(s.queue, s.offset): s for s in evidence.stored}
    for invoke, end in evidence.history.pairs("send"):
        if end is None or end.phase is not OpPhase.OK:
            continue
        position = end.position
        for index, (label, crc) in enumerate(zip(invoke.labels, invoke.crcs, strict=True)):
            found = at.get((invoke.queue, end.offset + index))
            where = f"{label}, acknowledged at queue {invoke.queue} offset {end.offset + index}"
            if found is None:
                yield end.time_us, f"{where}, is not in the committed log"
            elif found.label != label:
                yield end.time_us, f"{where}: {found.label} is there"
            elif found.crc != crc:
                yield end.time_us, f"{where}, has other bytes than were sent"
            elif index == 0 and found.position != position:
                yield end.time_us, f"{where} and position {position}, is at position {found.position}"


def nothing_invented(evidence: Evidence) -> Iterator[Fault]:
    """P2."""
    sent: dict[str, tuple[int, int]] = {}
    for op in evidence.history:
        if op.what == "send" and op.phase is OpPhase.INVOKE:
            sent.update(zip(op.labels, ((op.queue, crc) for crc in op.crcs), strict=True))
    for message in evidence.stored:
        if message.label not in sent:
            yield -1, f"{message.label!r} at position {message.position} was never sent"
        elif sent[message.label] != (message.queue, message.crc):
            yield -1, f"{message.label} at position {message.position} is not what was sent to that queue"


def one_leader_a_term(evidence: Evidence) -> Iterator[Fault]:
    """P3."""
    leaders: dict[int, str] = {}
    for time_us, term, node in evidence.leaderships:
        if leaders.setdefault(term, node) != node:
            yield time_us, f"{node} and {leaders[term]} both became leader of term {term}"


def offsets_have_no_gaps(evidence: Evidence) -> Iterator[Fault]:
    """P5."""
    expected: dict[int, int] = {}
    labels: dict[tuple[int, int], str] = {}
    for message in evidence.stored:
        wanted = expected.get(message.queue, 0)
        if message.offset != wanted:
            yield -1, f"queue {message.queue} has offset {message.offset} where {wanted} should be ({message.label})"
        expected[message.queue] = message.offset + 1
        labels[message.queue, message.offset] = message.label
    for op in evidence.history:
        for offset, label in op.seen:
            there = labels.get((op.queue, offset))
            if there != label:
                yield op.time_us, f"{op.client} read {label} at queue {op.queue} offset {offset}; the log has {there}"


def reads_are_linearizable(evidence: Evidence) -> Iterator[Fault]:
    """P6: a read sees at least what was acknowledged, or read by anyone, before it began; and nothing uncommitted."""
    floor: dict[int, int] = {}  # queue -> the next offset that every later read must have reached
    sends = {(i.client, i.number): len(i.labels) for i, _ in evidence.history.pairs("send")}
    total: dict[int, int] = {}
    for message in evidence.stored:
        total[message.queue] = max(total.get(message.queue, 0), message.offset + 1)
    owed: dict[tuple[str, int], int] = {}
    for op in evidence.history:
        if op.what == "send" and op.phase is OpPhase.OK:
            floor[op.queue] = max(floor.get(op.queue, 0), op.offset + sends[op.client, op.number])
        elif op.what == "read" and op.phase is OpPhase.INVOKE:
            owed[op.client, op.number] = floor.get(op.queue, 0)
        elif op.what == "read" and op.phase is OpPhase.OK:
            wanted = owed[op.client, op.number]
            if op.offset < wanted:
                yield op.time_us, (
                    f"{op.client} read {op.offset} as next offset of queue {op.queue} at {op.node}; "
                    f"{wanted} was known before the read began"
                )
            if op.offset > total.get(op.queue, 0):
                yield op.time_us, f"{op.client} read next offset {op.offset} of queue {op.queue}, which never committed"
            floor[op.queue] = max(floor.get(op.queue, 0), op.offset)


def derived_equals_rebuild(evidence: Evidence) -> Iterator[Fault]:
    """P7."""
    for final in evidence.finals:
        for name in sorted(final.derived.keys() | final.rebuilt.keys()):
            mine, theirs = final.derived.get(name), final.rebuilt.get(name)
            if mine != theirs:
                sizes = [None if content is None else len(content) for content in (mine, theirs)]
                yield -1, f"{final.node}: {name} differs from a rebuild (sizes {sizes[0]} and {sizes[1]})"


def chains_are_equal(evidence: Evidence) -> Iterator[Fault]:
    """P8."""
    chains: dict[int, tuple[str, int]] = {}
    for final in evidence.finals:
        node, chain = chains.setdefault(final.commit, (final.node, final.chain))
        if chain != final.chain:
            yield -1, f"chain crc at {final.commit}: {chain:#x} at {node}, {final.chain:#x} at {final.node}"


def stored_once(evidence: Evidence) -> Iterator[Fault]:
    """P10."""
    seen: dict[str, int] = {}
    for message in evidence.stored:
        if message.label in seen:
            yield -1, f"{message.label} is stored at positions {seen[message.label]} and {message.position}"
        seen[message.label] = message.position
    answers: dict[str, tuple[int, int]] = {}
    starts = {(op.client, op.number): op for op in evidence.history if op.phase is OpPhase.INVOKE}
    for op in evidence.history:
        if op.what == "send" and op.phase is OpPhase.OK and op.client not in evidence.anonymous:
            label = starts[op.client, op.number].labels[0]
            first = answers.setdefault(label, (op.offset, op.position))
            if first != (op.offset, op.position):
                yield op.time_us, f"{label} was answered {first}, and a retry {(op.offset, op.position)}"


def store_times_never_go_back(evidence: Evidence) -> Iterator[Fault]:
    """P13."""
    latest: dict[int, int] = {}
    for message in evidence.stored:
        if message.store_ms < latest.get(message.queue, 0):
            yield -1, f"{message.label} at offset {message.offset} is stored before its predecessor"
        latest[message.queue] = message.store_ms


def refused_is_absent(evidence: Evidence) -> Iterator[Fault]:
    """P14."""
    stored = {message.label: message.position for message in evidence.stored}
    for invoke, end in evidence.history.pairs("send"):
        if end is not None and end.phase is OpPhase.FAIL:
            for label in invoke.labels:
                if label in stored:
                    yield end.time_us, f"{label} was refused, and is stored at position {stored[label]}"


PROPERTIES: dict[str, Callable[[Evidence], Iterable[Fault]]] = {
    "P1": acknowledged_is_present,
    "P2": nothing_invented,
    "P3": one_leader_a_term,
    "P5": offsets_have_no_gaps,
    "P6": reads_are_linearizable,
    "P7": derived_equals_rebuild,
    "P8": chains_are_equal,
    "P10": stored_once,
    "P13": store_times_never_go_back,
    "P14": refused_is_absent,
}


def acknowledged_messages(history: History) -> int:
    """How many messages were acknowledged, each once."""
    ends: list[tuple[Op, Op | None]] = history.pairs("send")
    return sum(len(invoke.labels) for invoke, end in ends if end is not None and end.phase is OpPhase.OK)
