"""The documents, held against the code: offsets, sizes, constants, names, commands, links.

A table that the tests read stands below an HTML comment that says what it describes, `<!-- layout: store.entry.X -->`
say; a comment of a kind that nobody reads fails, so that a table cannot be left out by a typing mistake.
"""

import ast
import importlib
import inspect
import json
import operator
import re
import struct
from dataclasses import fields
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import msgpack
import pytest

from broker.codec import encode_membership
from broker.config import BrokerConfig, NodeConfig
from broker.repair import MENDING
from broker.replica import Replica
from broker.state import commands
from broker.state.machine import StateMachine
from chaos.sim import SimClock, World
from chaos.simdisk import SimDisk
from chaos.simmessages import TOPIC, make_send
from dledger.boot import placement
from dledger.membership import Member, Membership
from model.ids import Incarnation, LogPosition, NodeId
from store import consumequeue, identity, keyindex
from store.config import StoreConfig
from store.entry import EntryKind, pack
from store.realdisk import RealDisk

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
FORMATS = ROOT / "docs" / "FORMATS.md"
KINDS = {"files", "layout", "enum", "example", "placement", "commands", "identity", "fields", "state", "constants"}
MARKER = re.compile(r"^<!-- (\w+)(?:: ([\w.]+))? -->$", re.MULTILINE)
FIELD = re.compile(r"\d*[a-zA-Z?]")

Rows = list[list[str]]


@cache
def tables(path: Path) -> list[tuple[str, str, Rows]]:
    """(kind, what, rows) below each marker; an example's rows are the lines of its code block."""
    text = path.read_text()
    found = []
    for match in MARKER.finditer(text):
        part = text[match.end() :].lstrip("\n")
        if match[1] == "example":
            rows = [[line] for line in part.split("```")[1].strip().splitlines()]
        else:
            lines = part.split("\n\n")[0].splitlines()
            rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
        found.append((match[1], match[2] or "", rows))
    return found


def named(kind: str, path: Path = FORMATS) -> list[Any]:
    return [pytest.param(what, rows, id=what or kind) for found, what, rows in tables(path) if found == kind]


def resolve(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def code(cell: str) -> str:
    return cell.strip("`")


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_marked_table_is_of_a_kind_that_is_read(path: Path) -> None:
    assert {kind for kind, _, _ in tables(path)} <= KINDS
    assert all(rows for _, _, rows in tables(path))
    assert path.read_text().count("<!--") == len(tables(path))


def test_formats_has_a_table_of_each_kind() -> None:
    assert {kind for kind, _, _ in tables(FORMATS)} == KINDS


@pytest.mark.parametrize("what, rows", named("layout"))
def test_a_layout_is_what_the_struct_says(what: str, rows: Rows) -> None:
    layout: struct.Struct = resolve(what)
    at = 0
    documented = []
    for offset, size, kind, _ in rows:
        assert (int(offset), int(size)) == (at, struct.calcsize(">" + code(kind))), (what, offset, size)
        at += int(size)
        documented.append(code(kind))
    assert layout.format[0] == ">"
    assert documented == FIELD.findall(layout.format[1:])
    assert at == layout.size


@pytest.mark.parametrize("module", [consumequeue, keyindex])
def test_a_unit_is_the_same_for_struct_and_numpy(module: Any) -> None:
    dtype = module.UNIT_DTYPE
    rows = next(rows for _, what, rows in tables(FORMATS) if what == f"store.{module.__name__.split('.')[-1]}.UNIT")
    assert [dtype.fields[name][1] for name in dtype.names] == [int(row[0]) for row in rows]


@pytest.mark.parametrize("what, rows", named("enum"))
def test_an_enum_has_the_documented_values(what: str, rows: Rows) -> None:
    assert {member.name: member.value for member in resolve(what)} == {row[1]: int(row[0]) for row in rows}


OPERATORS = {ast.LShift: operator.lshift, ast.Mult: operator.mul}


def value_of(text: str) -> object:
    node = ast.parse(text, mode="eval").body
    if isinstance(node, ast.BinOp):
        left, right = ast.literal_eval(node.left), ast.literal_eval(node.right)
        return OPERATORS[type(node.op)](left, right)
    return ast.literal_eval(node)


@pytest.mark.parametrize("path", [path for path in DOCUMENTS if any(k == "constants" for k, _, _ in tables(path))])
def test_constants_have_the_documented_values(path: Path) -> None:
    for kind, _, rows in tables(path):
        if kind == "constants":
            wrong = [row[0] for row in rows if resolve(code(row[0])) != value_of(code(row[1]))]
            assert not wrong


@pytest.mark.parametrize("segment_bytes, rows", named("placement"))
def test_entries_are_placed_as_documented(segment_bytes: str, rows: Rows) -> None:
    for row in rows:
        end, size, blank, position = map(int, row)
        assert placement(LogPosition(end), size, int(segment_bytes)) == (blank, position)


def example(name: str) -> str:
    return next("".join(row[0] + "\n" for row in rows) for _, what, rows in tables(FORMATS) if what == name)


def test_the_example_of_two_no_ops_is_what_the_code_writes() -> None:
    first, chain = pack(0, 1, 1_700_000_000_000, EntryKind.NOOP, b"", 0)
    second, _ = pack(48, 1, 1_700_000_000_000, EntryKind.NOOP, b"", chain)
    assert example("noops") == f"{first.hex(' ', 4)}\n{second.hex(' ', 4)}\n"


def test_the_example_of_a_membership_is_what_the_code_writes() -> None:
    members = Member(NodeId("n1"), Incarnation(5), True), Member(NodeId("n2"), Incarnation(6), False)
    assert example("membership") == encode_membership(Membership(members)).hex() + "\n"


@pytest.mark.parametrize("what, rows", named("commands"))
def test_each_command_is_documented_with_its_arguments(what: str, rows: Rows) -> None:
    actual = {}
    for name, function in inspect.getmembers(commands, inspect.isfunction):
        if inspect.signature(function).return_annotation == commands.Command:
            parameters = list(inspect.signature(function).parameters)
            command = function(*parameters)
            assert list(command[2:]) == parameters, "arguments are written in the order in which they are taken"
            actual[command[0]] = (command[1], ", ".join(parameters))
            assert command[0] == name
    assert {code(name): (int(version), arguments) for name, version, arguments in rows} == actual


@pytest.mark.parametrize("what, rows", named("fields"))
def test_a_record_has_the_documented_fields(what: str, rows: Rows) -> None:
    assert [field.name for field in fields(resolve(what))] == [code(row[0]) for row in rows]


@pytest.mark.parametrize("what, rows", named("state"))
def test_the_state_has_the_documented_keys(what: str, rows: Rows) -> None:
    assert list(msgpack.unpackb(StateMachine().snapshot())) == [code(row[0]) for row in rows]


@pytest.mark.parametrize("what, rows", named("identity"))
def test_the_identity_has_the_documented_keys(what: str, rows: Rows) -> None:
    data = identity.encode(identity.new("c", "g", "n", 1, StoreConfig()))
    assert list(json.loads(data)) == [code(row[0]) for row in rows]


class Now:
    """A lane that does its jobs at once; it is also a network that loses everything."""

    def submit(self, job: Any, done: Any) -> None:
        done(job())

    def send(self, letter: Any) -> None:
        pass


def lone_replica(disk: SimDisk) -> Replica:
    node = NodeConfig(cluster="c", group="g", node="n1", voters=("n1",), directory="n1")
    store = StoreConfig(segment_bytes=4096, index_slots=16, index_units=64, queue_file_units=16)
    replica = Replica(BrokerConfig(node=node, store=store), disk, Now(), Now(), Now(), SimClock(World(1)), Random(1))
    replica.start()
    for _ in range(200):
        replica.tick()
        replica.turn()
    return replica


BLANKS = {"<20 digits>": r"\d{20}", "<17 digits>": r"\d{17}", "<topic>": "[^/]+", "<queue>": r"\d+", "<n>": r"\d+"}


def test_a_store_holds_only_files_that_are_documented(tmp_path: Path) -> None:
    patterns = {}
    for _, _, rows in [table for table in tables(FORMATS) if table[0] == "files"]:
        for name in (code(name) for row in rows for name in row[0].split(", ")):
            pattern = re.escape(name)
            for blank, meaning in BLANKS.items():
                pattern = pattern.replace(re.escape(blank), meaning)
            patterns[name] = re.compile(pattern)
    disk = SimDisk(Random(1))
    replica = lone_replica(disk)
    replica.create_topic(TOPIC, 1, lambda result: None)
    replica.turn()
    request, _, _ = make_send("p", 0, 0, [20, 20], Random(1), identity=True)
    replica.send(request, lambda result: None)
    replica.turn()
    replica.derived.distrust()
    disk.replace(MENDING, b"0")  # there while a damaged node mends its log
    seen = set(disk.files())
    real = RealDisk(tmp_path)
    real.lock()
    seen.update(real.list(""))
    assert [name for name in seen if not any(pattern.fullmatch(name) for pattern in patterns.values())] == []
    unseen = [name for name, pattern in patterns.items() if not any(pattern.fullmatch(each) for each in seen)]
    assert unseen == []


# What documents say about the project itself.


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_file_that_a_document_names_exists(path: Path) -> None:
    text = path.read_text()
    modules = re.findall(r"\b((?:[a-z_]+/)+[a-z_0-9]+\.(?:py|txt))\b", text)
    links = re.findall(r"\]\(([^)#:]+)\)", text)
    missing = [name for name in modules if not (ROOT / name).exists()]
    missing += [link for link in links if not (path.parent / link).exists()]
    transcripts = re.findall(r"`(\w+\.txt)`", text)
    missing += [name for name in transcripts if not (ROOT / "tests" / "dledger" / "transcripts" / name).exists()]
    assert missing == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_no_document_names_a_path_of_one_machine(path: Path) -> None:
    top = "home|root|tmp|usr|var|opt|mnt|work|Users"
    assert re.findall(rf"(?<![\w.<>/])(?:/(?:{top})\b|[A-Z]:\\)\S*", path.read_text()) == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_make_target_that_a_document_names_exists(path: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named_targets = set(re.findall(r"(?:`|^)make ([a-z]+)", path.read_text(), re.MULTILINE))
    assert named_targets <= targets


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_command_that_a_document_names_exists(path: Path) -> None:
    from typer.main import get_command  # noqa: PLC0415 (typer is slow to import, and only this test needs it)

    from cli.main import app  # noqa: PLC0415

    root: Any = get_command(app)
    for line in re.findall(r"\bdlmq ((?:[a-z]+ ?)+(?:\S* ?)*?)(?=[`|#\n])", path.read_text()):
        words, command = line.split(), root
        while words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words.pop(0)]
        group = bool(getattr(command, "commands", {}))
        assert command is not root and not (group and words), f"dlmq {line}: no such command"
        known = {name for parameter in command.params for name in parameter.opts} | {"--help"}
        assert {word for word in words if word.startswith("--")} <= known, f"dlmq {line}"


def test_the_readme_states_the_test_command_that_ci_runs() -> None:
    run = re.search(r"^exec (.+)$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    assert run is not None
    section = (ROOT / "README.md").read_text().split("## Test\n")[1].split("\n## ")[0]
    assert section.split("```")[1].strip() == run[1]
