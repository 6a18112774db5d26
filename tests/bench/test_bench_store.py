"""bench/: the shape of what is reported, on tiny sizes; how fast anything is, no test says."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import bench.store
from bench.appending import CASES
from bench.store import AT_LEAST, AT_MOST, Sizes
from bench.timing import Span, best_cpu, best_wall, median_cpu, median_wall
from cli.main import app

KIB = 1 << 10
TINY = Sizes(append_bytes=16 * KIB, log_bytes=512 * KIB, checkpoint_bytes=128 * KIB, sync_entries=1, repeats=2)


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.store, "QUICK", TINY)


def test_the_last_line_is_one_object_with_every_figure_and_nothing_is_left_behind(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["bench", "store", "--json", "--quick", "--dir", str(tmp_path)])
    assert result.exit_code == 0, result.output
    figures = json.loads(result.stdout.splitlines()[-1])
    assert figures["targets"] == {**AT_MOST, **AT_LEAST}
    assert figures["targets_met"].keys() == figures["targets"].keys()
    for name, most in AT_MOST.items():
        assert figures["targets_met"][name] == (figures[name] <= most)
    for name, least in AT_LEAST.items():
        assert figures["targets_met"][name] == (figures[name] >= least)
    assert figures["restart_clean_seconds"] > 0
    assert figures["log_bytes"] >= TINY.log_bytes
    assert 0 < figures["above_checkpoint_bytes"] <= 2 * TINY.checkpoint_bytes
    rows = {(row["body_bytes"], row["batch"], row["mode"]) for row in figures["append"]}
    assert rows == {(*case, mode) for case in CASES for mode in ("sync", "async")}
    assert all(row["cpu_us_per_message"] > 0 and row["mb_per_second"] > 0 for row in figures["append"])
    assert all(("copy_ratio" in row) == (row["mode"] == "async") for row in figures["append"])
    assert "1000 x 1024 B" in result.stderr and "at least 200" in result.stderr, "the table, for people"
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["bench", "store", "--dir", str(tmp_path / "none")])
    (line,) = result.stderr.splitlines()
    assert result.exit_code == 2 and "is not a directory" in line
    assert list(tmp_path.iterdir()) == []


def test_the_best_and_the_median_of_several_spans() -> None:
    spans = [Span(3.0, 2.0), Span(1.0, 9.0), Span(2.0, 4.0)]
    assert (best_wall(spans), median_wall(spans)) == (1.0, 2.0)
    assert (best_cpu(spans), median_cpu(spans)) == (2.0, 4.0)
