"""Bugs that rare seeds found, as short scripts that do not depend on what a seed means (docs/TRACK_RECORD.md)."""

import errno
from typing import Any

import pytest

from broker.ports import Phase
from chaos.simdisk import SimDisk
from store.consumequeue import UNIT_BYTES
from store.scan import repair_in_place
from store.segment import segment_name
from tests.broker.group import COARSE, Group


def test_bytes_that_a_repair_could_not_sync_are_written_again_by_the_next_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seed 1771: the next process saw the mended bytes, below the watermark, and took them for durable."""
    group = Group(raft=COARSE, checkpoint_bytes=1 << 20, scrub_bytes_per_second=0).formed("n0")
    group.topic("t", 1)
    for _ in range(4):
        group.put(topic="t", queue=0, bodies=[b"x" * 100])
    group.converge()
    group.step(20)  # the watermark is saved
    group.kill("n1")
    disk: SimDisk = group.nodes["n1"].disk
    end = group["n0"].log.end
    clean = disk.durable_bytes(segment_name(0))[:end]
    disk.flip_bit(segment_name(0), end - 60, 3)

    def failing(*arguments: Any) -> tuple[int, int]:
        disk.fail_next("sync", errno.ENOSPC)
        return repair_in_place(*arguments)

    monkeypatch.setattr("broker.repair.repair_in_place", failing)
    group.start("n1")
    assert group.nodes["n1"].saw("damage_found")
    group.until(lambda: group["n1"].phase is Phase.STOPPED, 300, "the repair fails")
    assert disk.durable_bytes(segment_name(0))[:end] != clean
    group.kill("n1")
    group.start("n1")  # it sees the mended bytes: nothing to repair
    assert not group.nodes["n1"].saw("damage_found")
    assert disk.durable_bytes(segment_name(0))[:end] == clean


def test_torn_units_above_a_checkpoint_do_not_pass_for_old_ones() -> None:
    """Seed 1733: a unit whose position was lost in a power cut looked like one of the log's first messages."""
    group = Group(raft=COARSE, queue_file_units=8, checkpoint_bytes=1 << 20).formed("n0")
    group.topic("t", 1)
    group.put(topic="t", queue=0, bodies=[b"x"] * 7)
    group.converge()
    group.stop("n1")  # a checkpoint at seven units
    group.start("n1")
    group.put(topic="t", queue=0, bodies=[b"x"] * 5)
    group.converge()
    group.kill("n1")
    disk: SimDisk = group.nodes["n1"].disk
    first, second = (f"consumequeue/t/0/{at * UNIT_BYTES:020d}" for at in (0, 8))
    short, torn = disk.open(first), disk.open(second)
    short.truncate(7 * UNIT_BYTES)  # the eighth unit was lost ...
    torn.write_at(2 * UNIT_BYTES, bytes(8))  # ... and a later one lost its position
    disk.sync(disk.ticket([short, torn]))
    group.start("n1")
    assert not group.nodes["n1"].saw("derived_files_dropped")
    group.converge()
    assert group["n1"].derived.fingerprint() == group["n0"].derived.fingerprint()
