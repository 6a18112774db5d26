"""The commitlog against a list of entries, with crashes between any two steps."""

import gc
from pathlib import Path
from random import Random

import pytest

from chaos.simdisk import SimDisk
from store.commitlog import CommitLog
from store.disk import Disk, DiskError
from store.entry import ENVELOPE_BYTES, CorruptEntry, EntryKind, inspect, pack
from store.lane import ThreadLane
from store.realdisk import RealDisk
from store.scan import scan
from store.segment import segment_bases, segment_name

SEGMENT = 4096


def empty_log(disk: Disk, segment_bytes: int = SEGMENT) -> CommitLog:
    return CommitLog.open_at(disk, segment_bytes, 0, 0, 0, 0)


def reopen(disk: Disk, start: int = 0, start_chain: int = 0, durable: int = 0) -> CommitLog:
    found = scan(disk, SEGMENT, start, start_chain, durable)
    assert found.damage is None, found.damage
    return CommitLog.open_at(
        disk, SEGMENT, start, start_chain, found.end, found.chain, time_ms=found.last_time_ms, marks=found.marks
    )


def append(log: CommitLog, body: bytes, term: int = 1) -> int:
    """Place an entry as the core does: a blank first when it does not fit."""
    room = log.segment_bytes - log.end % log.segment_bytes
    size = ENVELOPE_BYTES + len(body)
    if size != room and size > room - ENVELOPE_BYTES:
        log.fill_blank(term, log.end_time_ms)
    return log.append_entry(term, log.end_time_ms + 1, EntryKind.DATA, body)


def fill(log: CommitLog, entries: int, size: int = 500, term: int = 1) -> list[int]:
    """Boundaries of `entries` new entries, the end before them first."""
    return [log.end, *(append(log, bytes([number % 256]) * size, term) for number in range(entries))]


@pytest.fixture(params=["real", "simulated"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return RealDisk(tmp_path / "store") if request.param == "real" else SimDisk(Random(1))


def test_entries_are_read_back_across_segments(disk: Disk) -> None:
    log = empty_log(disk)
    bodies = [bytes([number]) * (number * 37 % 900) for number in range(60)]
    for body in bodies:
        append(log, body)
    read = [(header, bytes(body)) for header, body in log.entries(0, log.end)]
    assert [body for header, body in read if header.kind == EntryKind.DATA] == bodies
    assert read[-1][0].end == log.end and read[-1][0].chain == log.chain and read[-1][0].time_ms == log.end_time_ms
    whole = log.read(0, log.end)
    assert whole == b"".join(log.views(0, log.end))
    extent = inspect(whole, 0, chain_before=0)
    assert (extent.end, extent.chain) == (log.end, log.chain)
    assert segment_bases(disk) == list(range(0, log.end, SEGMENT))


def test_a_follower_ends_with_the_same_bytes(disk: Disk) -> None:
    leader = empty_log(disk)
    ends = fill(leader, 40)
    follower = empty_log(SimDisk(Random(0)))
    for start, end in ((0, ends[3]), (ends[2], ends[20]), (ends[20], ends[20]), (ends[20], leader.end)):
        payload = leader.read(start, end)
        follower.append_raw(start, payload, follower.end - start, inspect(payload, start))
    assert follower.read(0, follower.end) == leader.read(0, leader.end)
    assert (follower.chain, follower.end_time_ms) == (leader.chain, leader.end_time_ms)
    for end in ends:
        assert follower.chain_at(end) == leader.chain_at(end)


def test_raw_bytes_that_do_not_continue_our_chain_are_refused() -> None:
    ours, other = empty_log(SimDisk(Random(0))), empty_log(SimDisk(Random(0)))
    append(ours, b"aaaa")
    append(other, b"bbbb")
    start = other.end
    append(other, b"next")
    payload = other.read(start, other.end)
    with pytest.raises(CorruptEntry, match="chain"):
        ours.append_raw(start, payload, 0, inspect(payload, start))
    assert ours.end == start


def test_raw_bytes_with_an_entry_across_the_segment_end_are_refused() -> None:
    other = empty_log(SimDisk(Random(0)), 2 * SEGMENT)
    fill(other, 9)
    payload = other.read(0, other.end)
    ours = empty_log(SimDisk(Random(0)))
    with pytest.raises(CorruptEntry):
        ours.append_raw(0, payload, 0, inspect(payload, 0))
    assert ours.end == 0


def test_an_entry_that_leaves_no_room_for_a_blank_breaks_a_promise() -> None:
    log = empty_log(SimDisk(Random(0)))
    for size in (SEGMENT - ENVELOPE_BYTES - 1, SEGMENT - 2 * ENVELOPE_BYTES + 1, SEGMENT):
        with pytest.raises(AssertionError):
            log.append_entry(1, 1, EntryKind.DATA, bytes(size))
    log.append_entry(1, 1, EntryKind.DATA, bytes(SEGMENT - ENVELOPE_BYTES))
    log.append_entry(1, 1, EntryKind.DATA, bytes(SEGMENT - 2 * ENVELOPE_BYTES))
    log.fill_blank(1, 1)
    assert log.end == 2 * SEGMENT and log.header_at(log.end - ENVELOPE_BYTES).kind == EntryKind.BLANK


def test_boundary_and_chain_agree_with_the_list_of_entries(disk: Disk) -> None:
    log = empty_log(disk)
    fill(log, 100, 173)
    ends = [0, *(header.end for header, _ in log.entries(0, log.end))]
    chains = dict(zip(ends, [0, *(header.chain for header, _ in log.entries(0, log.end))], strict=True))
    disk.sync(log.begin_sync())
    again = CommitLog.open_at(disk, SEGMENT, 0, 0, log.end, log.chain)  # knows no boundary but its ends
    for each in (log, again):
        for number, start in enumerate(ends[:-1]):
            for bytes_max in (1, 221, 222, 5000, 10**6):
                within = [end for end in ends[number + 1 :] if end <= start + bytes_max]
                assert each.boundary(start, bytes_max) == (within[-1] if within else ends[number + 1])
            assert each.header_at(start).end == ends[number + 1]
        assert {end: each.chain_at(end) for end in ends} == chains
        with pytest.raises(CorruptEntry, match="not an entry boundary"):
            each.chain_at(ends[50] + 1)


def test_boundaries_stay_exact_when_marks_are_thinned_out() -> None:
    log = empty_log(SimDisk(Random(0)), 1 << 20)
    ends = fill(log, 20_000, 52)  # 100 bytes each
    blanks = 48  # room for the blank that may stand between
    for start in (*ends[:5], *ends[9_000:9_005], *ends[-5:-1]):
        found = log.boundary(start, 10_000)
        assert found in ends or found % (1 << 20) == 0
        assert found == log.end or 10_000 - 100 - blanks < found - start <= 10_000
        assert log.chain_at(start) == (inspect(log.read(start - 100, start), start - 100).chain if start else 0)


@pytest.mark.parametrize("cut", range(0, 31, 3))
def test_a_truncated_log_goes_on_as_if_the_tail_had_never_been(disk: Disk, cut: int) -> None:
    log = empty_log(disk)
    ends = fill(log, 30)
    twin = empty_log(SimDisk(Random(0)))
    kept = log.read(0, ends[cut])
    if kept:
        twin.append_raw(0, kept, 0, inspect(kept, 0))
    log.truncate(ends[cut])
    assert (log.end, log.chain, log.end_time_ms) == (ends[cut], twin.chain, twin.end_time_ms)
    for each in (log, twin):
        fill(each, 12, 300, term=2)
    assert log.read(0, log.end) == twin.read(0, twin.end) and log.chain == twin.chain
    disk.sync(log.begin_sync())  # files that went with the tail are not waited for
    assert scan(disk, SEGMENT, 0, 0, log.end).end == log.end


def test_what_a_reader_knew_of_a_truncated_tail_is_forgotten() -> None:
    log = empty_log(SimDisk(Random(0)))
    ends = fill(log, 7)
    list(log.entries(ends[2], ends[6]))
    log.truncate(ends[4])
    fill(log, 3, term=2)  # of the same sizes
    assert log.chain_at(ends[6]) == inspect(log.read(0, ends[6]), 0).chain


def stale_tail(zero: bool) -> tuple[SimDisk, int, int, int]:
    """A log cut at p whose new bytes [p, q) end exactly where an old, valid entry begins; crashed after a sync."""
    disk = SimDisk(Random(5))
    log = empty_log(disk)
    append(log, b"common")
    p = log.end
    append(log, b"o" * 352, term=3)
    q = log.end
    append(log, b"stale", term=3)
    stale = log.read(q, log.end)
    disk.sync(log.begin_sync())
    log.truncate(p)
    new, _ = pack(p, 2, 1, EntryKind.DATA, b"n" * 352, log.chain_at(p))
    if zero:
        append(log, b"n" * 352, term=2)
    assert log.read(0, p) and len(new) + 352 == q - p
    disk.sync(log.begin_sync())
    disk.crash()
    image = disk.read(segment_name(0))
    assert image[q : q + len(stale)] == stale  # the old entry is still there, whole
    return disk, p, q, inspect(stale, q).end


def test_stale_entries_behind_a_truncation_are_not_found_again() -> None:
    for overwritten in (True, False):
        disk, p, q, _ = stale_tail(overwritten)
        found = scan(disk, SEGMENT, 0, 0, 0)
        assert (found.end, found.damage) == (q if overwritten else p, None)


def test_the_chain_alone_also_keeps_stale_entries_out() -> None:
    # As if truncation had not touched the disk: new bytes written over old ones of equal size, old entries behind.
    disk, p, q, stale_end = stale_tail(True)
    stale = disk.read(segment_name(0))[q:stale_end]
    assert inspect(stale, q).runs == ((3, q),)  # valid by itself: magic, position, sizes and body crc all fit
    with pytest.raises(CorruptEntry, match="chain"):
        inspect(disk.read(segment_name(0))[p:stale_end], p)


def test_a_truncation_is_durable_when_it_returns() -> None:
    for seed in range(30):
        disk = SimDisk(Random(seed))
        log = empty_log(disk)
        ends = fill(log, 30)
        disk.sync(log.begin_sync())
        log.truncate(ends[8])
        disk.crash()
        assert scan(disk, SEGMENT, 0, 0, 0).end == ends[8]
        assert segment_bases(disk) == [0, SEGMENT]  # nothing above came back


def test_a_truncation_cut_short_leaves_a_prefix() -> None:
    for seed in range(60):
        disk = SimDisk(Random(seed))
        log = empty_log(disk)
        ends = fill(log, 30)
        whole = log.read(0, log.end)
        disk.sync(log.begin_sync())
        disk.fail_next("sync", 5)  # the first thing that truncate syncs
        with pytest.raises(DiskError):
            log.truncate(ends[8])
        disk.crash()
        found = scan(disk, SEGMENT, 0, 0, ends[8])
        assert found.damage is None and found.end >= ends[8]
        again = reopen(disk, durable=ends[8])
        assert again.read(0, again.end) == whole[: again.end]


def test_dropping_the_head_frees_whole_segments_and_keeps_the_rest(disk: Disk) -> None:
    log = empty_log(disk)
    ends = fill(log, 60)
    whole = log.read(0, log.end)
    log.drop_head(3 * SEGMENT + 100)
    chain = inspect(whole[: 3 * SEGMENT], 0).chain
    assert (log.start, log.start_chain, log.chain_at(log.start)) == (3 * SEGMENT, chain, chain)
    assert log.read(log.start, log.end) == whole[log.start :]
    with pytest.raises(CorruptEntry, match="reaches from"):
        log.read(0, ends[1])
    log.drop_head(SEGMENT)
    assert log.start == 3 * SEGMENT
    log.ensure_next()
    tail = log.end // SEGMENT * SEGMENT
    kept = [base for base in segment_bases(disk) if base >= log.start]
    assert kept == list(range(log.start, tail + 2 * SEGMENT, SEGMENT))
    assert len(segment_bases(disk)) <= len(kept) + 1  # at most one spare
    disk.sync(log.begin_sync())
    end, chain = log.end, log.chain
    log.close()
    again = CommitLog.open_at(disk, SEGMENT, 3 * SEGMENT, log.start_chain, end, chain)
    assert segment_bases(disk) == list(range(3 * SEGMENT, tail + SEGMENT, SEGMENT))
    fill(again, 20)


def test_stale_bytes_of_a_recycled_segment_are_never_taken_for_entries() -> None:
    disk = SimDisk(Random(0))
    log = empty_log(disk)
    fill(log, 60, 464)  # 512 bytes each: old and new entries begin at the same offsets
    for _ in range(12):
        log.drop_head(log.end - 2 * SEGMENT)
        log.ensure_next()
        recycled = segment_name(log.end // SEGMENT * SEGMENT + SEGMENT)
        assert disk.read(recycled).strip(b"\0")  # it really holds old entries
        assert disk.durable_bytes(recycled)[:ENVELOPE_BYTES] == bytes(ENVELOPE_BYTES)
        fill(log, 8, 464)
        disk.sync(log.begin_sync())
        found = scan(disk, SEGMENT, log.start, log.start_chain, 0)
        assert (found.end, found.chain) == (log.end, log.chain)
    disk.crash()
    assert scan(disk, SEGMENT, log.start, log.start_chain, log.end).end == log.end
    # Even a stale first envelope, had it not been zeroed, says where it belongs.
    old, _ = pack(0, 1, 1, EntryKind.DATA, b"", 0)
    with pytest.raises(CorruptEntry, match="belongs at 0"):
        inspect(old, 8 * SEGMENT, 0)


def test_reset_begins_anew_durably(disk: Disk) -> None:
    log = empty_log(disk)
    fill(log, 30)
    view = log.views(0, 100)[0]
    log.reset(10 * SEGMENT, 777)
    assert (log.start, log.end, log.chain, log.start_chain) == (10 * SEGMENT, 10 * SEGMENT, 777, 777)
    assert segment_bases(disk) == [] and len(bytes(view)) == 100
    fill(log, 10)
    assert log.chain_at(log.start) == 777
    disk.sync(log.begin_sync())
    found = scan(disk, SEGMENT, 10 * SEGMENT, 777, log.end)
    assert (found.end, found.chain, found.damage) == (log.end, log.chain, None)


def test_segments_with_views_out_are_not_recycled_until_the_views_are_gone(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    log = empty_log(disk)
    fill(log, 30)
    views = log.views(100, 600) + log.views(SEGMENT, SEGMENT + 100)
    before = [bytes(view) for view in views]
    log.drop_head(3 * SEGMENT)
    for _ in range(3):
        log.ensure_next()
        fill(log, 8)
    assert [bytes(view) for view in views] == before
    assert {0, SEGMENT} <= set(segment_bases(disk))
    del views[1]
    log.ensure_next()
    views.clear()
    gc.collect()
    fill(log, 8)
    log.ensure_next()
    fill(log, 8)
    log.ensure_next()
    assert not {0, SEGMENT} & set(segment_bases(disk))
    log.close()


def test_only_the_newest_segments_stay_mapped_and_old_views_keep_working(tmp_path: Path) -> None:
    log = empty_log(RealDisk(tmp_path))
    fill(log, 30)
    whole = log.read(0, log.end)
    pinned = log.views(0, 100)
    for _ in range(2):
        log.ensure_next()
        assert bytes(pinned[0]) == whole[:100]
        assert b"".join(log.views(0, log.end)) == whole
        assert b"".join(bytes(body) for _, body in log.entries(0, log.end))
    log.close()
    assert bytes(pinned[0]) == whole[:100]


def test_the_next_segment_is_made_ahead_and_a_full_disk_shows_there() -> None:
    disk = SimDisk(Random(0))
    log = empty_log(disk)
    log.ensure_next()
    assert segment_bases(disk) == [0, SEGMENT]
    assert len(disk.durable_bytes(segment_name(SEGMENT))) == SEGMENT
    disk.full = True
    fill(log, 14)  # two segments, no allocation
    with pytest.raises(DiskError) as caught:
        log.ensure_next()
    assert caught.value.full
    end = log.end
    with pytest.raises(DiskError):
        fill(log, 8)
    assert end <= log.end <= 2 * SEGMENT
    disk.full = False
    fill(log, 8)
    assert len(log.read(0, log.end)) == log.end


def test_bytes_recovered_after_a_failed_sync_are_durable_once_the_log_is_open() -> None:
    disk = SimDisk(Random(0))
    log = empty_log(disk)
    fill(log, 3)
    disk.sync(log.begin_sync())
    durable = log.end
    fill(log, 2)
    disk.fail_next("sync", 5)
    with pytest.raises(DiskError):
        disk.sync(log.begin_sync())
    disk.kill()  # the page cache lives on, but takes those pages for clean
    found = scan(disk, SEGMENT, 0, 0, durable)
    assert found.end == log.end
    CommitLog.open_at(disk, SEGMENT, 0, 0, found.end, found.chain, durable=durable)
    disk.crash()
    assert scan(disk, SEGMENT, 0, 0, 0).end == log.end


def test_opening_restores_a_tail_file_that_was_cut_short() -> None:
    disk = SimDisk(Random(0))
    log = empty_log(disk)
    ends = fill(log, 10)
    disk.sync(log.begin_sync())
    disk.kill()
    disk.open(segment_name(SEGMENT)).truncate(ends[8] - SEGMENT + 20)
    again = reopen(disk)
    assert again.end == ends[8]
    assert len(disk.read(segment_name(SEGMENT))) == SEGMENT
    fill(again, 5)
    assert inspect(again.read(0, again.end), 0).end == again.end


def test_writing_a_lost_entry_again_may_bring_back_what_followed_it_and_nothing_else() -> None:
    # A crash lost b and kept c. The leader of that term sends b again, byte for byte: c is then valid where it lies.
    # That is the log this node had before, from the one writer of that term, so it is no worse than a late append.
    disk = SimDisk(Random(0))
    log = empty_log(disk)
    ends = [append(log, body) for body in (b"a", b"b" * 100, b"c" * 100)]
    whole = log.read(0, log.end)
    disk.sync(log.begin_sync())
    log.truncate(ends[0])
    payload = whole[ends[0] : ends[1]]
    log.append_raw(ends[0], payload, 0, inspect(payload, ends[0]))
    assert log.end == ends[1]
    found = scan(disk, SEGMENT, 0, 0, ends[1])
    assert found.end == ends[2] and disk.read(segment_name(0))[: found.end] == whole


@pytest.mark.parametrize("seed", range(60))
def test_random_histories_with_crashes_match_a_list(seed: int) -> None:
    random = Random(seed)
    disk = SimDisk(Random(seed + 1000))
    log = empty_log(disk)
    ends, data = [0], bytearray()  # the dumb twin: boundaries, and all bytes ever below the end
    start, start_chain, durable, term = 0, 0, 0, 1

    def note() -> None:
        at = ends[-1]
        data.extend(log.read(at, log.end))
        while at < log.end:
            at = log.header_at(at).end
            ends.append(at)

    for _ in range(120):
        steps = {"append": 40, "truncate": 4, "sync": 12, "drop": 4, "next": 6, "crash": 3, "kill": 2}
        step = random.choices(list(steps), list(steps.values()))[0]
        if step == "append":
            term += random.random() < 0.1
            append(log, random.randbytes(random.choice([0, 10, 300, 700, SEGMENT - 96])), term)
            note()
        elif step == "truncate":
            to = random.choice([end for end in ends if end >= start][-6:])
            durable = min(durable, to)
            log.truncate(to)
            term += 1  # what follows a truncation differs in term from what was cut, or it would not have been cut
            del data[to:]
            ends[:] = [end for end in ends if end <= to]
        elif step == "sync":
            ticket, end = log.begin_sync(), log.end
            if random.random() < 0.5:
                append(log, b"after the ticket", term)
                note()
            disk.sync(ticket)
            durable = end
        elif step == "drop":
            log.drop_head(random.randint(start, max(start, durable)))
            start, start_chain = log.start, log.start_chain
        elif step == "next":
            log.ensure_next()
        else:
            disk.crash() if step == "crash" else disk.kill()
            log = reopen(disk, start, start_chain, durable)
            assert log.end in ends and log.end >= durable
            durable = log.end
            del data[log.end :]
            ends[:] = [end for end in ends if end <= log.end]
            disk.crash(Random(seed)) if random.random() < 0.3 else disk.kill()  # opening made it durable
            log = reopen(disk, start, start_chain, durable)
            assert log.end == durable
            term += 1  # see the test above: equal bytes would make their old successors valid again
        assert log.end == ends[-1]
        assert log.read(start, log.end) == data[start:]
        assert inspect(data[start:], start, start_chain)[4] in (log.chain, 0)
        probe = random.choice([end for end in ends if end >= start])
        assert log.chain_at(probe) == (inspect(data[start:probe], start).chain if probe > start else start_chain)


def test_housekeeping_in_a_thread_does_not_disturb_appends_views_and_drops(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    log = empty_log(disk)
    results: list[object] = []
    lane = ThreadLane(lambda call: call())
    held: list[memoryview] = []
    for number in range(400):
        append(log, bytes([number % 256]) * 700)
        if number % 3 == 0:
            lane.submit(log.ensure_next, results.append)
        if number % 7 == 0:
            held = log.views(max(log.start, log.end - 2 * SEGMENT), log.end)
        if number % 20 == 19:
            log.drop_head(log.end - 4 * SEGMENT)
            disk.sync(log.begin_sync())
    lane.close()
    assert set(results) == {None}
    assert inspect(log.read(log.start, log.end), log.start, log.start_chain).chain == log.chain
    held.clear()
    log.ensure_next()
    assert len(segment_bases(disk)) <= (log.end - log.start) // SEGMENT + 4
    log.close()
