"""Every byte of every file of one node: changed, and the file cut there. Recovery never lies.

The node meets two healthy peers and ends byte-identical to them, or refuses with one clear sentence (a single damage
never needs that: every record has a mirror, and the log has peers). The controls plant recoveries that lie."""

from functools import cache
from typing import Any

import pytest

from broker import housekeeping, replica
from broker.auditing import Auditor
from broker.opening import Opened, Records, Scanned, open_log, scan_log
from store.entry import EntryKind, Walk, peek
from store.hardstate import HardState, HardStateFile
from store.scrub import ScrubStep
from tests.broker.sweep import Base, Case, Lie, Sweep, build, cases

RECORDS = ("config/", "checkpoint")
WHOLE_EVERY = 16  # of the records' cases, one in so many takes the long way too


@cache
def base(clean: bool) -> Base:
    return build(clean=clean)


def sweep(clean: bool, flips: tuple[int, ...], *, step: int, cut: bool) -> Sweep:
    """Run all cases; the first Lie ends it."""
    sweeping = Sweep(base(clean))
    for number, case in enumerate(cases(sweeping.files, flips, step=step, cut=cut)):
        if case.name.startswith(RECORDS) and number % WHOLE_EVERY:
            sweeping.run_record(case)
        else:
            sweeping.run(case)
    assert sweeping.verdicts["refused"] == 0, sweeping.verdicts
    return sweeping


def test_the_base_has_what_a_log_can_have() -> None:
    sweeping = Sweep(base(True))
    names = sorted(sweeping.files)
    segments = [name for name in names if name.startswith("commitlog/") and sweeping.files[name].strip(b"\0")]
    assert len(segments) == 2
    assert {name.split("/")[0] for name in names} == {"checkpoint", "checkpoint.1", "commitlog", "config",
                                                      "consumequeue", "index"}  # fmt: skip
    walk = Walk(0, 0)
    log = b"".join(sweeping.files[name] for name in segments)[: sweeping.acknowledged]
    assert walk.consume(log, 0) == len(log)
    assert len(walk.runs) >= 3 and len(walk.memberships) == 2, (walk.runs, walk.memberships)
    kinds, at = set(), 0
    while at < len(log):
        header = peek(log, at, at)
        kinds.add(header.kind)
        at = header.end
    assert kinds == set(EntryKind)


@pytest.mark.parametrize("clean", [True, False], ids=["after a clean stop", "after a power cut"])
def test_a_sample_of_all_damage_is_repaired_or_harmless(clean: bool) -> None:
    verdicts = sweep(clean, (1,), step=61, cut=True).verdicts
    assert verdicts["repaired"] > 100 and verdicts["harmless"] > 50, verdicts


@pytest.mark.slow
@pytest.mark.parametrize("how", ["flipped", "cut"])
def test_every_byte_of_every_file_flipped_or_cut_is_repaired_or_harmless(how: str) -> None:
    verdicts = sweep(True, (1,) if how == "flipped" else (), step=1, cut=how == "cut").verdicts
    assert verdicts.total() > 8000, verdicts
    assert verdicts["repaired"] > 4000, verdicts


@pytest.mark.slow
@pytest.mark.parametrize("clean", [True, False], ids=["after a clean stop", "after a power cut"])
def test_bytes_turned_over_whole_are_repaired_or_harmless(clean: bool) -> None:
    verdicts = sweep(clean, (0xFF, 0x80), step=13, cut=not clean).verdicts
    assert verdicts.total() > 1000, verdicts


# ---- controls: recoveries that lie ---------------------------------------------------------------------------------


def lies(sweeping: Sweep, step: int, *prefixes: str) -> list[str]:
    found = []
    for case in cases(sweeping.files, step=step):
        if case.name.startswith(prefixes):
            try:
                sweeping.run(case)
            except Lie as lie:
                found.append(str(lie))
    return found


def test_control_a_recovery_that_takes_damage_for_a_torn_tail_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    sweeping = Sweep(base(False))

    def cut_anyway(disk: Any, config: Any, records: Records, *, whole: bool) -> Scanned:
        found = scan_log(disk, config, records, whole=whole)
        return found._replace(result=found.result._replace(damage=None))

    def forget(disk: Any, config: Any, records: Records, scanned: Scanned) -> Opened:
        marks = records.marks._replace(durable=min(records.marks.durable, scanned.result.end))
        return open_log(disk, config, records._replace(marks=marks), scanned)

    monkeypatch.setattr(replica, "scan_log", cut_anyway)
    assert not lies(sweeping, 101, "commitlog/00000000000000004096"), "the watermark alone fences the node"
    monkeypatch.setattr(replica, "open_log", forget)
    found = lies(sweeping, 101, "commitlog/00000000000000004096")
    assert len(found) > 8 and all("takes part with" in lie for lie in found), found


def test_control_a_node_that_never_scrubs_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    sweeping = Sweep(base(True))
    monkeypatch.setattr(housekeeping, "scrub", lambda log, *rest: ScrubStep(log.start, None, None))
    assert len(lies(sweeping, 997, "commitlog/00000000000000000000")) > 4


def test_control_a_node_that_never_audits_its_queues_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    sweeping = Sweep(base(True))
    monkeypatch.setattr(Auditor, "compare", lambda *arguments: None)
    found = lies(sweeping, 17, "consumequeue/", "index/")
    assert any("consumequeue" in lie for lie in found) and any("index" in lie for lie in found)


def test_control_a_vote_without_a_mirror_would_need_a_person(monkeypatch: pytest.MonkeyPatch) -> None:
    sweeping = Sweep(base(True))
    monkeypatch.setattr(HardStateFile, "NAMES", ("config/hardstate.0", "config/hardstate.x"))
    assert sweeping.run(Case("config/hardstate.0", 30, 1)) == "refused"


def test_control_a_node_that_forgets_its_vote_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    sweeping = Sweep(base(True))
    monkeypatch.setattr(HardStateFile, "load", lambda file: HardState(sweeping.hard.term, ""))
    with pytest.raises(Lie, match="forgot"):
        sweeping.run(Case("config/hardstate.0", 30, 1))
