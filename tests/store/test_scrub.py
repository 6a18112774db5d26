"""Bounded steps over cold bytes."""

import errno
from random import Random

import pytest

from chaos.simdisk import SimDisk
from store.commitlog import CommitLog
from store.entry import EntryKind
from store.scrub import scrub
from store.segment import segment_name

SEGMENT = 2048


def some_log() -> tuple[SimDisk, CommitLog]:
    disk = SimDisk(Random(0))
    log = CommitLog.open_at(disk, SEGMENT, 0, 0, 0, 0)
    for number in range(40):
        size = number * 53 % 700
        if log.segment_bytes - log.end % SEGMENT < size + 96:
            log.fill_blank(1, number)
        log.append_entry(1, number, EntryKind.DATA, bytes([number]) * size)
    disk.sync(log.begin_sync())
    return disk, log


def test_steps_cover_the_log_and_begin_again() -> None:
    _, log = some_log()
    for bytes_max in (1, 300, 1000, 10**6):
        position, chain, steps = 0, None, 0
        while position < log.end:
            step = scrub(log, position, bytes_max, chain=chain)
            assert step.damage is None and step.next_position > position and step.chain is not None
            position, chain = step.next_position, step.chain
            steps += 1
        assert position == log.end and chain == log.chain
        assert steps >= log.end / (SEGMENT if bytes_max > SEGMENT else bytes_max + 800)
        again = scrub(log, position, bytes_max, chain=chain)
        assert 0 < again.next_position <= SEGMENT and again.damage is None


def test_every_flipped_byte_is_found_in_one_round() -> None:
    disk, log = some_log()
    for at in range(0, log.end, 7):
        name = segment_name(at // SEGMENT * SEGMENT)
        disk.flip_bit(name, at % SEGMENT, 2)
        position, chain = 0, None
        while True:
            step = scrub(log, position, 600, chain=chain)
            if step.damage:
                break
            assert step.next_position > position, at
            position, chain = step.next_position, step.chain
        assert step.damage.position <= at and step.next_position == step.damage.position
        disk.flip_bit(name, at % SEGMENT, 2)


def test_a_bound_keeps_it_from_bytes_that_may_still_be_cut() -> None:
    disk, log = some_log()
    below = log.boundary(0, 3000)
    disk.flip_bit(segment_name(below // SEGMENT * SEGMENT), below % SEGMENT, 0)
    position = 0
    for _ in range(30):
        step = scrub(log, position, 500, below=below)
        assert step.damage is None and step.next_position <= below
        position = step.next_position


def test_a_dropped_head_moves_it_on_and_an_empty_log_is_fine() -> None:
    _, log = some_log()
    log.drop_head(3 * SEGMENT)
    assert scrub(log, 100, 500).next_position > 3 * SEGMENT
    empty = CommitLog.open_at(SimDisk(Random(0)), SEGMENT, 0, 0, 0, 0)
    assert scrub(empty, 0, 500) == (0, None, None)


def test_a_read_error_is_damage() -> None:
    disk, log = some_log()
    disk.fail_next("pread", errno.EIO)
    step = scrub(log, 0, 500)
    assert step.damage is not None and "device failed" in step.damage.reason


def test_a_head_dropped_under_its_hands_is_no_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    _, log = some_log()
    genuine = log.read

    def read(start: int, end: int) -> bytes:
        log.drop_head(4 * SEGMENT)
        return genuine(start, end)

    monkeypatch.setattr(log, "read", read)
    assert scrub(log, 0, 500) == (4 * SEGMENT, None, None)
