"""What the simulated disk forgets, tears and refuses."""

import errno
from random import Random

import pytest

from chaos.simdisk import SimDisk
from store.disk import DiskError, File


def durable_file(disk: SimDisk, name: str = "d/a", size: int = 4096) -> File:
    file = disk.create(name, size)
    disk.sync(disk.ticket([file]))
    disk.sync_dir("d")
    return file


def test_synced_bytes_survive_every_crash() -> None:
    for seed in range(50):
        disk = SimDisk(Random(seed))
        file = durable_file(disk)
        file.write_at(100, b"kept" * 100)
        disk.sync(disk.ticket([file]))
        file.write_at(1000, b"lost" * 500)
        assert disk.durable_bytes("d/a")[100:500] == b"kept" * 100
        disk.crash()
        assert disk.read("d/a")[100:500] == b"kept" * 100


def test_an_unsynced_write_is_whole_gone_or_torn() -> None:
    seen = set()
    for seed in range(300):
        disk = SimDisk(Random(seed))
        file = durable_file(disk)
        file.write_at(700, b"x" * 1500)
        disk.crash()
        after = disk.read("d/a")
        assert set(after[:700] + after[2200:]) == {0}
        count = after.count(b"x")
        seen.add("gone" if not count else "whole" if count == 1500 else "torn")
        if 0 < count < 1500:
            seen.add("prefix" if after[700 : 700 + count] == b"x" * count else "sectors")
    assert seen == {"gone", "whole", "torn", "prefix", "sectors"}


def test_later_writes_may_survive_earlier_ones() -> None:
    def survivors(seed: int) -> tuple[bool, bool]:
        disk = SimDisk(Random(seed))
        file = durable_file(disk)
        file.write_at(0, b"1")
        file.write_at(1024, b"2")
        disk.crash()
        after = disk.read("d/a")
        return after[0] == ord("1"), after[1024] == ord("2")

    assert {survivors(seed) for seed in range(100)} == {(a, b) for a in (False, True) for b in (False, True)}


def test_a_sync_covers_only_what_was_written_before_its_ticket() -> None:
    disk = SimDisk(Random(0))
    file = durable_file(disk)
    file.write_at(0, b"before")
    ticket = disk.ticket([file])
    file.write_at(100, b"after")
    file.write_at(0, b"BEFORE")
    disk.sync(ticket)
    assert disk.durable_bytes("d/a")[:6] == b"before"
    assert disk.durable_bytes("d/a")[100:105] == bytes(5)
    disk.sync(disk.ticket([file]))
    assert disk.durable_bytes("d/a")[:6] == b"BEFORE"
    assert disk.durable_bytes("d/a")[100:105] == b"after"


def test_a_file_whose_directory_was_not_synced_may_vanish_with_its_synced_bytes() -> None:
    def after(seed: int) -> bool:
        disk = SimDisk(Random(seed))
        file = disk.create("d/a", 64)
        file.write_at(0, b"x")
        disk.sync(disk.ticket([file]))
        disk.crash()
        return disk.exists("d/a")

    assert {after(seed) for seed in range(30)} == {False, True}


def test_unsynced_names_survive_as_a_prefix() -> None:
    for seed in range(100):
        disk = SimDisk(Random(seed))
        durable_file(disk, "d/a")
        disk.rename("d/a", "d/b")
        disk.open("d/c").close()
        disk.remove("d/b")
        disk.crash()
        assert disk.list("d") in (["a"], ["b"], ["b", "c"], ["c"])


def test_sync_dir_covers_its_own_directory_and_those_above_only() -> None:
    disk = SimDisk(Random(0))
    for name in ("a/b/x", "a/y", "z", "c/w"):
        disk.open(name).close()
    disk.sync_dir("a/b")
    lost = set()
    for seed in range(40):
        again = SimDisk(Random(0))
        for name in ("c/w", "a/b/x", "a/y", "z"):
            again.open(name).close()
        again.sync_dir("a/b")
        again.crash(Random(seed))
        assert {"a/b/x", "a/y", "z"} <= set(again.files())
        lost.add(again.exists("c/w"))
    assert lost == {False, True}


def test_replace_is_old_or_new_and_durable() -> None:
    for seed in range(20):
        disk = SimDisk(Random(seed))
        disk.replace("config/x", b"old")
        disk.replace("config/x", b"new")
        disk.crash()
        assert disk.read("config/x") == b"new"


def test_open_files_are_dead_after_a_crash_a_kill_and_a_wipe() -> None:
    for end in (SimDisk.crash, SimDisk.kill, SimDisk.wipe):
        disk = SimDisk(Random(0))
        file = durable_file(disk)
        ticket = disk.ticket([file])
        disk.lock()
        end(disk)
        uses = (
            lambda file=file: file.write_at(0, b"x"),
            lambda file=file: file.pread(0, 1),
            lambda file=file: file.view(0, 1),
            lambda file=file: file.size,
            lambda disk=disk, ticket=ticket: disk.sync(ticket),
            lambda disk=disk, file=file: disk.ticket([file]),
        )
        for use in uses:
            with pytest.raises(DiskError) as caught:
                use()
            assert caught.value.errno == errno.ESTALE
        disk.lock()


def test_a_killed_process_leaves_visible_bytes_that_are_still_not_durable() -> None:
    disk = SimDisk(Random(3))
    file = durable_file(disk)
    file.write_at(0, b"unsynced")
    disk.kill()
    assert disk.read("d/a")[:8] == b"unsynced"
    assert disk.durable_bytes("d/a")[:8] == bytes(8)
    disk.sync(disk.ticket([disk.open("d/a", mapped=True)]))
    assert disk.durable_bytes("d/a")[:8] == b"unsynced"


def test_after_a_failed_sync_bytes_stay_visible_and_never_become_durable() -> None:
    disk = SimDisk(Random(0))
    file = durable_file(disk)
    file.write_at(0, b"x")
    disk.fail_next("sync", errno.EIO)
    with pytest.raises(DiskError):
        disk.sync(disk.ticket([file]))
    disk.kill()
    disk.sync(disk.ticket([disk.open("d/a", mapped=True)]))
    assert disk.read("d/a")[0] == ord("x")
    assert disk.durable_bytes("d/a")[0] == 0


def test_each_operation_fails_once_when_told_to() -> None:
    disk = SimDisk(Random(0))
    file = durable_file(disk)
    disk.fail_next("write", errno.EIO)
    with pytest.raises(DiskError, match="write"):
        file.write_at(0, b"x")
    assert file.pread(0, 1) == b"\0"
    file.write_at(0, b"x")
    disk.fail_next("pread", errno.EIO)
    with pytest.raises(DiskError, match="pread"):
        file.pread(0, 1)
    assert file.pread(0, 1) == b"x"
    disk.fail_next("create", errno.ENOSPC)
    with pytest.raises(DiskError) as caught:
        disk.create("d/b", 16)
    assert caught.value.full and disk.list("d") == ["a"]
    disk.create("d/b", 16)


def test_a_full_disk_refuses_growth_and_nothing_else() -> None:
    disk = SimDisk(Random(0), capacity=10_000)
    file = durable_file(disk)
    grown = disk.open("d/g")
    grown.write_at(0, bytes(4000))
    assert disk.usage() == pytest.approx(0.8096)
    for growth in (lambda: disk.create("d/b", 4096), lambda: grown.write_at(4000, bytes(4000))):
        with pytest.raises(DiskError) as caught:
            growth()
        assert caught.value.full
    file.write_at(0, b"x")
    grown.write_at(10, b"x")
    disk.remove("d/g")
    disk.create("d/b", 4096)
    disk.full = True
    assert disk.usage() == 1.0
    with pytest.raises(DiskError):
        disk.replace("d/c", b"")
    disk.full = False
    disk.replace("d/c", b"abc")
    disk.replace("d/c", b"ab")
    assert disk.usage() == pytest.approx(0.8194)


def test_a_flipped_bit_is_seen_and_stays() -> None:
    disk = SimDisk(Random(0))
    file = durable_file(disk)
    disk.flip_bit("d/a", 5, 3)
    assert file.pread(5, 1) == b"\x08"
    disk.crash()
    assert disk.read("d/a")[5] == 8


def test_the_same_random_gives_the_same_crash() -> None:
    def image(seed: int) -> dict[str, bytes]:
        disk = SimDisk(Random(seed))
        for number in range(20):
            file = disk.create(f"d/{number}", 2048)
            if number % 2:
                disk.sync(disk.ticket([file]))
            if number % 5 == 0:
                disk.sync_dir("d")
            file.write_at(number * 10, bytes([number + 1]) * 1200)
        disk.crash()
        return {name: disk.read(name) for name in disk.files()}

    assert image(7) == image(7)
    assert image(7) != image(8)
