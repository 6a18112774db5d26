"""The Disk port, one suite for the real and the simulated disk, then what only the real one can show."""

import errno
import gc
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from chaos.simdisk import SimDisk
from model.errors import StoreLocked
from store.disk import Disk, DiskError
from store.realdisk import RealDisk


@pytest.fixture(params=["real", "simulated"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return RealDisk(tmp_path / "store") if request.param == "real" else SimDisk(Random(1))


def test_a_new_file_is_zero_filled_and_of_fixed_size(disk: Disk) -> None:
    file = disk.create("commitlog/0", 4096)
    assert file.size == 4096
    assert bytes(file.view(0, 4096)) == bytes(4096)
    file.write_at(4090, b"abcdef")
    assert file.pread(4088, 100) == b"\0\0abcdef"
    with pytest.raises((AssertionError, IndexError, ValueError)):
        file.write_at(4091, b"abcdef")


def test_creating_a_file_twice_fails(disk: Disk) -> None:
    disk.create("a", 16)
    with pytest.raises(DiskError) as caught:
        disk.create("a", 16)
    assert caught.value.errno == errno.EEXIST


def test_writes_are_seen_by_views_and_preads_at_once(disk: Disk) -> None:
    file = disk.create("a", 64)
    view = file.view(8, 4)
    file.write_at(8, memoryview(b"wxyz"))
    assert bytes(view) == b"wxyz"
    assert view.readonly
    again = disk.open("a", mapped=True)
    assert bytes(again.view(8, 4)) == b"wxyz" == again.pread(8, 4)


def test_a_growable_file_grows_and_can_be_cut(disk: Disk) -> None:
    file = disk.open("queue/t/0/f")
    assert file.size == 0
    file.write_at(0, b"abc")
    file.write_at(5, bytearray(b"xyz"))
    assert file.size == 8
    assert file.pread(0, 100) == b"abc\0\0xyz"
    file.truncate(2)
    assert (file.size, disk.read("queue/t/0/f")) == (2, b"ab")
    assert disk.open("queue/t/0/f").size == 2


def test_missing_and_empty_files_cannot_be_mapped(disk: Disk) -> None:
    with pytest.raises(DiskError) as caught:
        disk.open("nothing", mapped=True)
    assert caught.value.errno == errno.ENOENT
    disk.open("empty").close()
    with pytest.raises(DiskError):
        disk.open("empty", mapped=True)


def test_names_are_listed_sorted_with_directories_and_missing_ones_are_empty(disk: Disk) -> None:
    for name in ("d/b", "d/a", "d/sub/x"):
        disk.open(name).close()
    assert disk.list("d") == ["a", "b", "sub"]
    assert disk.list("none") == []
    assert "d" in disk.list("")
    assert disk.exists("d") and disk.exists("d/a") and not disk.exists("d/c")


def test_rename_and_remove_change_what_is_seen(disk: Disk) -> None:
    disk.open("d/a").write_at(0, b"1")
    disk.open("d/b").write_at(0, b"2")
    disk.rename("d/a", "d/b")
    assert disk.list("d") == ["b"] and disk.read("d/b") == b"1"
    disk.remove("d/b")
    for operation in (lambda: disk.remove("d/b"), lambda: disk.read("d/b"), lambda: disk.rename("d/b", "d/c")):
        with pytest.raises(DiskError) as caught:
            operation()
        assert caught.value.errno == errno.ENOENT


def test_a_tree_goes_with_all_it_holds_and_a_missing_one_is_no_error(disk: Disk) -> None:
    disk.open("t/a/0").close()
    disk.open("t/b").close()
    disk.open("tail").close()
    disk.remove_tree("t")
    disk.remove_tree("t")
    assert not disk.exists("t/b") and disk.exists("tail")
    disk.remove_tree("tail")
    assert not disk.exists("tail")


def test_replace_writes_whole_contents(disk: Disk) -> None:
    disk.replace("config/x", b"long contents")
    disk.replace("config/x", b"short")
    assert disk.read("config/x") == b"short"
    assert disk.list("config") == ["x"]


def test_a_file_may_be_closed_between_its_ticket_and_the_sync(disk: Disk) -> None:
    file = disk.create("a", 64)
    file.write_at(0, b"x")
    ticket = disk.ticket([file])
    file.close()
    disk.open("b").write_at(0, b"takes the free descriptor")
    disk.sync(ticket)
    disk.sync(disk.ticket([]))


def test_a_map_with_views_out_is_not_given_back_and_goes_on_working(disk: Disk) -> None:
    file = disk.create("a", 4096)
    view = file.view(0, 16)
    inner = view[4:8]
    view.release()
    assert not file.release()
    file.write_at(4, b"abcd")
    assert bytes(inner) == b"abcd" == bytes(file.view(4, 4))
    del inner
    assert file.release()
    assert file.release()
    assert bytes(file.view(4, 4)) == b"abcd"
    file.write_at(4, b"efgh")
    assert file.pread(4, 4) == b"efgh" and file.size == 4096


def test_views_outlive_the_file(disk: Disk) -> None:
    file = disk.create("a", 4096)
    file.write_at(0, b"abcd")
    view = file.view(0, 4)
    file.close()
    disk.remove("a")
    gc.collect()
    assert bytes(view) == b"abcd"


def test_a_second_owner_is_refused_until_the_first_lets_go(disk: Disk) -> None:
    other = RealDisk(Path(disk.root)) if isinstance(disk, RealDisk) else disk
    disk.lock()
    with pytest.raises(StoreLocked, match="in use by another process"):
        other.lock()
    disk.unlock()
    other.lock()
    other.unlock()


def test_usage_is_a_share(disk: Disk) -> None:
    assert 0 <= disk.usage() <= 1


def _fail_sync_real(_: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    genuine = os.fdatasync
    answers = [OSError(errno.EIO, "io")]

    def fdatasync(fd: int) -> None:
        if answers:
            raise answers.pop()
        genuine(fd)

    monkeypatch.setattr(os, "fdatasync", fdatasync)


def test_after_a_failed_sync_no_sync_succeeds(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    file = disk.create("a", 64)
    file.write_at(0, b"x")
    if isinstance(disk, SimDisk):
        disk.fail_next("sync", errno.EIO)
    else:
        _fail_sync_real(disk, monkeypatch)
    for _ in range(2):
        with pytest.raises(DiskError) as caught:
            disk.sync(disk.ticket([file]))
        assert (caught.value.errno, caught.value.operation) == (errno.EIO, "sync")
    with pytest.raises(DiskError):
        disk.replace("b", b"x")


def test_an_error_says_what_happened_and_what_to_do() -> None:
    error = DiskError(errno.ENOSPC, "create", "commitlog/0")
    assert error.full and not DiskError(errno.EIO, "sync", "x").full
    assert "create of 'commitlog/0' failed" in str(error) and "free space" in str(error)
    assert "errno" in str(DiskError(errno.ENOTDIR, "open", "x"))


def test_a_full_disk_leaves_no_half_made_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fallocate(fd: int, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "posix_fallocate", fallocate)
    disk = RealDisk(tmp_path)
    with pytest.raises(DiskError) as caught:
        disk.create("commitlog/0", 4096)
    assert caught.value.full
    assert disk.list("commitlog") == []


@pytest.mark.parametrize(
    "use",
    [
        lambda disk: disk.create("file/below", 16),
        lambda disk: disk.open("file/below"),
        lambda disk: disk.read("file/below"),
        lambda disk: disk.list("file"),
        lambda disk: disk.sync_dir("missing"),
        lambda disk: disk.replace("file/below", b""),
    ],
)
def test_every_system_error_becomes_a_disk_error(tmp_path: Path, use: Callable[[Disk], object]) -> None:
    disk = RealDisk(tmp_path)
    disk.open("file").close()
    with pytest.raises(DiskError):
        use(disk)


def test_a_root_that_cannot_be_made_is_a_disk_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DiskError):
        RealDisk(tmp_path / "file" / "store")


def test_a_closed_real_file_refuses(tmp_path: Path) -> None:
    file = RealDisk(tmp_path).open("a")
    file.close()
    with pytest.raises(DiskError):
        file.pread(0, 1)


def test_two_processes_cannot_own_one_directory(tmp_path: Path) -> None:
    script = "import sys, pathlib; from store.realdisk import RealDisk; RealDisk(pathlib.Path(sys.argv[1])).lock()"
    repository = Path(__file__).parents[2]
    disk = RealDisk(tmp_path)
    disk.lock()
    second = [sys.executable, "-c", script, str(tmp_path)]
    refused = subprocess.run(second, cwd=repository, capture_output=True, text=True, check=False)
    assert refused.returncode == 1 and "in use by another process" in refused.stderr
    disk.unlock()
    assert subprocess.run(second, cwd=repository, check=False).returncode == 0
