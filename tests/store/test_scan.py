"""Recovery's walk: every damage ends in the right verdict, and nothing else."""

import errno
from random import Random

import pytest

from chaos.simdisk import SimDisk
from store.commitlog import CommitLog
from store.disk import DiskError
from store.entry import CorruptEntry, EntryKind
from store.scan import repair_in_place, scan
from store.segment import segment_name

SEGMENT = 512


def small_log() -> tuple[SimDisk, CommitLog, list[int]]:
    """Three segments with every kind of entry, all synced, and its boundaries."""
    disk = SimDisk(Random(0))
    log = CommitLog.open_at(disk, SEGMENT, 0, 0, 0, 0)
    ends = [0]
    for term, kind, body in (
        (1, EntryKind.NOOP, b""),
        (1, EntryKind.MEMBERSHIP, b"members 1"),
        (1, EntryKind.DATA, b"d" * 150),
        (2, EntryKind.NOOP, b""),
        (2, EntryKind.BLANK, b""),
        (2, EntryKind.DATA, b"e" * 300),
        (4, EntryKind.MEMBERSHIP, b"members 2"),
        (4, EntryKind.BLANK, b""),
        (4, EntryKind.DATA, b"f" * 100),
        (4, EntryKind.DATA, b"g"),
    ):
        if kind is EntryKind.BLANK:
            log.fill_blank(term, 10 * len(ends))
        else:
            log.append_entry(term, 10 * len(ends), kind, body)
        ends.append(log.end)
    disk.sync(log.begin_sync())
    return disk, log, ends


def test_a_whole_log_tells_its_end_terms_and_memberships() -> None:
    disk, log, ends = small_log()
    for durable in (0, ends[4], log.end):
        found = scan(disk, SEGMENT, 0, 0, durable)
        assert (found.end, found.chain, found.last_time_ms) == (log.end, log.chain, 100)
        assert found.runs == ((1, 0), (2, ends[3]), (4, ends[6]))
        assert found.memberships == ((ends[1], b"members 1"), (ends[6], b"members 2"))
        assert (found.damage, found.torn_bytes) == (None, 0)
    for start in ends:
        part = scan(disk, SEGMENT, start, log.chain_at(start), log.end)
        assert (part.end, part.chain, part.damage) == (log.end, log.chain, None)


def test_an_empty_disk_is_an_empty_log() -> None:
    found = scan(SimDisk(Random(0)), SEGMENT, 0, 0, 0)
    assert found == (0, 0, 0, (), (), None, 0, ())
    assert scan(SimDisk(Random(0)), SEGMENT, 2 * SEGMENT, 77, 2 * SEGMENT)[:2] == (2 * SEGMENT, 77)


def test_a_log_from_the_wrong_chain_is_damage() -> None:
    disk, log, ends = small_log()
    found = scan(disk, SEGMENT, ends[2], log.chain_at(ends[2]) ^ 1, log.end)
    assert found.end == ends[2] and found.damage is not None and "chain" in found.damage.reason


def test_every_flipped_byte_is_a_torn_tail_above_durable_and_damage_below() -> None:
    disk, log, ends = small_log()
    before = [disk.read(segment_name(base)) for base in range(0, log.end, SEGMENT)]
    for at in range(log.end):
        disk.flip_bit(segment_name(at // SEGMENT * SEGMENT), at % SEGMENT, at % 8)
        hit = max(end for end in ends if end <= at)
        for durable in (0, hit, log.end):
            found = scan(disk, SEGMENT, 0, 0, durable)
            assert found.end == hit
            if durable <= hit:
                assert found.damage is None and found.torn_bytes > 0
            else:
                assert found.damage is not None and found.damage[0::2] == (hit, durable) and found.damage.reason
                assert str(hit) in str(found.damage)
        disk.flip_bit(segment_name(at // SEGMENT * SEGMENT), at % SEGMENT, at % 8)
    assert [disk.read(segment_name(base)) for base in range(0, log.end, SEGMENT)] == before


def test_every_cut_and_missing_file_is_a_torn_tail_above_durable_and_damage_below() -> None:
    for base in range(0, 3 * SEGMENT, SEGMENT):
        for size in range(-1, SEGMENT):
            disk, log, ends = small_log()
            if base + size >= log.end:
                break
            if size < 0:
                disk.remove(segment_name(base))
            else:
                disk.open(segment_name(base)).truncate(size)
            hit = max(end for end in ends if end <= base + max(size, 0))
            torn = scan(disk, SEGMENT, 0, 0, hit)
            assert (torn.end, torn.damage) == (hit, None)
            damaged = scan(disk, SEGMENT, 0, 0, log.end)
            assert damaged.end == hit and damaged.damage is not None and damaged.damage.position == hit
            if size % 37 == 0:  # and the log opens where the good bytes end
                again = CommitLog.open_at(disk, SEGMENT, 0, 0, torn.end, torn.chain)
                again.append_entry(9, 200, EntryKind.DATA, b"")
                assert scan(disk, SEGMENT, 0, 0, 0).end == again.end == hit + 48


def test_random_garbage_never_breaks_the_scan() -> None:
    for seed in range(200):
        random = Random(seed)
        disk, log, ends = small_log()
        for _ in range(random.randint(1, 4)):
            base = random.randrange(3) * SEGMENT
            file = disk.open(segment_name(base))
            at = random.randrange(SEGMENT)
            file.write_at(at, random.randbytes(random.randint(1, SEGMENT - at + 100)))
        found = scan(disk, SEGMENT, 0, 0, 0)
        assert found.end in ends and found.damage is None
        assert (scan(disk, SEGMENT, 0, 0, log.end).damage is None) == (found.end == log.end)


def test_unreadable_bytes_are_damage_below_durable_and_an_error_above() -> None:
    disk, log, _ = small_log()
    disk.fail_next("pread", errno.EIO)
    found = scan(disk, SEGMENT, 0, 0, log.end)
    assert found.damage is not None and "device failed" in found.damage.reason
    disk.fail_next("pread", errno.EIO)
    with pytest.raises(DiskError):
        scan(disk, SEGMENT, 0, 0, 0)


def test_opening_at_the_end_of_a_torn_tail_keeps_it_from_coming_back() -> None:
    disk, _, ends = small_log()
    disk.flip_bit(segment_name(SEGMENT), 60, 1)
    torn = scan(disk, SEGMENT, 0, 0, 0)
    assert torn.end == ends[5]
    CommitLog.open_at(disk, SEGMENT, 0, 0, torn.end, torn.chain)
    disk.crash()
    again = scan(disk, SEGMENT, 0, 0, torn.end)
    assert (again.end, again.damage) == (torn.end, None)


def test_damage_is_repaired_from_a_peer_whatever_happened_to_the_files() -> None:
    whole_disk, log, _ = small_log()
    for base in range(0, 3 * SEGMENT, SEGMENT):
        for harm in ("flip", "cut", "empty", "missing", "long"):
            disk, _, _ = small_log()
            name = segment_name(base)
            if harm == "flip":
                disk.flip_bit(name, 20, 3)
            elif harm == "missing":
                disk.remove(name)
            elif harm == "long":
                disk.open(name).write_at(20, b"x" * SEGMENT)
            else:
                disk.open(name).truncate(0 if harm == "empty" else 30)
            found = scan(disk, SEGMENT, 0, 0, log.end)
            assert found.damage is not None
            position, chain = found.end, found.chain
            while position < log.end:  # in pieces, as they come from the peer
                end = log.boundary(position, 200)
                position, chain = repair_in_place(disk, SEGMENT, position, log.read(position, end), chain)
                assert chain == log.chain_at(position)
            disk.crash()
            healed = scan(disk, SEGMENT, 0, 0, log.end)
            assert (healed.end, healed.chain, healed.damage) == (log.end, log.chain, None)
            used = log.end - base  # what lies behind the end is nobody's
            assert disk.read(name)[:used] == whole_disk.read(name)[:used]


def test_repair_refuses_bytes_that_do_not_belong_there_and_changes_nothing() -> None:
    disk, log, ends = small_log()
    payload = log.read(ends[2], ends[6])
    before = disk.read(segment_name(0))
    for bad, position, chain in (
        (payload, ends[2], log.chain_at(ends[2]) ^ 1),
        (payload, ends[3], log.chain_at(ends[2])),
        (payload[:-1], ends[2], log.chain_at(ends[2])),
        (payload[:-1] + b"?", ends[2], log.chain_at(ends[2])),
    ):
        with pytest.raises(CorruptEntry):
            repair_in_place(disk, SEGMENT, position, bad, chain)
    assert disk.read(segment_name(0)) == before
    assert repair_in_place(disk, SEGMENT, ends[2], b"", 5) == (ends[2], 5)
