"""`dlmq`: the command of dledger-mq.

Law: this module only assembles; each sub-command lives in its own module and imports what it needs when it runs, so
that `--help` and `--version` are instant. Exit codes: 0 all is well, 1 what was looked for was found (a violation,
damage), 2 the command could not be done as told, with one clear line.
Does not know: what the sub-commands do."""

import sys
from importlib.metadata import version
from typing import Annotated

import typer

from cli.bench import app as bench
from cli.sim import sim
from cli.store import app as store
from model.errors import MQError

app = typer.Typer(
    name="dlmq", help="dledger-mq: a message broker whose commitlog is a Raft log.", no_args_is_help=True,
    add_completion=False, pretty_exceptions_enable=False,
)  # fmt: skip
app.command("sim")(sim)
app.add_typer(store, name="store")
app.add_typer(bench, name="bench")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dlmq {version('dledger-mq')}")
        raise typer.Exit


@app.callback()
def _options(
    _: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """dledger-mq: a message broker whose commitlog is a Raft log."""


def main() -> None:
    """The console script; an error that we foresaw is one line, not a traceback."""
    try:
        app()
    except MQError as error:
        typer.echo(f"dlmq: {error}", err=True)
        sys.exit(2)
