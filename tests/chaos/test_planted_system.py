"""Every planted bug, of the core and around it, is caught; and the hunt believes neither hints nor red catchers."""

import json
from contextlib import nullcontext

import pytest

from chaos import planted_run
from chaos.planted import Planted
from chaos.planted_run import ROOT, all_planted, catchers, complaint, figures, hunt, hunt_all
from chaos.planted_system import SYSTEM_PLANTED

PLANTED_MIN = 25  # in all
SYSTEM_PLANTED_MIN = 15  # around the core
MISTAKES = (1, 2, 9, 11, 12, 13, 14, 15, 18, 19, 22, 23, 24, 25, 26)  # of those that lie outside the core


@pytest.mark.sim
def test_every_planted_bug_is_caught_by_something_that_is_silent_without_it() -> None:
    rows = list(hunt_all(2))
    assert [row.name for row in rows if row.caught_by is None] == []
    assert {row.name for row in rows} == {bug.name for bug in all_planted()}
    found = figures(rows)
    assert found["planted"] == found["caught"] == len(all_planted()) >= PLANTED_MIN
    json.dumps(found)


def test_the_mistakes_outside_the_core_are_all_planted() -> None:
    assert len(SYSTEM_PLANTED) >= SYSTEM_PLANTED_MIN
    assert len({bug.name for bug in all_planted()}) == len(all_planted())
    broken = " ".join(f"{bug.breaks},".replace("mistakes 1 and 9", "mistake 1, mistake 9") for bug in SYSTEM_PLANTED)
    assert [mistake for mistake in MISTAKES if f"mistake {mistake}," not in broken] == []


@pytest.mark.parametrize("bug", SYSTEM_PLANTED, ids=lambda bug: bug.name)
def test_a_planted_bug_still_fits_its_code(bug: Planted) -> None:
    with bug.patch():
        pass


def test_every_named_test_exists() -> None:
    for bug in SYSTEM_PLANTED:
        path, _, name = bug.caught_by.partition("::")
        if name:
            assert f"def {name}() -> None:" in (ROOT / path).read_text(encoding="utf-8"), bug.name


def test_a_hinted_seed_comes_first_and_others_follow_once() -> None:
    tried = list(catchers("seed 7"))
    assert tried[:3] == ["seed 7", "seed 1", "seed 2"] and len(tried) == len(set(tried))


def test_a_bug_that_nothing_notices_is_not_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planted_run, "complaint", lambda catcher: None)
    assert hunt(Planted("harmless", "no rule", "does nothing", nullcontext, "seed 1")).caught_by is None


def test_a_catcher_that_complains_anyway_has_caught_nothing() -> None:
    missing = "tests/chaos/test_planted_system.py::no_such_test"
    assert complaint(missing) is not None
    assert hunt(Planted("harmless", "no rule", "does nothing", nullcontext, missing)).caught_by is None


def test_a_failed_test_is_a_complaint_and_names_what_it_said() -> None:
    catcher = "tests/store/test_commitlog.py::test_raw_bytes_that_do_not_continue_our_chain_are_refused"
    assert complaint(catcher) is None
    bug = next(bug for bug in SYSTEM_PLANTED if bug.caught_by == catcher)
    with bug.patch():
        assert "DID NOT RAISE" in str(complaint(catcher))
