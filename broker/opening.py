"""From a directory to what consensus may start with.

    identity -> whose store is this          hard state -> term and vote
    checkpoint (watermarks) -> what was once synced     control snapshot -> state at Q, log start S
    log: scanned from Q when it was synced beyond Q, else (a hand-over that broke off) from S

Law: nothing below the durable watermark is ever cut. What does not verify there is damage, and the caller repairs it
from a peer; a torn tail above it ends the log. Both kinds of small record exist before a directory becomes a store, so
a missing one later is damage and not a fresh start. Derived files that end before the control snapshot does are thrown
away: nobody would miss their last messages until the audit comes by.
Does not know: peers, what is done about damage."""

from collections.abc import Mapping
from random import Random
from typing import NamedTuple

from broker.codec import decode_membership, encode_membership, first_membership
from broker.config import BrokerConfig
from broker.repair import mending_done, mending_from
from broker.state.commands import decode
from broker.state.machine import QueueKey, StateMachine
from dledger.core import Boot
from dledger.ready import HardState as CoreHardState
from model.errors import NoRoom, NotAStore
from model.ids import Incarnation, LogPosition, NodeId, Term
from store import identity, snapshot
from store.commitlog import CommitLog
from store.config import StoreConfig
from store.consumequeue import REBUILD, queue_directory
from store.derived import Derived
from store.disk import Disk
from store.entry import CorruptEntry, EntryKind
from store.hardstate import DamagedState, HardState, HardStateFile, WatermarkFile, Watermarks
from store.identity import StoreIdentity
from store.preamble import parse_preamble
from store.scan import ScanResult, scan
from store.segment import segment_name
from store.snapshot import ControlSnapshot

IDENTITY_BITS = 62
ROOM_BYTES_MIN = 64 << 10  # both copies of every small file, with the blocks and directories around them


class Records(NamedTuple):
    """The small files of a store, loaded and mended."""

    identity: StoreIdentity
    hard_file: HardStateFile
    hard_state: HardState
    mark_file: WatermarkFile
    marks: Watermarks
    snapshot: ControlSnapshot | None  # None: the directory belongs to no group yet


def check_owner(disk: Disk, config: BrokerConfig) -> StoreIdentity | None:
    """Raise unless the directory is empty or this node's; changes nothing."""
    found = identity.load(disk)
    if found is not None:
        node = config.node
        identity.check(found, cluster=node.cluster, group=node.group, node=node.node, store=config.store)
    elif disk.list("commitlog") or disk.list(snapshot.DIRECTORY):
        raise NotAStore(f"{disk.root} holds log files but no identity")
    return found


def check_room(disk: Disk) -> None:
    """Raise when the small files could not even be written; changes nothing."""
    room = disk.room()
    if room < ROOM_BYTES_MIN:
        raise NoRoom(f"the disk of {disk.root} has room for {room} bytes, a start needs {ROOM_BYTES_MIN}")


def load_records(disk: Disk, config: BrokerConfig, random: Random) -> Records:
    """Load the small files; an empty directory becomes a store with a new incarnation."""
    found = check_owner(disk, config)
    hard_file, mark_file = HardStateFile(disk), WatermarkFile(disk)
    if found is None:
        hard_file.save(HardState(0, ""))
        mark_file.save(Watermarks(0, 0, 0))
        node, incarnation = config.node, random.getrandbits(IDENTITY_BITS)
        found = identity.new(node.cluster, node.group, node.node, incarnation, config.store)
        identity.create(disk, found)
    identity.mend(disk, found)
    hard_state, marks = hard_file.load(), mark_file.load()
    if hard_state is None or marks is None:
        raise DamagedState(f"{'the hard state' if hard_state is None else 'the checkpoint'} of this store is missing")
    return Records(found, hard_file, hard_state, mark_file, marks, snapshot.load_newest(disk))


def form(disk: Disk, genesis: tuple[tuple[NodeId, Incarnation], ...]) -> ControlSnapshot:
    """Make this store a member of a new group: the state before its first entry."""
    state = StateMachine(genesis)
    first = ControlSnapshot(
        position=0, log_start=0, base_term=0, base_chain=0, epochs=(),
        memberships=((-1, encode_membership(first_membership(genesis))),), chain=0, time_ms=0, state=state.snapshot(),
    )  # fmt: skip
    snapshot.write(disk, first)
    return first


class Scanned(NamedTuple):
    """A scan and where it began: at the log start (`whole`), or at the control snapshot's position."""

    result: ScanResult
    whole: bool


def scan_log(disk: Disk, config: BrokerConfig, records: Records, *, whole: bool) -> Scanned:
    """Verify the log: as far as a restart must, or all of it when there is a reason to doubt it."""
    control, size, durable = records.snapshot, config.store.segment_bytes, records.marks.durable
    if control is None:
        return Scanned(scan(disk, size, 0, 0, 0), whole=True)
    whole = whole or durable < control.position  # a hand-over broke off: the log may not reach the snapshot yet
    whole = whole or mending_from(disk, control.position) < control.position  # and so may a repair
    if whole or not _files_are_there(disk, size, control.log_start, control.position):
        return Scanned(scan(disk, size, control.log_start, control.base_chain, durable), whole=True)
    return Scanned(scan(disk, size, control.position, control.chain, durable), whole=False)


def _files_are_there(disk: Disk, segment_bytes: int, start: int, end: int) -> bool:
    """Whether the files below the snapshot exist in full. Their bytes are the scrubber's business, but a file that is
    gone or cut can be seen at once, and its node must not vote before it has it back."""
    for base in range(start // segment_bytes * segment_bytes, end, segment_bytes):
        if not disk.exists(segment_name(base)):
            return False
        file = disk.open(segment_name(base))
        size = file.size
        file.close()
        if size < segment_bytes:
            return False
    return True


class Opened(NamedTuple):
    """All that a running replica is made of."""

    log: CommitLog
    state: StateMachine
    boot: Boot
    applied: int  # derived files are complete to here
    control: ControlSnapshot | None


def open_log(disk: Disk, config: BrokerConfig, records: Records, scanned: Scanned) -> Opened:
    """Open what the scan verified. The durable watermark may lie above its end only for a node that lost bytes."""
    control, found = records.snapshot, scanned.result
    hard = CoreHardState(Term(records.hard_state.term), NodeId(records.hard_state.vote) or None)
    zero = LogPosition(0)
    if control is None:
        log = CommitLog.open_at(disk, config.store.segment_bytes, 0, 0, 0, 0)
        return Opened(log, StateMachine(), Boot(hard, zero, Term(0), (), zero, zero, ()), 0, None)
    applied, time_ms, marks = control.log_start, found.last_time_ms, found.marks
    runs, rows = found.runs, (control.memberships[0], *found.memberships)
    if not scanned.whole:
        applied, time_ms = control.position, max(control.time_ms, found.last_time_ms)
        marks = ((control.position, control.chain), *found.marks)
        runs, rows = _joined_runs(control.epochs, found.runs), (*control.memberships, *found.memberships)
    log = CommitLog.open_at(
        disk, config.store.segment_bytes, control.log_start, control.base_chain, found.end, found.chain,
        time_ms=time_ms, durable=mending_from(disk, records.marks.durable), marks=marks,
    )  # fmt: skip
    mending_done(disk)
    boot = Boot(
        hard_state=hard,
        start=LogPosition(control.log_start),
        base_term=Term(control.base_term),
        runs=tuple((Term(term), LogPosition(start)) for term, start in runs),
        end=LogPosition(found.end),
        commit=LogPosition(min(max(records.marks.commit, control.position), found.end)),
        memberships=tuple((LogPosition(at), decode_membership(body)) for at, body in rows),
        control_floor=LogPosition(control.position),
        lost_floor=LogPosition(records.marks.durable),
    )
    return Opened(log, StateMachine.restore(control.state), boot, applied, control)


def open_derived(disk: Disk, config: StoreConfig, opened: Opened) -> tuple[Derived, int]:
    """Queues and index as of the control snapshot, and where to go on dispatching.

    That is the log start if they were damaged or incomplete; they are gone then, and `damage` says why."""
    derived, state, start = Derived(disk, config), opened.state, opened.boot.start
    applied = derived.cut_back(opened.applied, start)
    if derived.damage is not None or applied != state.position:  # all of it is dispatched again in any case
        return derived, applied
    problem = _what_is_missing(derived, opened)
    if problem is None:
        return derived, applied
    derived.discard(DamagedState(problem, do=REBUILD))
    return derived, start


def _what_is_missing(derived: Derived, opened: Opened) -> str | None:
    state, start = opened.state, opened.boot.start
    ends = {(topic, queue): found.max_offset for topic, queue, found in derived.queues()}
    short = incomplete_queues(state, ends, start)
    if short:  # not those whose topic is deleted above the snapshot: the same deletion comes again
        gone = _topics_deleted(opened.log, state.position)
        short = [key for key in short if key[0] not in gone]
    if short:
        expected, found = state.next_offsets[short[0]], ends.get(short[0])
        ending = "is missing" if found is None else f"ends at offset {found}"
        return f"{queue_directory(*short[0])} {ending}, but the log holds messages up to offset {expected}"
    position, count = state.last_keys
    if position >= start and not derived.index.ends_with(count, position):
        return f"index: the {count} keys of the entry at {position} are not all there"
    return None


def incomplete_queues(state: StateMachine, ends: Mapping[QueueKey, int], log_start: int) -> list[QueueKey]:
    """Queues that hold a message at or above the log start and do not end where the state says; `ends` has the ends of
    all queues that exist."""
    live = [key for key, position in state.last_positions.items() if position >= log_start]
    return sorted(key for key in live if ends.get(key) != state.next_offsets[key])


def _topics_deleted(log: CommitLog, start: int) -> set[str]:
    """Names of topics that entries from `start` on delete."""
    names = set()
    try:
        for header, body in log.entries(start, log.end):
            if header.kind == EntryKind.DATA:
                for command in decode(parse_preamble(body).control):
                    match command:
                        case ("topic_delete", 1, str(name)):
                            names.add(name)
    except CorruptEntry:  # verified, but cannot be read: applying it will stop the node
        pass
    return names


def _joined_runs(older: tuple[tuple[int, int], ...], newer: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    if older and newer and older[-1][0] == newer[0][0]:
        return (*older, *newer[1:])
    return (*older, *newer)
