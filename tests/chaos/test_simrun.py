"""Whole runs: a seed is a run, event for event, in every process; and a trace does not change it."""

import json
import os
import subprocess
import sys

import pytest

from chaos.checker import Verdict
from chaos.simrun import run_seed, totals

SEED = 3
PROGRAM = f"from chaos.simrun import run_seed; r = run_seed({SEED}); print(r.digest, r.events, r.acknowledged)"


def _in_another_process(hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, check=True, capture_output=True, text=True
    ).stdout


@pytest.mark.sim
def test_a_seed_is_the_same_run_in_processes_that_hash_differently() -> None:
    assert _in_another_process("1") == _in_another_process("2")


@pytest.mark.sim
def test_a_trace_tells_the_run_and_does_not_change_it() -> None:
    lines: list[str] = []
    told = run_seed(SEED, lambda time_us, who, what: lines.append(f"{time_us} {who} {what}"))
    assert told.digest == run_seed(SEED).digest
    assert any("leader_elected" in line for line in lines)
    assert any("APPEND" in line for line in lines)


@pytest.mark.sim
def test_a_run_meets_faults_and_keeps_its_promises() -> None:
    result = run_seed(SEED)
    assert (result.verdict, result.violations) == (Verdict.VALID, [])
    assert result.acknowledged > 0
    assert sum(result.faults.values()) > 0
    json.dumps(totals([result]))
