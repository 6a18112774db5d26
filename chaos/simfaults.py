"""The nemesis: draws faults from the plan and does them, never more than the promise allows for.

    every gap: one kind by weight --> its method --> True when something happened (counted)

Law: a fault may hurt anything, but it never destroys what no promise could save: bits flip only below a durable
watermark and where a majority of voters keeps clean bytes, at most a minority of the nodes is damaged or wiped at a
time, and a wiped node's peers are whole. Everything that is broken is mended at the end.
Does not know: clients, properties."""

import errno
from collections import Counter
from collections.abc import Callable
from functools import partial

from chaos.oracles import durable_watermarks
from chaos.sim import MS_US
from chaos.simcluster import Cluster, SimNode, incarnation_of
from chaos.simplan import draw_weather
from dledger.membership import Change, ChangeKind, Membership
from store.segment import segment_name

MIRRORED = (("config/hardstate.0", "config/hardstate.1"), ("checkpoint", "checkpoint.1"))
HOUR_MS = 3_600_000
KEPT_SEGMENTS = 3  # a log start leaves so many: retries of what is in flight must still find their answers


class Nemesis:
    """Faults of one run."""

    def __init__(self, cluster: Cluster) -> None:
        self.done: Counter[str] = Counter()
        self._cluster = cluster
        self._world = cluster.world
        self._plan = cluster.plan
        self._active = True
        self._weather_calm = cluster.plan.weather
        self._wiped: str | None = None  # a voter that has not voted again since
        cluster.restart = self._restart_later
        kinds = [kind for kind, weight in cluster.plan.weights.items() if weight]
        self._kinds = kinds
        self._weights = [cluster.plan.weights[kind] for kind in kinds]
        self._does: dict[str, Callable[[], bool]] = {kind: getattr(self, f"_{kind}") for kind in kinds}

    def start(self) -> None:
        """Begin to do harm."""
        self._world.after(self._plan.gap_us, self._strike)

    def stop(self) -> None:
        """Mend everything; what is down starts."""
        self._active = False
        cluster = self._cluster
        self._world.note("nemesis", "heals everything")
        cluster.net.heal()
        for node in cluster.nodes.values():
            node.resume(node.life)
            if node.replica is not None:
                node.disk.calm()
                node.sync_lane.slow = node.background_lane.slow = 1
            self._restart(node)

    def _strike(self) -> None:
        if not self._active:
            return
        kind = self._world.random.choices(self._kinds, self._weights)[0]
        if self._does[kind]():
            self.done[kind] += 1
        self._world.after(self._world.between(1, 2 * self._plan.gap_us), self._strike)

    # ---- choosing ------------------------------------------------------------------------------------------------

    def _some(self, *, up: bool = True) -> SimNode | None:
        """A node; the leader as often as not."""
        nodes = [node for node in self._cluster.nodes.values() if node.up or not up]
        leader = self._cluster.leader()
        if leader is not None and self._world.chance(0.4):
            return leader
        return self._world.random.choice(nodes) if nodes else None

    def _membership(self) -> Membership | None:
        leader = self._cluster.leader()
        core = leader.replica.core if leader is not None and leader.replica is not None else None
        return core.membership if core is not None and core.serving else None

    def _restart_later(self, node: SimNode) -> None:
        longest = 100 * MS_US if not self._active else 300 * MS_US if self._world.chance(0.5) else 2_500 * MS_US
        self._world.after(self._world.between(20 * MS_US, longest), partial(self._restart, node))

    def _restart(self, node: SimNode) -> None:
        if not node.up:
            node.disk.calm()
            node.start()

    # ---- processes -----------------------------------------------------------------------------------------------

    def _end(self, how: str) -> bool:
        node = self._some()
        if node is None:
            return False
        node.die(how)
        self._restart_later(node)
        return True

    def _crash(self) -> bool:
        return self._end("crash")

    def _kill(self) -> bool:
        return self._end("kill")

    def _clean_stop(self) -> bool:
        return self._end("stop")

    def _crash_at_io(self) -> bool:
        node = self._some()
        if node is None:
            return False
        node.disk.crash_after(self._world.between(0, 40))
        return True

    def _power_cut(self) -> bool:
        for node in self._cluster.nodes.values():
            node.die("crash")
            self._restart_later(node)
        return True

    def _pause(self) -> bool:
        """Stop a process for a while; sometimes it wakes up cut off, and still believes that it leads."""
        node = self._some()
        if node is None:
            return False
        duration_us = self._world.between(20 * MS_US, 2_000 * MS_US)
        node.pause(duration_us)
        if self._world.chance(0.4):
            pairs = [pair for other in self._cluster.nodes for pair in ((node.name, other), (other, node.name))]
            self._world.note("nemesis", f"cuts {node.name} off beyond its pause")
            mend = self._cluster.net.cut(pairs)
            self._world.after(duration_us + 2 * self._plan.election_max_ms * MS_US, partial(self._mend, mend))
        return True

    def _clock_jump(self) -> bool:
        node = self._some()
        if node is not None:
            node.clock.skew_ms += self._world.between(-HOUR_MS, HOUR_MS)
            self._world.note(node.name, f"has a clock that is {node.clock.skew_ms} ms off")
        return node is not None

    # ---- network -------------------------------------------------------------------------------------------------

    def _partition(self) -> bool:
        names = list(self._cluster.nodes)
        self._world.random.shuffle(names)
        node = self._some(up=False)
        victim = names[0] if node is None else node.name
        others = [name for name in names if name != victim]
        shape = self._world.between(0, 4)
        if shape == 0:
            pairs = [(victim, other) for other in others]  # nobody hears it
        elif shape == 1:
            pairs = [(other, victim) for other in others]  # it hears nobody
        elif shape == 2:
            pairs = [(a, b) for other in others for a, b in ((victim, other), (other, victim))]
        elif shape == 3:
            half = set(names[: len(names) // 2])
            pairs = [(a, b) for a in names for b in names if (a in half) != (b in half)]
        else:
            pairs = [(names[0], names[1]), (names[1], names[0])]  # two nodes do not see each other
        self._world.note("nemesis", f"cuts {' '.join(f'{a}>{b}' for a, b in pairs)}")
        mend = self._cluster.net.cut(pairs)
        self._world.after(self._world.between(100 * MS_US, 3_000 * MS_US), partial(self._mend, mend))
        return True

    def _mend(self, mend: Callable[[], None]) -> None:
        if self._active:
            self._world.note("nemesis", "mends a partition")
            mend()

    def _break_link(self) -> bool:
        one, other = self._world.random.sample(list(self._cluster.nodes), 2)
        self._world.note("nemesis", f"breaks the link {one}-{other}")
        self._cluster.net.break_link(one, other, heard=self._world.chance(0.8))
        return True

    def _storm(self) -> bool:
        self._cluster.net.weather = draw_weather(self._world.random, calm=False)
        self._world.note("nemesis", f"makes weather: {self._cluster.net.weather}")
        self._world.after(self._world.between(200 * MS_US, 2_000 * MS_US), self._clear_up)
        return True

    def _clear_up(self) -> None:
        if self._active:
            self._cluster.net.weather = self._weather_calm

    # ---- disks ---------------------------------------------------------------------------------------------------

    def _slow_disk(self) -> bool:
        node = self._some()
        if node is None:
            return False
        lane = node.sync_lane
        lane.slow = self._world.between(5, 40)
        self._world.note(node.name, f"has a disk {lane.slow} times slower")
        self._world.after(self._world.between(200 * MS_US, 2_000 * MS_US), partial(setattr, lane, "slow", 1))
        return True

    def _disk_error(self) -> bool:
        node = self._some()
        if node is None:
            return False
        operation = self._world.random.choice(("create", "write", "sync"))
        node.disk.fail_next(operation, self._world.random.choice((errno.EIO, errno.ENOSPC)))
        self._world.note(node.name, f"will meet an error at its next {operation}")
        return True

    def _disk_full(self) -> bool:
        node = self._some()
        if node is None:
            return False
        node.disk.full = True
        self._world.note(node.name, "has a full disk")
        return True

    def _flip(self) -> bool:
        """Rot of one bit: in the log below the durable watermark, or in one of two mirrored records."""
        node = self._some(up=False)
        if node is None or not self._may_damage(node):
            return False
        if self._world.chance(0.3):
            return self._flip_record(node)
        membership, oracles = self._membership(), self._cluster.oracles
        marks = durable_watermarks(node.disk)
        if membership is None or marks is None:
            return False
        top = min(marks.durable, len(oracles.committed))
        if top <= 0:
            return False
        at = self._world.between(max(0, top - 4 * self._plan.segment_bytes), top - 1)
        voters = [(voter, membership.incarnations[voter]) for voter in sorted(membership.voters)]
        clean = [
            voter for voter, incarnation in voters
            if voter != node.name and oracles.holds(self._cluster.disk_of(voter, incarnation), at, at + 1)
        ]  # fmt: skip
        name = segment_name(at - at % self._plan.segment_bytes)
        if 2 * len(clean) <= len(voters) or not oracles.holds(node.disk, at, at + 1):
            return False
        node.disk.flip_bit(name, at % self._plan.segment_bytes, self._world.between(0, 7))
        self._world.note(node.name, f"has a bit flipped at {at}")
        node.damaged = True
        oracles.flipped.setdefault(node.name, set()).add(at)
        return True

    def _flip_record(self, node: SimNode) -> bool:
        pair = self._world.random.choice(MIRRORED)
        if any(not node.disk.exists(name) for name in pair):
            return False
        images = [node.disk.durable_bytes(name) for name in pair if name in node.disk.files()]
        if len(images) != 2 or images[0] != images[1]:
            return False  # one is damaged or being written: the other is all there is
        name = self._world.random.choice(pair)
        node.disk.flip_bit(name, self._world.between(0, len(images[0]) - 1), self._world.between(0, 7))
        self._world.note(node.name, f"has a bit flipped in {name}")
        return True

    def _may_damage(self, node: SimNode) -> bool:
        """Whether the others could heal this node: at most a minority is hurt at a time."""
        self.heed_repairs()
        membership = self._membership()
        hurt = {other.name for other in self._cluster.nodes.values() if other.damaged} | {node.name}
        if self._wiped is not None:
            hurt.add(self._wiped)  # type: ignore[arg-type]
        return membership is not None and len(hurt) <= (len(membership.voters) - 1) // 2

    def heed_repairs(self) -> None:
        """Who is whole again: its log equals the committed one, and a wiped voter votes under its new name."""
        oracles, membership = self._cluster.oracles, self._membership()
        for node in self._cluster.nodes.values():
            if node.damaged and node.replica is not None and node.replica.core is not None:
                # Not only to its own commit: after a repair a node knows less to be committed than it holds.
                start, end = node.replica.log.start, min(node.replica.core.durable, len(oracles.committed))
                node.damaged = not oracles.holds(node.disk, start, end)
        if self._wiped is not None and membership is not None:
            node = self._cluster.nodes[self._wiped]  # type: ignore[index]
            voter = node.name in membership.voters
            if voter and membership.incarnations[node.name] == incarnation_of(node):
                self._wiped = None

    def _wipe(self) -> bool:
        """An empty disk for a voter whose peers are whole; it must come back by itself."""
        membership, node = self._membership(), self._some(up=False)
        if membership is None or node is None or node.name not in self._cluster.voters or not self._may_damage(node):
            return False
        if node.name not in membership.voters or 2 * (len(membership.voters) - 1) <= len(membership.voters):
            return False
        if self._wiped is not None:
            return False
        self._wiped = node.name
        node.die("crash")
        node.wipe()
        self._restart_later(node)
        return True

    # ---- the group itself ----------------------------------------------------------------------------------------

    def _member(self) -> bool:
        """One step of membership: the spare node comes, is promoted, and goes; or a voter goes and comes back."""
        leader, membership = self._cluster.leader(), self._membership()
        if leader is None or membership is None or leader.replica is None or self._wiped is not None:
            return False
        choices = []
        for node in self._cluster.nodes.values():
            incarnation = incarnation_of(node)
            if node.name not in membership.incarnations:
                if incarnation is not None:
                    choices.append(Change(ChangeKind.ADD_LEARNER, node.name, incarnation))
            elif node.name not in membership.voters:
                choices.append(Change(ChangeKind.PROMOTE, node.name))
                choices.append(Change(ChangeKind.REMOVE, node.name))
            elif len(membership.voters) > 2:
                choices.append(Change(ChangeKind.REMOVE, node.name))
        if not choices:
            return False
        change = self._world.random.choice(choices)
        self._world.note("nemesis", f"asks {leader.name} for {change}")
        leader.run(partial(leader.replica.change_membership, change, lambda accepted: None))
        return True

    def _transfer(self) -> bool:
        leader = self._cluster.leader()
        if leader is None or leader.replica is None:
            return False
        target = self._world.random.choice(list(self._cluster.nodes))
        self._world.note("nemesis", f"asks {leader.name} to hand over to {target}")
        leader.run(partial(leader.replica.transfer, target))
        return True

    def _log_start(self) -> bool:
        leader = self._cluster.leader()
        if leader is None or leader.replica is None or leader.replica.core is None:
            return False
        segment = self._plan.segment_bytes
        position = (leader.replica.core.commit // segment - KEPT_SEGMENTS) * segment
        if position <= leader.replica.log.start:
            return False
        self._world.note("nemesis", f"asks {leader.name} to let the log begin at {position}")
        leader.run(partial(leader.replica.propose_log_start, position))
        return True
