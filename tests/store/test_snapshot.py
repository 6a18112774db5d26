"""Control snapshots."""

import struct
from dataclasses import astuple, replace
from random import Random
from typing import Any

import crc32c
import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos.simdisk import SimDisk
from model.errors import NewerFormat
from store import snapshot
from store.hardstate import DamagedState
from store.snapshot import ControlSnapshot
from tests.store.powercut import crash_everywhere

OLD = ControlSnapshot(
    position=8192, log_start=4096, base_term=2, base_chain=77, epochs=((2, 4096), (5, 5000)),
    memberships=((-1, b"first"), (4500, b"second")), chain=2**32 - 1, time_ms=1_700_000_000_000, state=b"\x00state" * 9,
)
NEW = replace(OLD, position=9000, chain=5)


def sealed(parts: Any, version: int = 1) -> bytes:
    """A snapshot whose checksum is right, whatever it says."""
    body: bytes = msgpack.packb(parts)
    head = struct.pack(">4sIQ", b"DLCS", version, len(body))
    return head + struct.pack(">I", crc32c.crc32c(body, crc32c.crc32c(head))) + body


def test_what_was_encoded_is_decoded() -> None:
    assert snapshot.decode(snapshot.encode(OLD)) == OLD
    assert snapshot.decode(memoryview(snapshot.encode(OLD))) == OLD
    empty = ControlSnapshot(0, 0, 0, 0, (), ((-1, b""),), 0, 0, b"")
    assert snapshot.decode(snapshot.encode(empty)) == empty


def test_the_newest_counts_and_older_ones_go() -> None:
    disk = SimDisk(Random(1))
    assert snapshot.load_newest(disk) is None
    snapshot.write(disk, OLD)
    assert snapshot.load_newest(disk) == OLD
    snapshot.write(disk, NEW)
    assert snapshot.load_newest(disk) == NEW
    assert disk.files() == [f"config/snapshot/{9000:020d}.0", f"config/snapshot/{9000:020d}.1"]


def test_a_crash_at_any_step_of_a_write_leaves_the_old_or_the_new_one() -> None:
    def prepare(disk: SimDisk) -> None:
        snapshot.write(disk, OLD)

    for disk, finished in crash_everywhere(prepare, lambda disk: snapshot.write(disk, NEW)):
        found = snapshot.load_newest(disk)
        assert found == NEW if finished else found in (OLD, NEW)


def test_every_flip_and_cut_of_one_copy_is_harmless_and_of_both_a_clear_error() -> None:
    disk = SimDisk(Random(1))
    snapshot.write(disk, OLD)
    first, second = disk.files()
    data = disk.read(first)
    for at in range(len(data)):
        for damaged in (data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :], data[:at]):
            for name in (first, second):
                disk.replace(name, damaged)
                assert snapshot.load_newest(disk) == OLD
                assert snapshot.damaged_copies(disk) == (name,)
                disk.replace(name, data)
            disk.replace(first, damaged)
            disk.replace(second, data[: at // 2])
            with pytest.raises(DamagedState):
                snapshot.load_newest(disk)
            disk.replace(first, data)
            disk.replace(second, data)


def test_a_write_that_never_finished_does_not_hide_the_older_one() -> None:
    disk = SimDisk(Random(1))
    snapshot.write(disk, OLD)
    disk.replace(f"config/snapshot/{9000:020d}.0", b"damaged")
    assert snapshot.load_newest(disk) == OLD
    disk.replace(f"config/snapshot/{9000:020d}.1", b"damaged too")
    with pytest.raises(DamagedState, match="no valid copy"):
        snapshot.load_newest(disk)


def test_a_snapshot_under_a_false_name_does_not_count() -> None:
    disk = SimDisk(Random(1))
    for copy in "01":
        disk.replace(f"config/snapshot/{1:020d}.{copy}", snapshot.encode(OLD))
    with pytest.raises(DamagedState):
        snapshot.load_newest(disk)


def test_other_files_in_the_directory_are_left_alone() -> None:
    disk = SimDisk(Random(1))
    disk.replace("config/snapshot/00000000000000009999.0.tmp", b"left by a crash")
    snapshot.write(disk, OLD)
    assert snapshot.load_newest(disk) == OLD


def test_a_newer_format_is_told_apart_from_damage() -> None:
    with pytest.raises(NewerFormat, match="format 2"):
        snapshot.decode(sealed(["something", "else"], version=2))


@pytest.mark.parametrize(
    "at, value",
    [
        (0, -1), (0, "8192"), (0, 4000), (0, True), (1, 9000), (2, 3), (3, 2**32), (4, None), (4, [[2, 4096], [5]]),
        (4, [[5, 4096], [2, 5000]]), (4, []), (4, [[2, 4097]]), (4, [[2, 4096], [5, 8192]]), (5, [[4500, "text"]]),
        (5, [[5, b""], [4, b""]]), (5, [[-2, b""]]), (5, [[8192, b""]]), (6, -1), (7, 1.5), (8, "state"),
    ],
)
def test_fields_out_of_bounds_are_damage_even_under_a_right_checksum(at: int, value: object) -> None:
    parts: list[object] = list(astuple(OLD))
    assert snapshot.decode(sealed(parts)) == OLD
    parts[at] = value
    with pytest.raises(DamagedState):
        snapshot.decode(sealed(parts))


@given(st.binary(max_size=60))
def test_garbage_is_damage_and_nothing_else(garbage: bytes) -> None:
    with pytest.raises(DamagedState):
        snapshot.decode(garbage)
    head = struct.pack(">4sIQ", b"DLCS", 1, len(garbage))
    with pytest.raises(DamagedState):
        snapshot.decode(head + struct.pack(">I", crc32c.crc32c(garbage, crc32c.crc32c(head))) + garbage)
