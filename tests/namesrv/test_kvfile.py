"""The real file: replaced whole, and honest about what failed."""

import os
from pathlib import Path

import pytest

from model.errors import OutcomeUnknown, Refused, StartError
from namesrv.kvfile import AtomicFile


def test_nothing_then_the_last_bytes_saved(tmp_path: Path) -> None:
    file = AtomicFile(tmp_path / "kv.json")
    assert file.load() is None
    file.save(b"longer than the next")
    file.save(b"one")
    assert file.load() == AtomicFile(tmp_path / "kv.json").load() == b"one"
    assert [path.name for path in tmp_path.iterdir()] == ["kv.json"]


def test_half_a_draft_of_an_earlier_life_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "kv.json.tmp").write_bytes(b"half of something long")
    AtomicFile(tmp_path / "kv.json").save(b"whole")
    assert (tmp_path / "kv.json").read_bytes() == b"whole"


def test_bytes_are_synced_before_the_rename_and_the_name_after_it(tmp_path: Path, monkeypatch) -> None:
    steps: list[str] = []
    fsync, rename = os.fsync, os.replace

    def spy_fsync(fd: int) -> None:
        steps.append("sync " + ("directory" if os.path.isdir(f"/proc/self/fd/{fd}") else "draft"))
        fsync(fd)

    def spy_rename(old: Path, new: Path) -> None:
        steps.append("rename")
        rename(old, new)

    monkeypatch.setattr(os, "fsync", spy_fsync)
    monkeypatch.setattr(os, "replace", spy_rename)
    AtomicFile(tmp_path / "kv.json").save(b"x")
    assert steps == ["sync draft", "rename", "sync directory"]


def test_a_failure_before_the_rename_changed_nothing(tmp_path: Path) -> None:
    file = AtomicFile(tmp_path / "kv.json")
    file.save(b"old")
    (tmp_path / "kv.json.tmp").mkdir()
    with pytest.raises(Refused, match=r"kv\.json\.tmp"):
        file.save(b"new")
    assert file.load() == b"old"
    with pytest.raises(Refused):
        AtomicFile(tmp_path / "no" / "such" / "directory").save(b"new")


def test_a_failure_after_the_rename_is_an_unknown_outcome(tmp_path: Path, monkeypatch) -> None:
    file = AtomicFile(tmp_path / "kv.json")
    fsync = os.fsync

    def fails_on_directories(fd: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{fd}"):
            raise OSError(5, "Input/output error")
        fsync(fd)

    monkeypatch.setattr(os, "fsync", fails_on_directories)
    with pytest.raises(OutcomeUnknown):
        file.save(b"new")
    assert file.load() == b"new"


def test_what_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "kv.json").mkdir()
    with pytest.raises(StartError) as caught:
        AtomicFile(tmp_path / "kv.json").load()
    assert caught.value.exit_code == 2
