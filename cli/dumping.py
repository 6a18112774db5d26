"""What `dlmq store dump` shows: entries of a store as plain values, for a table and for JSON.

Law: an entry is shown only if it verifies; where to begin must be an entry boundary, and if it is not, the nearest one
below it is named. Messages are read from their own bytes, not from the columns before them, so that a look at the log
shows what consumers get. Does not know: options, how entries are verified (store/readonly.py).
"""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import typer
from rich import box
from rich.table import Table

from broker.codec import decode_membership
from broker.state.commands import decode
from cli.refusing import EXIT_DAMAGED, opened, plain_console, refuse
from model.errors import MessageIllegal, NotAStore
from model.message import MessageView, views
from store import identity, snapshot
from store.disk import Disk
from store.entry import CorruptEntry, EntryKind, Header
from store.hardstate import WatermarkFile
from store.preamble import parse_preamble
from store.readonly import walk_entries

MESSAGES_SHOWN = 5  # of one entry in the table; --json shows all
PREVIEW_CHARS = 32
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
BODY_CHARS = 256  # of each message; a look, not an export


class NoSuchEntry(Exception):
    """No entry begins where somebody wants to begin."""


class Dumped(NamedTuple):
    rows: list[dict[str, Any]]
    end: int  # where the next entry begins
    at_end: bool  # no entry follows
    damage: str | None  # what ended the rows before the durable watermark


def run_dump(directory: Path, config: Path | None, position: str | None, limit: int, *, as_json: bool) -> None:
    """Show entries, and end with the code that tells whether more should have been there."""
    at = None if position is None else _position(position)
    with opened(directory, config) as disk:
        try:
            dumped = dump_from(disk, at, limit)
        except NoSuchEntry as error:
            refuse(str(error))
    if as_json:
        for row in dumped.rows:
            typer.echo(json.dumps(row, ensure_ascii=False))
    else:
        _show_entries(dumped)
    if dumped.damage is not None:
        typer.echo(f"damaged: {dumped.damage}; `dlmq store check` tells more", err=True)
        raise typer.Exit(EXIT_DAMAGED)


def _position(text: str) -> int:
    if not text.isascii() or not text.isdecimal():
        refuse(f"--from {text!r} is not a position: `dlmq store check` shows where the log starts and ends")
    return int(text)


def dump_from(disk: Disk, position: int | None, limit: int) -> Dumped:
    """Up to `limit` entries from `position`; None: from the start of the log."""
    found = identity.load(disk)
    if found is None:
        raise NotAStore(f"{disk.root!r} {'holds no identity' if disk.list('') else 'is empty'}")
    control, marks = snapshot.load_newest(disk), WatermarkFile(disk).peek()
    start, chain = (0, 0) if control is None else (control.log_start, control.base_chain)
    at: int = start if position is None else position
    size, known = found.segment_bytes, chain if at == start else None
    if at != start:
        if marks is not None and at > marks.durable:
            _refuse_beyond_end(disk, size, start, marks.durable, at)
        known = _chain_before(disk, size, start, chain, at)
    rows: list[dict[str, Any]] = []
    try:
        for header, body in walk_entries(disk, size, at, known):
            rows.append(describe(header, body))
            at = header.end
            if len(rows) == limit:
                break
        next(walk_entries(disk, size, at, None))  # is there another one?
    except CorruptEntry as error:
        torn = marks is None or error.position >= marks.durable
        return Dumped(rows, at, True, None if torn else f"position {error.position}: {error.reason}")
    return Dumped(rows, at, False, None)


def _refuse_beyond_end(disk: Disk, segment_bytes: int, start: int, durable: int, position: int) -> None:
    """Raise if the log ends below `position`; its end is at or above `durable`, unless it is damaged."""
    end = max(start, durable // segment_bytes * segment_bytes)
    try:
        for header, _ in walk_entries(disk, segment_bytes, end, None):
            end = header.end
            if end >= position:
                return
    except CorruptEntry as error:
        if error.position >= durable:
            raise NoSuchEntry(f"position {position} is beyond the end of the log at {error.position}") from error


def _chain_before(disk: Disk, segment_bytes: int, start: int, chain: int, position: int) -> int | None:
    """The chain crc at the boundary `position`, found by walking to it from the beginning of its segment."""
    if position < start:
        raise NoSuchEntry(f"position {position} is below the start of the log; it begins at {start}")
    base = position // segment_bytes * segment_bytes
    at, known = (start, chain) if base <= start else (base, None)
    if at == position:
        return known
    try:
        for header, _ in walk_entries(disk, segment_bytes, at, known):
            if header.end > position:
                raise NoSuchEntry(
                    f"position {position} is inside an entry; the nearest entry boundary below it is {header.position}"
                )
            at = header.end
            if at == position:
                return header.chain
    except CorruptEntry as error:
        raise NoSuchEntry(
            f"position {position} cannot be reached: the entries before it end at {at} ({error.reason}); the nearest "
            f"entry boundary below it is {at}"
        ) from error
    raise AssertionError("a walk ends with an error")


def describe(header: Header, body: memoryview) -> dict[str, Any]:
    """One entry as plain values."""
    row: dict[str, Any] = {
        "position": header.position,
        "size": header.size,
        "kind": EntryKind(header.kind).name.lower(),
        "term": header.term,
        "time_ms": header.time_ms,
        "chain": f"{header.chain:08x}",
    }
    if header.kind == EntryKind.MEMBERSHIP:
        members = decode_membership(body).members
        row["members"] = [{"node": each.node, "incarnation": each.incarnation, "voter": each.voter} for each in members]
    elif header.kind == EntryKind.DATA:
        row |= _describe_data(header.position, body)
    return row


def _describe_data(position: int, body: memoryview) -> dict[str, Any]:
    try:
        preamble = parse_preamble(body)
        messages = [_message(view) for view in views(body[preamble.messages_at :])]
    except CorruptEntry as error:
        raise CorruptEntry(position, error.reason) from error
    except MessageIllegal as error:
        raise CorruptEntry(position, error.happened) from error
    return {
        "commands": [list(command) for command in decode(preamble.control)],
        "batches": [
            {"topic": batch.topic, "queue": batch.queue, "count": batch.count, "first_offset": batch.first_offset,
             "producer": batch.producer.hex(), "sequence": batch.sequence}
            for batch in preamble.batches
        ],
        "messages": messages,
    }  # fmt: skip


def _message(view: MessageView) -> dict[str, Any]:
    head = view.head
    text = bytes(view.body[:BODY_CHARS]).decode("utf-8", "backslashreplace")
    return {
        "topic": view.topic,
        "queue": head.queue,
        "offset": head.queue_offset,
        "position": head.position,
        "size": head.size,
        "tag": view.tag,
        "keys": view.keys,
        "body_size": head.body_size,
        "body": "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text),
    }


def _show_entries(dumped: Dumped) -> None:
    table = Table(box=box.SIMPLE, show_edge=False)
    for name in ("position", "size", "kind", "term", "leader time", "chain", "what"):
        table.add_column(name, justify="right" if name in ("position", "size", "term") else "left", overflow="fold")
    for row in dumped.rows:
        moment = f"{_EPOCH + timedelta(milliseconds=row['time_ms']):%Y-%m-%d %H:%M:%S}.{row['time_ms'] % 1000:03d}"
        table.add_row(
            str(row["position"]), str(row["size"]), row["kind"], str(row["term"]), moment, row["chain"], _what(row)
        )
        for message in row.get("messages", [])[:MESSAGES_SHOWN]:
            table.add_row("", str(message["size"]), "", "", "", "", _message_line(message))
        more = len(row.get("messages", [])) - MESSAGES_SHOWN
        if more > 0:
            table.add_row("", "", "", "", "", "", f"... and {more} more (--json shows all)")
    plain_console().print(table)
    where = "the log ends here" if dumped.at_end else f"go on with --from {dumped.end}"
    typer.echo(f"{len(dumped.rows)} entries; {where}")


def _what(row: dict[str, Any]) -> str:
    if row["kind"] == "membership":
        return ", ".join(f"{each['node']}{'' if each['voter'] else ' (learner)'}" for each in row["members"])
    if row["kind"] != "data":
        return ""
    commands = [" ".join(str(word) for word in command) for command in row["commands"]]
    batches = [f"{each['count']} to {each['topic']}/{each['queue']}" for each in row["batches"]]
    return "; ".join([*commands, *batches])


def _message_line(message: dict[str, Any]) -> str:
    words = [f"{message['topic']}/{message['queue']} @{message['offset']}"]
    if message["tag"]:
        words.append(f"tag {message['tag']}")
    if message["keys"]:
        words.append("keys " + " ".join(message["keys"]))
    body = message["body"]
    return "  ".join([*words, body if len(body) <= PREVIEW_CHARS else body[:PREVIEW_CHARS] + "..."])
