"""`dlmq bench`: measure production code on this machine.

Law: progress for people goes to stderr; with --json the last line of stdout is one JSON object.
Does not know: what is measured and how (bench/).
"""

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Measure production code on this machine.", no_args_is_help=True)


@app.callback()
def _bench() -> None:
    """Measure production code on this machine."""


@app.command()
def store(
    directory: Annotated[
        Path, typer.Option("--dir", metavar="DIR", help="Work below this directory; nothing is left behind.")
    ] = Path(),
    quick: Annotated[bool, typer.Option("--quick", help="Less of everything: a 128 MiB log instead of 1 GiB.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Nothing on stdout but the line of JSON.")] = False,
) -> None:
    """Appending, restarting and rebuilding on a real disk, each against a plain baseline of the same run."""
    from bench.store import run_bench  # noqa: PLC0415 (imports the whole broker)
    from cli.refusing import refusing  # noqa: PLC0415

    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # an exit clears the files away
    with refusing():
        run_bench(directory, quick=quick, as_json=as_json)
