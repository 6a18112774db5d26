"""`dlmq store`: look at a store that no node is using; nothing on disk is changed.

    check DIR    is it whole?            exit 0 whole, 1 damaged, 2 not a store or not readable
    dump DIR     what is in the log      exit 0, 1 when the log is damaged there, 2 as above

Law: tables for people, JSON for programs; the same facts in both.
Does not know: how anything is verified or shown (cli/checking.py, cli/dumping.py).
"""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Look at a store that no node is using.", no_args_is_help=True)

Directory = Annotated[Path, typer.Argument(metavar="DIR", help="The store directory of a node.")]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config", metavar="FILE",
        help="The node's configuration (TOML): the store must be the one that this node would use.",
    ),
]  # fmt: skip
AsJson = Annotated[bool, typer.Option("--json", help="For programs: one JSON object a line.")]


@app.command()
def check(directory: Directory, config: Config = None, as_json: AsJson = False) -> None:
    """Verify every crc, the chain and all derived files. Exit 0: whole, 1: damaged, 2: not a store."""
    from cli.checking import run_check  # noqa: PLC0415 (imports the whole store)

    run_check(directory, config, as_json=as_json)


@app.command()
def dump(
    directory: Directory,
    position: Annotated[
        str | None, typer.Option("--from", metavar="POSITION", help="An entry boundary; default: the log's start.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, metavar="N", help="How many entries.")] = 20,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Show entries and messages. Exit 1: damage in what was asked for, 2: not a store, or no entry there."""
    from cli.dumping import run_dump  # noqa: PLC0415

    run_dump(directory, config, position, limit, as_json=as_json)
