"""A random walk over a group of bare cores: every fault in any order, then peace, then proof that it lives.

Law: a seed chooses which faults exist in this walk and how common they are (some off, some extreme), so that a
thousand short walks see more than one long one; the same seed is the same walk.
Does not know: transcripts. All promises are checked by chaos.coreoracle at every step."""

from collections.abc import Callable
from random import Random

from chaos.coregroup import CoreGroup
from chaos.coreoracle import Violation
from dledger.boot import CoreConfig
from dledger.core import Role
from dledger.membership import Change, ChangeKind
from dledger.messages import Message
from dledger.quorum import has_majority
from model.ids import LogPosition, NodeId

STEPS = 500
SEGMENT_BYTES = 512
PEACE_TICKS_MAX = 400  # elections, twenty-beat waits for a hand-over and its doubling fit in
WIRE_MAX = 60  # older messages are lost first: a late message must still be possible, a flood teaches nothing
SIZES = (48, 60, 100, 200, 464, 512)


class Walk:
    """One seed."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        config = CoreConfig(
            SEGMENT_BYTES, 2, 8, 16, 3, random.choice([100, 300, 2000]), random.choice([200, 1000, 5000])
        )  # fmt: skip
        names = [str(number + 1) for number in range(random.choice([1, 2, 3, 3, 3, 4, 5, 5]))]
        self.group = CoreGroup(names, config, white_box=True, seed=seed)
        self.commits: dict[NodeId, LogPosition] = {}  # the watermark a node would find at its next start
        self._wiped: NodeId | None = None
        self._named = 0
        for name in range(len(names), len(names) + random.choice([0, 0, 1, 2])):
            self.group.join(NodeId(str(name + 1)))
        actions: list[tuple[Callable[[], None], list[int]]] = [
            (self._deliver, [200]),
            (self._deliver_in_order, [50, 200]),
            (self._tick, [60, 120]),
            (self._propose, [20, 60]),
            (self._sync, [20, 100]),
            (self._lose, [0, 5, 40]),
            (self._duplicate, [0, 5, 30]),
            (self._crash, [0, 3, 10]),
            (self._restart, [10, 30]),
            (self._cut, [0, 2, 8]),
            (self._split, [0, 0, 4, 10]),
            (self._heal, [2, 10]),
            (self._change, [0, 5, 20]),
            (self._move_start, [0, 5, 20]),
            (self._wipe, [0, 0, 1]),
            (self._link_loss, [0, 0, 5]),
            (self._transfer, [0, 0, 3]),
            (self._read, [0, 5]),
            (self._campaign, [0, 0, 3]),
            (self._disk_moods, [0, 5]),
        ]
        self._actions = [action for action, _ in actions]
        self._weights = [random.choice(choices) for _, choices in actions]

    def run(self, steps: int = STEPS) -> None:
        """War, then peace."""
        for action in self.random.choices(self._actions, self._weights, k=steps):
            action()
            for name in self.group.running:
                self.commits[name] = min(self.group.core(name).commit, self.group.core(name).durable)
        self.make_peace()

    # ---- faults and work -----------------------------------------------------------------------------------------

    def _running(self) -> NodeId | None:
        running = self.group.running
        return self.random.choice(running) if running else None

    def _leader(self) -> NodeId | None:
        leaders = [name for name in self.group.running if self.group.core(name).role is Role.LEADER]
        return self.random.choice(leaders) if leaders else None

    def _take(self, at: int) -> Message:
        return self.group.wire.pop(at)

    def _deliver(self) -> None:
        if self.group.wire:
            self.group.deliver(self._take(self.random.randrange(len(self.group.wire))))
        del self.group.wire[:-WIRE_MAX]

    def _deliver_in_order(self) -> None:
        for _ in range(min(len(self.group.wire), 5)):
            self.group.deliver(self._take(0))

    def _lose(self) -> None:
        if self.group.wire:
            self._take(self.random.randrange(len(self.group.wire)))

    def _duplicate(self) -> None:
        if self.group.wire:
            self.group.wire.append(self.random.choice(self.group.wire))

    def _tick(self) -> None:
        name = self._running()
        if name is not None:
            for _ in range(self.random.choice([1, 1, 2, 8])):
                self.group.tick(name)

    def _propose(self) -> None:
        name = self._leader()
        if name is not None:
            self._named += 1
            self.group.propose(name, self.random.choice(SIZES), f"e{self._named}")

    def _sync(self) -> None:
        name = self._running()
        if name is None:
            return
        if self.group.nodes[name].syncing is None:
            self.group.begin_sync(name)
        else:
            self.group.finish_sync(name)

    def _disk_moods(self) -> None:
        name = self._running()
        if name is not None and self.group.nodes[name].syncing is None:
            self.group.nodes[name].syncs_itself = self.random.random() < 0.5

    def _crash(self) -> None:
        name = self._running()
        if name is not None:
            self.group.crash(name, self.random.randrange(self.group.nodes[name].disk.unsynced + 1))

    def _restart(self) -> None:
        down = [name for name in self.group.nodes if name not in self.group.running]
        if down:
            name = self.random.choice(down)
            self.group.start(name, self.random.choice([0, self.commits.get(name, 0)]))

    def _cut(self) -> None:
        source, target = self.random.choice(list(self.group.nodes)), self.random.choice(list(self.group.nodes))
        self.group.cuts.add((source, target))

    def _split(self) -> None:
        """Two halves that do not hear each other: each may go on for long enough to diverge."""
        one = {name for name in self.group.nodes if self.random.random() < 0.5}
        names = list(self.group.nodes)
        self.group.cuts = {(a, b) for a in names for b in names if (a in one) != (b in one)}

    def _heal(self) -> None:
        self.group.cuts.clear()

    def _change(self) -> None:
        leader = self._leader()
        if leader is None:
            return
        member = self.random.choice(list(self.group.nodes))
        kind = self.random.choice(list(ChangeKind))
        if self._wiped is not None:  # until it is back, removing another would cost the majority
            if self.group.core(leader).membership.incarnations.get(self._wiped) == self._wiped_incarnation():
                kind = ChangeKind.PROMOTE
            else:
                member, kind = self._wiped, ChangeKind.ADD_LEARNER
        self.group.change(leader, Change(kind, member, self.group.nodes[member].incarnation))

    def _wiped_incarnation(self) -> int:
        assert self._wiped is not None
        return self.group.nodes[self._wiped].incarnation

    def _move_start(self) -> None:
        name = self._running()
        if name is not None:
            core = self.group.core(name)
            limit = min(core.commit, core.durable)
            boundaries = range(core.epochs.start + SEGMENT_BYTES, limit + 1, SEGMENT_BYTES)
            if boundaries:
                self.group.move_start(name, LogPosition(self.random.choice(boundaries)))

    def _wipe(self) -> None:
        name = self.random.choice(list(self.group.nodes))
        if self._wiped is None and self._can_lose(name):
            self._wiped = name
            self.group.crash(name)
            self.commits.pop(name, None)
            self.group.join(name)

    def _can_lose(self, name: NodeId) -> bool:
        """Whether every membership that may turn out to be in force has a majority without this node."""
        for node in self.group.nodes.values():
            disk = node.disk
            rows = [*disk.base, *((e.position, e.payload) for e in (*disk.entries, *disk.image.values()))]
            for _, payload in rows:
                voters = getattr(payload, "voters", None)
                if voters and not has_majority(voters, voters - {name}):
                    return False
        return True

    def _link_loss(self) -> None:
        name = self._running()
        if name is not None:
            self.group.link_lost(name, self.random.choice(list(self.group.nodes)))

    def _transfer(self) -> None:
        name = self._leader()
        if name is not None:
            self.group.transfer(name, self.random.choice(list(self.group.nodes)))

    def _read(self) -> None:
        name = self._leader()
        if name is not None:
            self._named += 1
            token = (f"r{self._named}", self.group.oracle.committed_end)
            self.group.read(name, token)
            self._check_reads()

    def _check_reads(self) -> None:
        for token, position in self.group.reads.items():
            assert isinstance(token, tuple)
            if position is not None and position < token[1]:
                raise Violation(f"read {token} was answered from {position}: stale")

    def _campaign(self) -> None:
        name = self._running()
        if name is not None:
            self.group.campaign(name)

    # ---- peace ---------------------------------------------------------------------------------------------------

    def make_peace(self) -> None:
        """Everything works again: within a bounded time a new entry is committed on every member."""
        group = self.group
        group.cuts.clear()
        for name in [name for name in group.nodes if name not in group.running]:
            group.start(name, self.commits.get(name, 0))
        for name, node in group.nodes.items():
            node.syncs_itself = True
            if node.syncing is not None:
                group.finish_sync(name)
            if node.waiting:
                group.sync(name)
        for tick in range(PEACE_TICKS_MAX):
            group.run(1)
            leader = self._serving()
            if leader is not None and tick % 20 == 0:
                self._named += 1
                group.propose(leader, 100, f"peace{self._named}")
                group.run(3)
            if tick > 40 and self._settled():
                self._check_reads()
                return
        raise Violation(f"no peace: {[(n, group.core(n).role.value, group.core(n).term) for n in group.running]}")

    def _serving(self) -> NodeId | None:
        serving = [name for name in self.group.running if self.group.core(name).serving]
        return serving[0] if len(serving) == 1 else None

    def _settled(self) -> bool:
        name = self._serving()
        if name is None:
            return False
        leader = self.group.core(name)
        members = [n for n, i in leader.membership.incarnations.items() if self.group.nodes[n].incarnation == i]
        fresh = any(str(entry.payload).startswith("peace") for entry, _ in self.group.oracle.committed)
        return fresh and all(
            (self.group.core(n).commit, self.group.core(n).end) == (leader.end, leader.end) for n in members
        )


def walk(seed: int, steps: int = STEPS) -> Walk:
    """Run one seed; raises an AssertionError when a promise is broken."""
    done = Walk(seed)
    done.run(steps)
    return done
