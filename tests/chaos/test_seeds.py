"""The default seeds, in portions that two workers share; `dlmq sim --seeds 300` runs more of the same."""

import pytest

from chaos.checker import Verdict
from chaos.simrun import run_seed

PORTION = 10


@pytest.mark.sim
@pytest.mark.parametrize("first", range(1, 101, PORTION))
def test_the_default_seeds_keep_every_promise(first: int) -> None:
    results = [run_seed(seed) for seed in range(first, first + PORTION)]
    broken = [(result.seed, result.violations) for result in results if result.verdict is not Verdict.VALID]
    assert not broken
    assert sum(result.acknowledged for result in results) > 100 * PORTION  # an idle run proves nothing
    assert sum(result.crashes for result in results) > PORTION and sum(r.leader_changes for r in results) > PORTION
