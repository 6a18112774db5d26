"""`dlmq sim --planted`: every bug planted on purpose, and what caught it.

Law: progress and the table for people, the last line of stdout is JSON for programs; exit 1 unless all were caught.
Does not know: how a bug is planted or hunted (chaos/planted_run.py)."""

import json
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from model.clock import SystemClock

if TYPE_CHECKING:
    from chaos.planted_run import Row


def planted(workers: int, *, as_json: bool) -> None:
    """Hunt all planted bugs in as many processes."""
    from chaos.planted_run import all_planted, figures, hunt_all, in_source_tree  # noqa: PLC0415 (imports the broker)

    if not in_source_tree():
        raise typer.BadParameter("planted bugs are caught by tests too: run --planted from a source tree")
    console, order = Console(stderr=True), {bug.name: number for number, bug in enumerate(all_planted())}
    bar = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    rows: list[Row] = []
    began_ms = SystemClock().monotonic_ms()
    with Progress(TextColumn("hunting"), *bar, console=console, transient=True) as progress:
        task = progress.add_task("", total=len(order))
        for row in hunt_all(workers):
            rows.append(row)
            if row.caught_by is None:
                console.print(f"nothing noticed {row.name} ({row.rule})", style="red", highlight=False)
            progress.update(task, advance=1, description=row.name)
    rows.sort(key=lambda row: order[row.name])
    if not as_json:
        _show(rows)
    found = figures(rows)
    found["seconds"] = round((SystemClock().monotonic_ms() - began_ms) / 1000, 1)
    typer.echo(json.dumps(found))
    if found["planted"] != found["caught"]:
        raise typer.Exit(1)


def _show(rows: "list[Row]") -> None:
    table = Table("planted bug", "breaks", "caught by", "which says")
    for row in rows:
        table.add_row(row.name, row.rule, row.caught_by or "NOTHING", escape(row.complaint.partition("\n")[0]))
    Console().print(table, highlight=False)
