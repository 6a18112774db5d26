"""What a node once knew to be on disk: never more than that, never kept over a cut, restored by proven bytes only."""

from random import Random

from broker.fencing import Repairing
from broker.opening import Records, Scanned, load_records, scan_log
from broker.ports import Phase, RepairGive
from model.ids import LogPosition, NodeId
from tests.broker.group import FaultyDisk, Group, clone

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
