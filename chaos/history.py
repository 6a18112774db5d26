"""What clients did and what they were told: invoke, then ok, fail or unknown; one line each.

    {"time_us": 2130511, "client": "p1", "number": 17, "phase": "invoke", "what": "send", "queue": 2, "labels": [...]}

Law: a history only records. `fail` means "refused: nothing happened"; whatever was not answered is `unknown`, and the
two are never confused. A written history parses back into the same history, so a judgement can be repeated.
Does not know: what is right."""

import json
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import NamedTuple


class OpPhase(StrEnum):
    """The life of an operation."""

    INVOKE = "invoke"
    OK = "ok"
    FAIL = "fail"
    UNKNOWN = "unknown"


class Op(NamedTuple):
    """One line. A send names its messages by label and crc; a read names the next offset it saw and some messages."""

    time_us: int
    client: str
    number: int  # of the operation, per client: joins an end to its invoke
    phase: OpPhase
    what: str  # send, read
    queue: int
    labels: tuple[str, ...] = ()
    crcs: tuple[int, ...] = ()  # of each message as sent, stamped fields zeroed
    offset: int = -1  # send: offset of the first message; read: the next offset of the queue, as seen
    position: int = -1  # send: commitlog position of the first message
    seen: tuple[tuple[int, str], ...] = ()  # read: (offset, label)
    node: str = ""  # who answered


class History:
    """The operations of a run in the order of time."""

    def __init__(self, ops: Iterable[Op] = ()) -> None:
        self.ops: list[Op] = list(ops)

    def add(self, op: Op) -> None:
        """Time never goes back along a history."""
        assert not self.ops or op.time_us >= self.ops[-1].time_us, (op, self.ops[-1])
        self.ops.append(op)

    def __iter__(self) -> Iterator[Op]:
        return iter(self.ops)

    def pairs(self, what: str) -> list[tuple[Op, Op | None]]:
        """Each invoke with its end; None while it has none (which means the same as unknown)."""
        ends = {(op.client, op.number): op for op in self.ops if op.phase is not OpPhase.INVOKE}
        starts = (op for op in self.ops if op.phase is OpPhase.INVOKE and op.what == what)
        return [(op, ends.get((op.client, op.number))) for op in starts]

    def lines(self) -> Iterator[str]:
        """One JSON object a line; fields at their default are left out."""
        defaults = Op._field_defaults
        for op in self.ops:
            fields = {n: v for n, v in op._asdict().items() if n not in defaults or v != defaults[n]}
            yield json.dumps(fields)


def parse_history(lines: Iterable[str]) -> History:
    """The history that `History.lines` wrote."""
    ops = []
    for line in lines:
        raw = json.loads(line)
        raw["phase"] = OpPhase(raw["phase"])
        for name in ("labels", "crcs"):
            raw[name] = tuple(raw.get(name, ()))
        raw["seen"] = tuple((offset, label) for offset, label in raw.get("seen", ()))
        ops.append(Op(**raw))
    return History(ops)
