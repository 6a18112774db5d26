"""store/check.py: a whole store is whole, and every kind of damage is named; stores are made by production Replicas."""

import shutil
from pathlib import Path

import pytest

from bench.lone import Lone, lone_config, request
from cli.checking import ReplicatedTopics
from model.errors import NotAStore, StoreLocked
from store.check import Repair, Report, check
from store.config import StoreConfig
from store.consumequeue import UNIT_BYTES
from store.readonly import ReadOnlyDisk

TINY = StoreConfig(
    segment_bytes=4096, queue_file_units=8, index_slots=16, index_units=24, checkpoint_bytes=1 << 30
)


def checked(directory: Path) -> Report:
    return check(ReadOnlyDisk(directory), ReplicatedTopics)


def fill(node: Lone, topic: str, rounds: int, queues: int = 2) -> None:
    for number in range(rounds):
        properties = f"TAGS\x01red\x02KEYS\x01order-{number}".encode()
        node.send(request(topic, number % queues, [b"body of %d" % number] * 2, properties))


def store(directory: Path, config: StoreConfig = TINY, rounds: int = 24) -> Lone:
    node = Lone(lone_config(directory, config)).start()
    node.create_topic("orders", 2)
    fill(node, "orders", rounds)
    return node


@pytest.fixture(scope="module")
def pattern(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store after a clean stop, made once; tests work on copies."""
    directory = tmp_path_factory.mktemp("pattern") / "s"
    store(directory).stop()
    return directory


@pytest.fixture
def root(pattern: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(pattern, tmp_path / "s"))


def flip(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 0x40
    file.write_bytes(data)


def names(report: Report) -> set[str]:
    return {found.file for found in report.findings}


def test_a_store_is_whole_after_a_clean_stop(root: Path) -> None:
    report = checked(root)
    assert report.findings == [] and report.notes == []
    assert report.clean_stop and report.segments >= 3 and report.messages == 48
    assert (report.topics, report.queues, report.runs) == (1, 2, [(1, 0)])
    assert report.marks is not None and report.marks.commit == report.end == report.marks.durable
    assert report.chain_at_commit == report.chain_at_end


def test_a_store_is_whole_after_a_kill(tmp_path: Path) -> None:
    node = store(tmp_path / "s")
    node.kill()
    report = checked(tmp_path / "s")
    assert report.findings == [] and not report.clean_stop


@pytest.mark.parametrize("shape", [(8, 16, 24), (300_000, 5000, 1000), (5, 7, 9), (300_000, 33, 20_000_000)])
def test_the_knobs_of_derived_files_are_those_of_the_identity(tmp_path: Path, shape: tuple[int, int, int]) -> None:
    units, slots, keys = shape
    config = StoreConfig(segment_bytes=4096, queue_file_units=units, index_slots=slots, index_units=keys)
    store(tmp_path / "s", config).stop()
    report = checked(tmp_path / "s")
    assert report.findings == []
    assert report.identity is not None and report.identity.shape == config


def test_a_store_whose_head_was_dropped_is_whole(tmp_path: Path) -> None:
    node = store(tmp_path / "s", rounds=60)
    node.replica.propose_log_start(8192)
    node.settle()
    fill(node, "orders", 10)
    node.stop()
    report = checked(tmp_path / "s")
    assert report.start == 8192 and report.findings == []


def test_a_topic_deleted_above_the_checkpoint_is_no_damage(root: Path) -> None:
    node = Lone(lone_config(root, TINY)).start()
    fill(node, "orders", 3)
    node.delete_topic("orders")
    node.create_topic("orders", 1)
    fill(node, "orders", 5, queues=1)
    node.kill()
    assert checked(root).findings == []
    node = Lone(lone_config(root, TINY)).start()
    node.stop()
    assert checked(root).findings == []


def test_a_flipped_byte_in_any_file_is_found_and_the_file_named(root: Path) -> None:
    end = checked(root).end
    looked = set()
    for file in sorted(path for path in root.rglob("*") if path.is_file() and path.name != "lock"):
        name = file.relative_to(root).as_posix()
        size = file.stat().st_size
        if name.startswith("commitlog/"):
            size = min(size, end - int(file.name))
        for at in {0, size // 2, size - 1} if size > 0 else ():
            whole = file.read_bytes()
            flip(file, at)
            assert names(checked(root)) == {name}, (name, at)
            file.write_bytes(whole)
            looked.add(name.split("/")[0])
    assert looked == {"commitlog", "consumequeue", "index", "config", "checkpoint", "checkpoint.1"}
    assert checked(root).whole


def test_an_altered_queue_unit_is_damage_that_a_rebuild_mends(root: Path) -> None:
    queue = root / "consumequeue/orders/1/00000000000000000160"
    flip(queue, 3 * UNIT_BYTES + 7)
    (found,) = checked(root).findings
    assert found.file == "consumequeue/orders/1/00000000000000000160"
    assert found.position == 3 * UNIT_BYTES + 7 and found.repair is Repair.REBUILD
    (root / "config/doubt.1").touch()
    assert checked(root).whole, "the next start rebuilds"
    node = Lone(lone_config(root, TINY)).start()
    node.stop()
    report = checked(root)
    assert report.findings == [] and report.notes == []


@pytest.mark.parametrize("change", ["missing", "short", "long", "stray"])
def test_a_queue_file_of_the_wrong_extent_is_damage(root: Path, change: str) -> None:
    queue = root / "consumequeue/orders/0/00000000000000000000"
    name = queue.relative_to(root).as_posix()
    if change == "missing":
        queue.unlink()
    elif change == "short":
        queue.write_bytes(queue.read_bytes()[:-UNIT_BYTES])
    elif change == "long":
        queue = max(queue.parent.iterdir())
        name = queue.relative_to(root).as_posix()
        queue.write_bytes(queue.read_bytes() + queue.read_bytes()[:UNIT_BYTES])
    else:
        name = "consumequeue/ghost/0/00000000000000000000"
        (root / name).parent.mkdir(parents=True)
        (root / name).write_bytes(queue.read_bytes())
    assert names(checked(root)) == {name}


def test_units_above_the_checkpoint_may_be_anything_after_a_crash(root: Path) -> None:
    node = Lone(lone_config(root, TINY)).start()
    fill(node, "orders", 6)
    node.kill()
    queue = max((root / "consumequeue/orders/0").iterdir())
    flip(queue, queue.stat().st_size - 3)
    report = checked(root)
    assert report.findings == [] and "next start" in report.notes[0]
    Lone(lone_config(root, TINY)).start().stop()
    assert checked(root).notes == []


def test_a_torn_tail_is_no_damage_and_a_tear_below_the_watermark_is(root: Path) -> None:
    end = checked(root).end
    tail = root / f"commitlog/{end // 4096 * 4096:020d}"
    data = bytearray(tail.read_bytes())
    data[end % 4096 : end % 4096 + 5] = b"DLMQ!"
    tail.write_bytes(data)
    report = checked(root)
    assert report.findings == [] and report.torn_bytes == 5 and "torn tail" in report.notes[0]
    data[end % 4096 - 9 :] = bytes(4096 - end % 4096 + 9)
    tail.write_bytes(data)
    (found,) = checked(root).findings
    assert found.repair is Repair.PEER and found.file == f"commitlog/{tail.name}"


def test_damage_in_two_segments_is_named_twice(root: Path) -> None:
    for base in (0, 8192):
        flip(root / f"commitlog/{base:020d}", 1000)
    report = checked(root)
    assert [found.file for found in report.findings] == [f"commitlog/{base:020d}" for base in (0, 8192)]
    assert any("only up to" in note for note in report.notes)


@pytest.mark.parametrize("pair", [
    ("config/identity.json", "config/identity.json.copy"),
    ("config/hardstate.0", "config/hardstate.1"),
    ("checkpoint", "checkpoint.1"),
])
def test_a_record_without_an_intact_copy_cannot_be_repaired_in_place(root: Path, pair: tuple[str, str]) -> None:
    for name in pair:
        flip(root / name, 40)
    (found,) = checked(root).findings
    assert found.file == pair[0] and found.repair is Repair.ANEW


def test_a_snapshot_without_an_intact_copy_ends_the_check(root: Path) -> None:
    for file in (root / "config/snapshot").iterdir():
        flip(file, 30)
    (found,) = checked(root).findings
    assert found.file.startswith("config/snapshot/") and found.repair is Repair.ANEW


def test_records_that_belong_to_another_log_are_damage(root: Path, tmp_path: Path) -> None:
    other = Lone(lone_config(tmp_path / "other", TINY)).start()
    other.create_topic("another-name", 1)
    fill(other, "another-name", 11, queues=1)
    other.stop()
    for name in ("checkpoint", "checkpoint.1"):
        (root / name).write_bytes((tmp_path / "other" / name).read_bytes())
    assert names(checked(root)) == {"checkpoint"}


def test_a_node_without_a_group_is_whole(tmp_path: Path) -> None:
    config = lone_config(tmp_path / "s", TINY)
    alone = config.__class__(node=config.node.__class__(
        cluster="c1", group="g1", node="n1", voters=("n1", "n2"), directory=str(tmp_path / "s")), store=TINY)
    node = Lone(alone)
    node.replica.start()
    node.replica.stop()
    report = checked(tmp_path / "s")
    assert report.findings == [] and "not joined" in report.notes[0]


def test_an_empty_directory_is_not_a_store(tmp_path: Path) -> None:
    with pytest.raises(NotAStore, match="is empty"):
        checked(tmp_path)


def test_a_reader_and_a_running_node_refuse_each_other(tmp_path: Path) -> None:
    node = store(tmp_path / "s", rounds=1)
    disk = ReadOnlyDisk(tmp_path / "s")
    with pytest.raises(StoreLocked):
        disk.lock()
    node.stop()
    disk.lock()
    with pytest.raises(StoreLocked):
        Lone(node.config).start()
    disk.unlock()
    Lone(node.config).start().stop()
