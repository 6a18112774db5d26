"""`dlmq sim`: whole groups in virtual time, many seeds over all cores, or one seed in words.

Law: progress and findings for people go to stderr, the last line of stdout is JSON for programs. Same seed, same run.
Does not know: how a run is made (chaos/simrun.py), how planted bugs are hunted (cli/planted.py)."""

import json
import os
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from cli.planted import planted as hunt_planted
from model.clock import SystemClock

VIOLATIONS_SHOWN_MAX = 20  # on a terminal; the JSON counts all


def sim(
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds to run.")] = 300,
    start: Annotated[int, typer.Option(min=0, help="The first seed.")] = 1,
    seed: Annotated[int | None, typer.Option(min=0, help="Run this seed alone.")] = None,
    trace: Annotated[bool, typer.Option("--trace", help="With --seed: tell every event in words.")] = False,
    workers: Annotated[int, typer.Option(min=0, help="Processes; 0: one for each core.")] = 0,
    planted: Annotated[bool, typer.Option("--planted", help="Hunt the bugs planted on purpose instead.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Nothing on stdout but the line of JSON.")] = False,
) -> None:
    """Simulate replicated groups under faults and judge every promise; exit 1 when one is broken."""
    if planted:
        hunt_planted(workers or os.cpu_count() or 1, as_json=as_json)
        return
    if trace and seed is None:
        raise typer.BadParameter("--trace tells one run: say which with --seed")
    if seed is not None:
        _one(seed, trace=trace)
    else:
        _many(start, seeds, workers or os.cpu_count() or 1, as_json=as_json)


def _one(seed: int, *, trace: bool) -> None:
    from chaos.simrun import run_seed, totals  # noqa: PLC0415 (imports the whole broker)

    def tell(time_us: int, who: str, what: str) -> None:
        sys.stdout.write(f"{time_us / 1e6:11.6f}  {who:<9}  {what}\n")

    result = run_seed(seed, tell if trace else None)
    for violation in result.violations:
        typer.echo(str(violation), err=True)
    _finish({**totals([result]), "seed": seed, "verdict": result.verdict.value, "digest": f"{result.digest:016x}"})


def _many(start: int, seeds: int, workers: int, *, as_json: bool) -> None:
    from chaos.simrun import run_seeds, totals  # noqa: PLC0415

    console = Console(stderr=True)
    bar = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    results, shown, began_ms = [], 0, SystemClock().monotonic_ms()
    with Progress(TextColumn("simulating"), *bar, console=console, transient=True) as progress:
        task = progress.add_task("", total=seeds)
        for result in run_seeds(range(start, start + seeds), workers):
            results.append(result)
            for violation in result.violations:
                shown += 1
                if shown <= VIOLATIONS_SHOWN_MAX:
                    console.print(str(violation), style="red", highlight=False, soft_wrap=True)
            progress.update(task, advance=1, description=f"{shown} violations" if shown else "")
    wall_s = (SystemClock().monotonic_ms() - began_ms) / 1000
    figures = totals(results)
    figures["events_per_second"] = round(int(str(figures["events"])) / wall_s)
    figures["seconds"] = round(wall_s, 1)
    figures["violated"] = sorted({f"{v.seed}:{v.property}" for result in results for v in result.violations})
    if not as_json:
        for name, value in figures.items():
            typer.echo(f"{name:>18}  {value}")
    _finish(figures)


def _finish(figures: dict[str, object]) -> None:
    typer.echo(json.dumps(figures))
    if figures["violations"]:
        raise typer.Exit(1)
