"""Control commands: what an entry changes besides carrying messages.

Law: a command is an array [name, version, arguments ...] in msgpack. An unknown name or version is never skipped: a
node that skipped it would go on with another state than its peers, so it stops instead."""

from typing import Any

import msgpack

Command = tuple[Any, ...]


class UnknownCommand(Exception):
    """A newer release wrote this command; this node must stop rather than diverge."""

    def __init__(self, command: object) -> None:
        super().__init__(
            f"the log holds a command that this release does not know: {command!r}; the node stops here so that its "
            "state cannot differ from its peers'; run the release that wrote it"
        )


def topic_set(name: str, read_queues: int, write_queues: int, perm: int) -> Command:
    """Create a topic or change its queue numbers and permissions."""
    return ("topic_set", 1, name, read_queues, write_queues, perm)


def topic_delete(name: str) -> Command:
    """Delete a topic with all its messages; it may be created anew, from offset 0."""
    return ("topic_delete", 1, name)


def log_start(position: int) -> Command:
    """The log begins at `position`: every node drops whole segments below it."""
    return ("log_start", 1, position)


def encode(commands: list[Command]) -> bytes:
    """The control part of an entry; no bytes when there is nothing to say."""
    if not commands:
        return b""
    packed: bytes = msgpack.packb(commands)
    return packed


def decode(control: bytes) -> list[Command]:
    """The commands of an entry, in their order."""
    return [] if not control else [tuple(command) for command in msgpack.unpackb(control)]
