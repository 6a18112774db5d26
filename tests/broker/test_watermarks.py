"""What a node once knew to be on disk: never more than that, never kept over a cut, restored by proven bytes only."""

from random import Random

from broker.fencing import Repairing
from broker.opening import Records, Scanned, load_records, scan_log
from broker.ports import Phase, RepairGive
from broker.syncing import Watermarker
from broker.writing import Writer
from dledger.messages import Kind, Message
from model.ids import LogPosition, NodeId, Term
from store import snapshot
from store.commitlog import CommitLog
from store.config import StoreConfig
from store.derived import Derived
from store.entry import EntryKind
from store.hardstate import WatermarkFile, Watermarks
from store.scan import scan
from store.snapshot import ControlSnapshot
from tests.broker.group import FaultyDisk, Group, HandClock, PowerCut, clone

BODY = b"x" * 300


def private_tail() -> Group:
    """n0 led alone for a while: its log ends in synced bytes, known as durable, that nobody else has."""
    group = Group().formed("n0")
    group.topic()
    group.put(bodies=[b"common"])
    group.cut("n0")
    group.ask(group["n0"], bodies=[BODY])
    group.step(10)
    return group


def test_a_truncation_takes_the_watermark_along() -> None:
    group = private_tail()
    tail = group["n0"].log.end
    group.until(lambda: group.leader is not None and group.leader.node != "n0", what="another leader")
    group.heal()
    group.until(lambda: group.nodes["n0"].saw("truncated"), what="n0 cuts its private tail")
    assert group["n0"].log.end < tail, "the new leader's log is shorter: nothing covers up for the old mark"
    group.crash("n0")
    group.start("n0")
    assert group["n0"].phase is Phase.RUNNING and not group.nodes["n0"].saw("damage_found")
    group.assert_equal()


def test_a_clean_stop_syncs_what_no_round_has_covered_yet() -> None:
    group = Group(("n0",)).formed("n0")
    group.topic()
    node, replica = group.nodes["n0"], group["n0"]
    for number in range(2):  # the second one is written while a round for the first is under way
        group.ask(replica, bodies=[BODY], producer=b"p", sequence=number)
        replica.turn()
    node.sync_lane.run()
    group.stop("n0")
    node.disk.crash(Random(0))
    group.start("n0")
    assert group["n0"].phase is Phase.RUNNING and not node.saw("damage_found")
    group.lead()
    assert group["n0"].state.next_offsets["t", 0] == 2


def test_a_repair_takes_no_bytes_that_only_continue_the_chain() -> None:
    group = private_tail()
    donor, end = clone(group.nodes["n0"].disk, FaultyDisk(Random(1))), group["n0"].log.end
    group.until(lambda: group.leader is not None and group.leader.node == "n1", 2000, what="n1 leads")
    group.put(bodies=[b"acknowledged", BODY, BODY])
    group.step(10)
    disk, common = group.nodes["n1"].disk, _common_end(group)
    group.crash("n1")
    segment = f"commitlog/{0:020d}"
    disk.flip_bit(segment, common + 20, 0)
    records: Records = load_records(disk, group.config("n1"), Random(0))
    found: Scanned = scan_log(disk, group.config("n1"), records, whole=True)
    assert found.result.damage is not None and found.result.end == common
    fence = Repairing(disk, group.store["segment_bytes"], records, found)
    before = disk.read(segment)
    payload = donor.read(segment)[common:end]
    assert not fence.take(NodeId("n0"), RepairGive(LogPosition(common), LogPosition(common), payload), NodeId("n1"))
    assert disk.read(segment) == before, "another leader's uncommitted entry was put where an acknowledged one stood"


def _common_end(group: Group) -> int:
    """Up to where the logs of n0 and n1 are equal."""
    theirs = {header.end: header.chain for header, _ in group["n1"].log.entries(0, group["n1"].log.end)}
    ours = [(header.end, header.chain) for header, _ in group["n0"].log.entries(0, group["n0"].log.end)]
    return max(end for end, chain in ours if theirs.get(end) == chain)


def install(number: int) -> tuple[FaultyDisk, bool]:
    """A node with a private tail beyond the new log is handed over, and loses power at its number-th disk operation."""
    disk = FaultyDisk(Random(number))
    log = CommitLog.open_at(disk, 4096, 0, 0, 0, 0)
    for _ in range(20):
        log.append_entry(1, 1, EntryKind.DATA, BODY)
        if 4096 - log.end % 4096 < 500:
            log.fill_blank(1, 1)
    disk.sync(log.begin_sync())
    snapshot.write(disk, _control(0, 0))
    marks = Watermarker(WatermarkFile(disk), Watermarks(0, 0, 0))
    marks.set(Watermarks(log.end, 0, log.chain))
    derived = Derived(disk, StoreConfig(segment_bytes=4096))
    message = Message(Kind.HANDOVER, NodeId("n1"), NodeId("n0"), Term(2), payload=_control(4096, 4600))
    disk.arm("change", number, 0)
    try:
        Writer(disk, log, marks, HandClock()).install(message, derived)
    except PowerCut:
        disk.crash(Random(number))
    disk.target = None  # what the test itself does is no part of the run
    return disk, bool(disk.struck)


def _control(start: int, position: int) -> ControlSnapshot:
    epochs = ((2, start),) if position > start else ()
    return ControlSnapshot(position, start, 0, 7 if start else 0, epochs, ((-1, b""),), 8, 1, b"")


def test_a_hand_over_cut_short_never_leaves_a_mark_of_the_old_log_nor_a_record_without_its_log() -> None:
    number, struck, seen = 1, True, set()
    while struck:
        disk, struck = install(number)
        control, marks = snapshot.load_newest(disk), WatermarkFile(disk).load()
        assert control is not None and marks is not None
        seen.add(control.log_start)
        if control.log_start:
            assert marks.durable in (0, 4096), "the old log's mark says nothing about the new log"
        else:
            assert scan(disk, 4096, 0, 0, 0).end > 5000, "the old log was thrown away before the new record was there"
        number += 1
    assert seen == {0, 4096}
