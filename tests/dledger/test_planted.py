"""Every planted bug is caught by what its row names; with nothing planted, the same finds nothing."""

import pytest

from chaos.planted import SEEDS, Planted, patch_source
from chaos.planted_core import CORE_PLANTED, noticed
from chaos.transcripts import DIRECTORY
from dledger.quorum import majority

RULES = (1, 2, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 17, 18, 20, 21, 22)
MISTAKES = (1, 3, 4, 5, 6, 7, 8, 10, 13, 16, 17, 18, 19, 20, 21)


@pytest.mark.parametrize("bug", CORE_PLANTED, ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught(bug: Planted) -> None:
    with bug.patch():
        assert noticed(bug.caught_by) is not None, f"{bug.name} ({bug.breaks}): {bug.caught_by} did not notice"


@pytest.mark.parametrize("name", sorted({bug.caught_by for bug in CORE_PLANTED} - {SEEDS}))
def test_nothing_is_caught_when_nothing_is_planted(name: str) -> None:
    assert noticed(name) is None


def test_the_rules_and_mistakes_that_matter_are_all_planted() -> None:
    broken = " ".join(f"{bug.breaks}," for bug in CORE_PLANTED)
    assert [rule for rule in RULES if f"rule {rule}," not in broken] == []
    assert [mistake for mistake in MISTAKES if f"mistake {mistake}," not in broken] == []
    assert len({bug.name for bug in CORE_PLANTED}) == len(CORE_PLANTED)


def test_every_named_transcript_exists() -> None:
    assert [bug.caught_by for bug in CORE_PLANTED if bug.caught_by != SEEDS
            and not (DIRECTORY / f"{bug.caught_by}.txt").exists()] == []  # fmt: skip


def test_a_bug_that_no_longer_fits_its_code_fails_loudly() -> None:
    with pytest.raises(AssertionError, match="occurs 0 times"), patch_source(majority, "no such text", ""):
        pass


def test_a_patched_function_is_healed() -> None:
    with patch_source(majority, "// 2 + 1", "// 2 + 2"):
        assert majority(["a"]) == 2  # type: ignore[list-item]
    assert majority(["a"]) == 1  # type: ignore[list-item]
