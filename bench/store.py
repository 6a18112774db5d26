"""`dlmq bench store`: appending, restarting, rebuilding; a table for people, a line of JSON for programs.

Law: every target is a figure of this very run, either a ratio to a baseline in the same run or a time with a wide
margin; what is missed is said, not hidden. All files lie below one temporary directory that goes with the run.
Does not know: how anything is measured (bench/appending.py, bench/restarting.py).
"""

import json
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from bench.appending import Result, measure_all
from bench.restarting import Figures, measure_restarts
from model.errors import StartError

MIB = 1 << 20


@dataclass(frozen=True)
class Sizes:
    append_bytes: int = 64 * MIB  # in each repeat
    log_bytes: int = 1024 * MIB
    checkpoint_bytes: int = 64 * MIB
    sync_entries: int = 64
    repeats: int = 5


FULL = Sizes()
QUICK = Sizes(append_bytes=16 * MIB, log_bytes=128 * MIB, checkpoint_bytes=32 * MIB, sync_entries=16)

AT_MOST = {"copy_ratio_1k_1000": 3.0, "copy_ratio_100b_1000": 6.0, "restart_after_kill_seconds": 3.0}
AT_LEAST = {"cpu_ratio_batch1_to_1000": 5.0, "rebuild_mb_per_second": 200.0}


def run_bench(directory: Path, *, quick: bool, as_json: bool, sizes: Sizes | None = None) -> None:
    """Measure everything and show it."""
    console = Console(stderr=True)
    chosen = sizes or (QUICK if quick else FULL)
    if not directory.is_dir():
        raise StartError(f"{str(directory)!r} is not a directory", means="nothing was measured", do="check --dir")
    try:
        place = TemporaryDirectory(prefix="dlmq-bench-", dir=directory)
    except OSError as error:
        why = f"no directory can be made below {str(directory)!r}: {error.strerror}"
        raise StartError(why, means="nothing was measured", do="check --dir") from error
    with place as name:
        appends = measure_all(Path(name), chosen.append_bytes, chosen.repeats, chosen.sync_entries, console.print)
        restarts = measure_restarts(
            Path(name), chosen.log_bytes, chosen.checkpoint_bytes, chosen.repeats, console.print
        )
    figures = summary(appends, restarts)
    _show(console if as_json else Console(), figures)
    if as_json:
        typer.echo(json.dumps(figures))


def summary(appends: list[Result], restarts: Figures) -> dict[str, Any]:
    """All figures and whether each target is met."""
    plain = {(result.case.body_bytes, result.case.batch): result for result in appends if not result.sync}
    figures: dict[str, Any] = {
        "copy_ratio_1k_1000": round(plain[1024, 1000].copy_ratio, 2),
        "copy_ratio_100b_1000": round(plain[100, 1000].copy_ratio, 2),
        "cpu_ratio_batch1_to_1000": round(
            min(plain[body, 1].cpu_us / plain[body, 1000].cpu_us for body in (100, 1024)), 1
        ),
        **restarts.figures(),
        "append": [result.figures() for result in appends],
    }
    met = {name: figures[name] <= most for name, most in AT_MOST.items()}
    met |= {name: figures[name] >= least for name, least in AT_LEAST.items()}
    return {**figures, "targets": {**AT_MOST, **AT_LEAST}, "targets_met": met}


def _show(console: Console, figures: dict[str, Any]) -> None:
    table = Table(title="append", box=box.SIMPLE)
    for name in ("messages", "mode", "us CPU each", "MB/s", "messages/s", "x plain copy + crc32c"):
        table.add_column(name, justify="left" if name in ("messages", "mode") else "right")
    for row in figures["append"]:
        table.add_row(
            f"{row['batch']} x {row['body_bytes']} B", row["mode"], f"{row['cpu_us_per_message']:.3f}",
            f"{row['mb_per_second']:.0f}", f"{row['messages_per_second']:,}", str(row.get("copy_ratio", "")),
        )  # fmt: skip
    console.print(table)
    targets = Table(title="targets", box=box.SIMPLE)
    for name in ("figure", "value", "target", "met"):
        targets.add_column(name)
    for name, met in figures["targets_met"].items():
        sign = "at most" if name in AT_MOST else "at least"
        targets.add_row(name, str(figures[name]), f"{sign} {figures['targets'][name]:g}", "yes" if met else "NO")
    targets.add_row("restart_clean_seconds", str(figures["restart_clean_seconds"]), "", "")
    console.print(targets)
