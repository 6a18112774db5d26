"""Queues and index held against the log of a running node: differences are found, and nothing else is called one."""

from functools import partial

import pytest

from broker.auditing import BYTES_PER_ENTRY, Auditor
from broker.replica import Replica
from store.keyindex import HEADER, UNIT_BYTES
from tests.broker.group import COARSE, TINY, Group

ALL = 1 << 30


class Audit:
    """An auditor of n0, stepped by hand."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.replica: Replica = group["n0"]
        self.disk = group.nodes["n0"].disk
        self.auditor = Auditor(self.disk, group.config("n0").store, self.replica.log, self.replica.state)

    def step(self, share: int = ALL) -> str | None:
        below = self.replica.applied
        return self.auditor.compare(self.auditor.read(share, below), below, self.replica.state)

    def whole(self) -> str | None:
        """Steps until a pass is through, or a difference is found."""
        for _ in range(100):
            found = self.step()
            if found is not None or self.auditor.position == self.replica.log.start:
                return found
        raise AssertionError("a pass never ends")


@pytest.fixture
def audit() -> Audit:
    group = Group(raft=COARSE, scrub_bytes_per_second=0, checkpoint_bytes=2000).formed("n0")
    group.topic("t", 2)
    for number in range(14):
        group.put(topic="t", queue=number % 2, bodies=[b"x" * 150] * 3, keys=f"k{number} k", tag="red")
    group.converge()
    return Audit(group)


def derived(audit: Audit) -> list[str]:
    return [name for name in audit.disk.files() if name.startswith(("consumequeue/", "index/"))]


def test_whole_files_have_no_difference_however_small_the_steps(audit: Audit) -> None:
    assert len(derived(audit)) > 8 and audit.replica.log.end > 3 * 4096
    assert audit.whole() is None
    steps = 1
    assert audit.step(BYTES_PER_ENTRY) is None
    while audit.auditor.position != 0:
        assert audit.step(BYTES_PER_ENTRY) is None
        steps += 1
    assert steps > 14, "one entry a step"


def test_every_changed_byte_that_somebody_reads_is_found(audit: Audit) -> None:
    units_at = HEADER.size + 4 * TINY["index_slots"]
    growing = max(name for name in derived(audit) if name.startswith("index/"))
    for name in derived(audit):
        for offset in range(0, len(audit.disk.read(name)), 13):
            read = not name.startswith("index/") or offset >= units_at + UNIT_BYTES or (
                offset < units_at and name != growing  # a growing file has its header and slots in memory
            )
            audit.disk.flip_bit(name, offset, 2)
            found = audit.whole()
            audit.disk.flip_bit(name, offset, 2)
            assert (found is not None) is read, (name, offset, found)
            if found is not None:
                assert found.startswith(f"{name} at byte ")
                audit = Audit(audit.group)


@pytest.mark.parametrize("size", [0, 20, 70])
def test_a_file_that_is_too_short_is_found(audit: Audit, size: int) -> None:
    name = "consumequeue/t/1/00000000000000000000"
    audit.disk.replace(name, audit.disk.read(name)[:size])
    audit.replica.derived.close()
    assert name in str(audit.whole())


def test_what_is_stored_while_a_pass_runs_is_no_difference(audit: Audit) -> None:
    for number in range(6):
        assert audit.step() is None
        audit.group.put(topic="t", bodies=[b"y" * 90] * 4, keys=f"new{number}")
    audit.group.topic("u", 1)
    audit.group.put(topic="u")
    assert audit.whole() is None
    assert audit.whole() is None


@pytest.mark.parametrize("again", [False, True], ids=["for good", "and comes back"])
def test_a_topic_that_goes_while_a_pass_runs_begins_a_new_one(audit: Audit, again: bool) -> None:
    assert audit.step() is None
    assert audit.auditor.position > 0
    audit.group.delete("t")
    if again:
        audit.group.topic("t", 2)
        audit.group.put(topic="t", bodies=[b"z"] * 2)
    assert audit.step() is None
    assert audit.auditor.position == 0
    assert audit.whole() is None


def test_a_topic_that_came_and_went_within_a_pass_is_no_difference(audit: Audit) -> None:
    assert audit.step() is None
    audit.group.topic("u", 1)
    audit.group.put(topic="u", bodies=[b"1"] * 3)
    while audit.auditor.position < audit.replica.log.end - 100 and audit.step() is None and audit.auditor.position:
        pass
    audit.group.delete("u")
    audit.group.topic("u", 1)
    audit.group.put(topic="u", bodies=[b"2"])
    assert audit.whole() is None
    assert audit.whole() is None


def _begins_at(audit: Audit, start: int) -> bool:
    return audit.replica.log.start == start


def test_a_head_that_is_dropped_while_a_pass_runs_is_no_difference(audit: Audit) -> None:
    for steps in (1, 3):
        for _ in range(steps):
            assert audit.step() is None
        start = audit.replica.log.start + 4096
        audit.group.lead().propose_log_start(start)
        audit.group.until(partial(_begins_at, audit, start), what="the head is gone")
        before = derived(audit)
        assert audit.whole() is None
        assert audit.whole() is None
        assert derived(audit) == before, "an audit makes no files"


def test_bytes_below_the_first_message_of_a_queue_are_found(audit: Audit) -> None:
    audit.group.lead().propose_log_start(4096)
    audit.group.until(lambda: audit.replica.log.start == 4096, what="the head is gone")
    name = min(name for name in derived(audit) if name.startswith("consumequeue/t/0"))
    assert audit.disk.read(name).startswith(bytes(20))
    audit.disk.flip_bit(name, 11, 0)
    audit = Audit(audit.group)
    assert "below the first message" in str(audit.whole())


def test_bytes_that_cannot_be_read_are_left_to_the_scrubber(audit: Audit) -> None:
    audit.disk.flip_bit("commitlog/00000000000000000000", 300, 1)
    assert audit.step() is None
    position = audit.auditor.position
    assert audit.step() is None and audit.auditor.position == position
