"""`dlmq store check` and `dlmq store dump`: exit codes, one clear line for bad input, and nothing changed on disk."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from typer.testing import CliRunner, Result

from bench.lone import Lone, lone_config, request
from cli.main import app
from store import identity
from store.config import StoreConfig
from store.realdisk import RealDisk

TINY = StoreConfig(segment_bytes=4096, queue_file_units=8, index_slots=16, index_units=24)
NOBODY = 65534
State = dict[str, tuple[int, int, bytes]]


@pytest.fixture(scope="module")
def pattern(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("pattern") / "s"
    node = Lone(lone_config(directory, TINY)).start()
    node.create_topic("orders", 2)
    for number in range(12):
        properties = f"TAGS\x01red\x02KEYS\x01order-{number}".encode()
        bodies = [b"[bold]body %d[/nonsense]" % number] * (1 + number % 2 * 6)
        node.send(request("orders", number % 2, bodies, properties))
    node.stop()
    return directory


@pytest.fixture
def root(pattern: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(pattern, tmp_path / "s"))


def dlmq(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def state(directory: Path) -> State:
    """Names, sizes, modification times and contents: what a command that changes nothing leaves as it was."""
    found = {}
    for path in [directory, *sorted(directory.rglob("*"))]:
        about = path.stat()
        data = path.read_bytes() if path.is_file() else b""
        found[path.relative_to(directory).as_posix()] = (about.st_size, about.st_mtime_ns, data)
    return found


def config_file(directory: Path, store: StoreConfig = TINY, **changes: str) -> Path:
    node = {"cluster": "c1", "group": "g1", "node": "n1", **changes}
    file = directory / "node.toml"
    lines = ["[node]", *(f'{key} = "{value}"' for key, value in node.items()), f'voters = ["{node["node"]}"]']
    knobs = [f"{name} = {getattr(store, name)}" for name in identity.SHAPE]
    file.write_text("\n".join([*lines, 'directory = "s"', "[store]", *knobs]))
    return file


def refused(result: Result, *words: str) -> None:
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.splitlines()
    assert result.stdout == "" and "Traceback" not in line
    for word in words:
        assert word in line


def flip(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)


# check


def test_a_whole_store_ends_with_0_and_nothing_is_changed(root: Path) -> None:
    before = state(root)
    result = dlmq("store", "check", root)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1] == "whole: every crc, the chain and all derived files verify"
    assert "node n1 of group g1 in cluster c1" in result.stdout
    assert state(root) == before


def test_json_has_every_fact(root: Path) -> None:
    facts = json.loads(dlmq("store", "check", root, "--json").stdout)
    assert facts["whole"] and facts["messages"] == 48 and facts["topics"] == 1 and facts["queues"] == 2
    assert facts["commit"] == facts["durable"] == facts["end"] and facts["chain_at_commit"] == facts["chain_at_end"]
    assert facts["epochs"] == [{"term": 1, "start": 0}] and facts["membership"][0]["node"] == "n1"
    assert facts["findings"] == [] and facts["identity"]["index_slots"] == 16


@pytest.mark.parametrize("name, repair", [
    ("commitlog/00000000000000000000", "peer"),
    ("consumequeue/orders/1/00000000000000000000", "rebuild"),
    ("index/*", "rebuild"),
    ("config/snapshot/*.1", "itself"),
    ("config/identity.json", "itself"),
    ("config/hardstate.1", "itself"),
    ("checkpoint", "itself"),
])
def test_a_damaged_store_ends_with_1_and_names_the_file(root: Path, name: str, repair: str) -> None:
    (file, *_) = sorted(root.glob(name))
    flip(file, 100)
    before = state(root)
    result = dlmq("store", "check", root)
    relative = file.relative_to(root).as_posix()
    assert result.exit_code == 1 and "Traceback" not in result.output
    assert any(line.startswith(f"damaged: {relative}") for line in result.stdout.splitlines()), result.stdout
    facts = json.loads(dlmq("store", "check", root, "--json").stdout)
    assert [(found["file"], found["repair"]) for found in facts["findings"]] == [(relative, repair)]
    assert state(root) == before


# Bad input, for both commands.


def not_a_store(kind: str, directory: Path) -> Path:
    place = directory / "place"
    if kind == "file":
        place.write_bytes(b"hello")
    elif kind != "missing":
        place.mkdir()
    if kind == "other":
        (place / "letter.txt").write_text("Dear Sir")
    return place


@pytest.mark.parametrize("command", ["check", "dump"])
@pytest.mark.parametrize("kind, word", [
    ("missing", "there is no directory"), ("file", "is not a directory"), ("empty", "is empty"), ("other", "holds no"),
])
def test_what_is_not_a_store_ends_with_2(tmp_path: Path, command: str, kind: str, word: str) -> None:
    place = not_a_store(kind, tmp_path)
    before = state(tmp_path)
    refused(dlmq("store", command, place), word, "check the path")
    assert state(tmp_path) == before


@pytest.mark.parametrize("command", ["check", "dump"])
@pytest.mark.parametrize("key, value", [("cluster", "c2"), ("group", "g2"), ("node", "n2")])
def test_the_store_of_another_node_ends_with_2(root: Path, tmp_path: Path, command: str, key: str, value: str) -> None:
    config = config_file(tmp_path, TINY, **{key: value})
    before = state(root)
    result = dlmq("store", command, root, "--config", config)
    refused(result, f"{key} is '", f"not '{value}'", "belongs to another node")
    assert state(root) == before


@pytest.mark.parametrize("command", ["check", "dump"])
def test_a_store_of_the_configured_node_is_accepted_and_one_of_another_shape_is_not(
    root: Path, tmp_path: Path, command: str
) -> None:
    assert dlmq("store", command, root, "--config", config_file(tmp_path)).exit_code == 0
    config = config_file(tmp_path, replace(TINY, index_slots=17))
    result = dlmq("store", command, root, "--config", config)
    refused(result, "index_slots is 16, not 17", "fixed for the life of a group")


@pytest.mark.parametrize("command", ["check", "dump"])
def test_a_store_of_a_newer_format_ends_with_2(root: Path, command: str) -> None:
    for name in identity.NAMES:
        record = json.loads((root / name).read_text())
        (root / name).write_text(json.dumps({**record, "format": 99}))
    before = state(root)
    refused(dlmq("store", command, root), "format 99", "newer release")
    assert state(root) == before


@contextmanager
def as_nobody() -> Iterator[None]:
    """Root may read everything, so be somebody else for a moment."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("command", ["check", "dump"])
@pytest.mark.parametrize("name", ["", "config", "config/identity.json", "commitlog", "commitlog/00000000000000000000"])
def test_missing_permissions_end_with_2(pattern: Path, command: str, name: str) -> None:
    with TemporaryDirectory() as place:  # pytest's own directories are closed to others all the way up
        root = Path(shutil.copytree(pattern, Path(place) / "s"))
        for path in (root.parent, root, *root.rglob("*")):
            path.chmod(0o755)
        before = state(root)
        with as_nobody():
            assert dlmq("store", command, root).exit_code == 0
        (root / name).chmod(0)
        with as_nobody():
            result = dlmq("store", command, root)
        (root / name).chmod(0o755)
        refused(result, "Permission denied", "check owner and mode")
        assert state(root) == before


@pytest.mark.parametrize("command", ["check", "dump"])
def test_a_store_that_a_node_uses_ends_with_2(root: Path, command: str) -> None:
    disk = RealDisk(root)
    disk.lock()
    before = state(root)
    refused(dlmq("store", command, root), "in use by another process")
    disk.unlock()
    assert state(root) == before
    assert dlmq("store", command, root).exit_code == 0


def test_all_mistakes_of_a_configuration_are_named(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "bad.toml"
    file.write_text('[node]\ncluster = "c 1"\n[store]\nsegment_bytes = 5\n')
    result = dlmq("store", "check", root, "--config", file)
    assert result.exit_code == 2 and "Traceback" not in result.output
    assert all(word in result.stderr for word in ("node.cluster", "segment_bytes = 5", "node.node is missing"))


def test_a_configuration_that_cannot_be_read_ends_with_2(root: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("node = [")
    for name, word in (("none.toml", "cannot be read"), ("bad.toml", "is not TOML")):
        result = dlmq("store", "check", root, "--config", tmp_path / name)
        assert result.exit_code == 2 and word in result.stderr and "Traceback" not in result.output


# dump


def test_a_dump_shows_entries_and_messages_for_people(root: Path) -> None:
    before = state(root)
    result = dlmq("store", "dump", root, "--limit", 40)
    assert result.exit_code == 0, result.output
    for words in ("noop", "topic_set 1 orders 2 2 6", "tag red", "keys order-3", "2023-11-14", "[bold]body"):
        assert words in result.stdout
    assert "the log ends here" in result.stdout
    assert state(root) == before


def test_a_dump_for_programs_has_an_object_a_line(root: Path) -> None:
    rows = [json.loads(line) for line in dlmq("store", "dump", root, "--json", "--limit", 1000).stdout.splitlines()]
    ends = [row["position"] + row["size"] for row in rows]
    assert [row["position"] for row in rows] == [0, *ends[:-1]]
    assert ends[-1] == json.loads(dlmq("store", "check", root, "--json").stdout)["end"]
    messages = [message for row in rows for message in row.get("messages", [])]
    assert len(messages) == 48
    assert [each["offset"] for each in messages if each["queue"] == 1] == list(range(42))
    assert messages[0] | {"position": 0} == {
        "topic": "orders", "queue": 0, "offset": 0, "position": 0, "size": messages[0]["size"], "tag": "red",
        "keys": ["order-0"], "body_size": 23, "body": "[bold]body 0[/nonsense]",
    }  # fmt: skip


def test_a_dump_begins_where_it_is_told(root: Path) -> None:
    rows = [json.loads(line) for line in dlmq("store", "dump", root, "--json", "--limit", 1000).stdout.splitlines()]
    for row in rows:
        (line,) = dlmq("store", "dump", root, "--json", "--limit", 1, "--from", row["position"]).stdout.splitlines()
        assert json.loads(line) == row


def test_a_position_inside_an_entry_names_the_boundary_below(root: Path) -> None:
    refused(dlmq("store", "dump", root, "--from", 50), "position 50", "boundary below it is 48")


@pytest.mark.parametrize("beyond", ["a byte", "the next segment", "far", "far, where a segment would begin"])
def test_a_position_beyond_the_end_is_told_where_the_end_is(root: Path, beyond: str) -> None:
    end = json.loads(dlmq("store", "check", root, "--json").stdout)["end"]
    after = (end // 4096 + 1) * 4096
    position = {"a byte": end + 1, "the next segment": after, "far": 99_999_999}.get(beyond, 1000 * 4096)
    result = dlmq("store", "dump", root, "--from", position)
    refused(result, f"position {position} is beyond the end of the log at {end}")
    result = dlmq("store", "dump", root, "--from", end)
    assert result.exit_code == 0 and "0 entries; the log ends here" in result.stdout


def test_where_the_log_ends_is_not_told_when_its_last_entries_are_damaged(root: Path) -> None:
    rows = [json.loads(line) for line in dlmq("store", "dump", root, "--json", "--limit", 1000).stdout.splitlines()]
    last = rows[-1]["position"]
    flip(root / f"commitlog/{last // 4096 * 4096:020d}", last % 4096 + 20)
    position = last + rows[-1]["size"] + 1
    refused(dlmq("store", "dump", root, "--from", position), f"the entries before it end at {last}")


@pytest.mark.parametrize("position", ["99999999", "abc", "-5", "1e3", "", "\u0665"])
def test_a_position_that_makes_no_sense_ends_with_2(root: Path, position: str) -> None:
    refused(dlmq("store", "dump", root, f"--from={position}"), position)


def test_a_dump_of_a_damaged_log_shows_what_is_good_and_ends_with_1(root: Path) -> None:
    rows = [json.loads(line) for line in dlmq("store", "dump", root, "--json").stdout.splitlines()]
    flip(root / "commitlog/00000000000000000000", rows[3]["position"] + 60)
    result = dlmq("store", "dump", root, "--json")
    assert result.exit_code == 1
    assert [json.loads(line) for line in result.stdout.splitlines()] == rows[:3]
    assert f"position {rows[3]['position']}" in result.stderr
