"""How a command says no: one clear line on stderr, exit code 2, no traceback.

Law: what the outside did wrong (a path, a lock, a mode, a configuration) ends here in words: what happened; what it
means; what to do. Our own broken promises are not caught. Does not know: what a command does.
"""

import os
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import typer
from rich.console import Console

from broker.config import BrokerConfig
from model.config import load
from model.errors import ConfigError, MQError
from store import identity
from store.disk import DiskError
from store.readonly import ReadOnlyDisk

EXIT_DAMAGED = 1
EXIT_REFUSED = 2
PIPED_COLUMNS = 160


def plain_console() -> Console:
    """Text of messages is shown as it is, never taken for markup; what is piped is not folded to a terminal's width."""
    console = Console(markup=False, highlight=False)
    return console if console.is_terminal else Console(markup=False, highlight=False, width=PIPED_COLUMNS)


def refuse(line: str) -> NoReturn:
    """Say why, and end with code 2."""
    typer.echo(f"dlmq: {line}", err=True)
    raise typer.Exit(EXIT_REFUSED)


@contextmanager
def refusing() -> Iterator[None]:
    """Errors from outside become a refusal."""
    try:
        yield
    except (MQError, DiskError) as error:
        refuse(str(error))


@contextmanager
def opened(directory: Path, config: Path | None) -> Iterator[ReadOnlyDisk]:
    """The directory, locked against nodes; refused unless it is the configured node's."""
    with refusing():
        broker = None if config is None else load_config(config)
        disk = ReadOnlyDisk(directory)
        disk.lock()
        try:
            if broker is not None:
                found = identity.load(disk)
                if found is not None:
                    node = broker.node
                    identity.check(found, cluster=node.cluster, group=node.group, node=node.node, store=broker.store)
            yield disk
        finally:
            disk.unlock()


def load_config(file: Path) -> BrokerConfig:
    """A node's configuration as the node itself would read it."""
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError([f"{file} cannot be read: {error.strerror}"]) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError([f"{file} is not TOML: {error}"]) from error
    return load(BrokerConfig, table, os.environ, {})
