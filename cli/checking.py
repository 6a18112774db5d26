"""What `dlmq store check` says about a store.

Law: every fact of the table is in the JSON too; the last line is the verdict.
Does not know: how anything is verified (store/check.py).
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer
from rich import box
from rich.table import Table

from broker.codec import decode_membership
from broker.state.commands import UnknownCommand
from broker.state.machine import Diverged, StateMachine
from cli.refusing import EXIT_DAMAGED, opened, plain_console, refuse
from store.check import Contradiction, Report, check
from store.identity import SHAPE
from store.preamble import Preamble


class ReplicatedTopics:
    """The state machine, as far as derived files depend on it."""

    def __init__(self, state: bytes) -> None:
        self._state = StateMachine.restore(state)

    def wanted(self, topic: str, position: int) -> bool:
        return self._state.shows(topic, position)

    def apply(self, position: int, end: int, preamble: Preamble) -> tuple[str, ...]:
        try:
            return self._state.apply(position, end, preamble)
        except (Diverged, UnknownCommand) as error:
            raise Contradiction(str(error)) from error


def run_check(directory: Path, config: Path | None, *, as_json: bool) -> None:
    """Check, show, and end with the code that tells the verdict."""
    with opened(directory, config) as disk:
        try:
            report = check(disk, ReplicatedTopics)
        except UnknownCommand as error:
            refuse(f"{directory}: {error}")
    if as_json:
        typer.echo(json.dumps(_report_json(report)))
    else:
        _show_report(report)
    if not report.whole:
        raise typer.Exit(EXIT_DAMAGED)


def _report_json(report: Report) -> dict[str, Any]:
    marks = report.marks
    return {
        "whole": report.whole,
        "root": report.root,
        "identity": None if report.identity is None else asdict(report.identity),
        "term": None if report.hard_state is None else report.hard_state.term,
        "vote": None if report.hard_state is None else report.hard_state.vote,
        "clean_stop": report.clean_stop,
        "segments": report.segments,
        "entries": report.entries,
        "messages": report.messages,
        "topics": report.topics,
        "queues": report.queues,
        "derived_files": report.derived_files,
        "start": report.start,
        "end": report.end,
        "commit": None if marks is None else marks.commit,
        "durable": None if marks is None else marks.durable,
        "snapshot": None if report.control is None else report.control.position,
        "chain_at_commit": _crc(report.chain_at_commit),
        "chain_at_end": _crc(report.chain_at_end),
        "torn_bytes": report.torn_bytes,
        "epochs": [{"term": term, "start": start} for term, start in report.runs],
        "membership": _members(report),
        "findings": [
            {"file": found.file, "position": found.position, "problem": found.problem, "means": found.means,
             "repair": found.repair.name.lower()}
            for found in report.findings
        ],
        "notes": report.notes,
    }  # fmt: skip


def _members(report: Report) -> list[dict[str, Any]]:
    """The membership in force at the end of the log."""
    if not report.memberships:
        return []
    members = decode_membership(report.memberships[-1][1]).members
    return [{"node": member.node, "incarnation": member.incarnation, "voter": member.voter} for member in members]


def _crc(value: int | None) -> str | None:
    return None if value is None else f"{value:08x}"


def _show_report(report: Report) -> None:
    facts = _report_json(report)
    table = Table(title=f"store {report.root}", box=box.SIMPLE, show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    if report.identity is not None:
        own = report.identity
        table.add_row("belongs to", f"node {own.node} of group {own.group} in cluster {own.cluster}")
        table.add_row("incarnation", f"{own.incarnation}")
        table.add_row("made with", ", ".join(f"{name} = {getattr(own, name)}" for name in SHAPE))
    table.add_row("last stop", "clean" if report.clean_stop else "not clean: killed, crashed, or failed")
    table.add_row("term, vote", f"{facts['term']}, {facts['vote'] or 'none'}")
    size = report.end - report.start
    table.add_row("log", f"{report.start} to {report.end}, {size} bytes in {report.segments} segments")
    table.add_row("entries", f"{report.entries}, with {report.messages} messages")
    queues = f"{report.topics} topics, {report.queues} queues in {report.derived_files} derived files"
    table.add_row("with messages", queues)
    table.add_row("commit, durable", f"{facts['commit']}, {facts['durable']}, control snapshot at {facts['snapshot']}")
    table.add_row("chain crc", f"{facts['chain_at_commit'] or 'unknown'} at commit, {facts['chain_at_end']} at end")
    table.add_row("epochs", ", ".join(f"term {term} from {start}" for term, start in report.runs) or "none")
    members = [f"{row['node']}{'' if row['voter'] else ' (learner)'}" for row in facts["membership"]]
    table.add_row("members", ", ".join(members) or "none")
    plain_console().print(table)
    for note in report.notes:
        typer.echo(f"note: {note}")
    for found in report.findings:
        typer.echo(f"damaged: {found}")
    if report.whole:
        typer.echo("whole: every crc, the chain and all derived files verify")
    else:
        count = len(report.findings)
        typer.echo(f"damaged: {count} {'finding' if count == 1 else 'findings'}")
