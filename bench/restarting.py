"""How long a node is away: restart after a clean stop and after a kill, and a rebuild of everything derived.

    build: a production Replica fills a log and is killed when its checkpoint is almost due again
    restart: load_records, scan_log, open_log, Derived.cut_back, then dispatch what is above the checkpoint
    rebuild: queues and index thrown away, all of the log applied and dispatched again, synced

Law: the process is new, the page cache is warm, as after a kill of the process alone. A restart changes nothing that
the next one measures: no checkpoint is written in between.
Does not know: elections, peers.
"""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from bench.appending import POOL_BYTES, TOPIC, Case, sends
from bench.lone import Lone, lone_config
from bench.timing import Span, best_wall, median_cpu, median_wall, timed
from broker.applying import Applier
from broker.config import BrokerConfig
from broker.opening import load_records, open_log, scan_log
from broker.state.machine import StateMachine
from store.config import StoreConfig
from store.derived import Derived
from store.entry import ENVELOPE_BYTES
from store.realdisk import RealDisk

CASE = Case(1024, 32)
QUEUES = 8
TICK_EVERY = 64  # sends: ticks save the watermarks


class Figures(NamedTuple):
    log_bytes: int
    above_checkpoint_bytes: int
    killed: list[Span]
    clean: list[Span]
    rebuilt: list[Span]

    def figures(self) -> dict[str, Any]:
        megabytes = self.log_bytes / 1e6
        return {
            "log_bytes": self.log_bytes,
            "above_checkpoint_bytes": self.above_checkpoint_bytes,
            "restart_after_kill_seconds": round(median_wall(self.killed), 4),
            "restart_after_kill_seconds_best": round(best_wall(self.killed), 4),
            "restart_clean_seconds": round(median_wall(self.clean), 4),
            "restart_clean_seconds_best": round(best_wall(self.clean), 4),
            "rebuild_mb_per_second": round(megabytes / median_wall(self.rebuilt), 1),
            "rebuild_mb_per_second_best": round(megabytes / best_wall(self.rebuilt), 1),
            "rebuild_mb_per_cpu_second": round(megabytes / median_cpu(self.rebuilt), 1),
        }


def measure_restarts(
    directory: Path, log_bytes: int, checkpoint_bytes: int, repeats: int, tell: Callable[[str], None]
) -> Figures:
    """Build a store, and start it again and again."""
    config = lone_config(
        directory / "node", StoreConfig(segment_bytes=max(1 << 20, log_bytes // 4), checkpoint_bytes=checkpoint_bytes)
    )
    tell(f"fill a log of {log_bytes >> 20} MiB")
    filled, above = _build(config, log_bytes)
    tell("restart after a kill")
    killed = [timed(lambda: _restart(config)) for _ in range(repeats)]
    Lone(config).start().stop()
    tell("restart after a clean stop")
    clean = [timed(lambda: _restart(config)) for _ in range(repeats)]
    tell("rebuild queues and index")
    rebuilt = [_rebuild(config) for _ in range(repeats)]
    return Figures(filled, above, killed, clean, rebuilt)


def _build(config: BrokerConfig, log_bytes: int) -> tuple[int, int]:
    """Fill a store and kill its node; the end of its log, and how much of it is above the checkpoint."""
    node = Lone(config).start()
    node.create_topic(TOPIC, QUEUES)
    pool = [send for queue in range(QUEUES) for send in sends(CASE, Random(queue), POOL_BYTES // QUEUES, queue)]
    Random(7).shuffle(pool)
    # Two sends below the next checkpoint is nearly the worst moment for a kill.
    almost = config.store.checkpoint_bytes - 2 * (len(pool[0].messages) + ENVELOPE_BYTES)
    number, replica = 0, node.replica
    while True:
        control = replica.control
        above = replica.log.end - (0 if control is None else control.position)
        if replica.log.end >= log_bytes and above >= almost:
            break
        node.send(pool[number % len(pool)])
        number += 1
        if number % TICK_EVERY == 0:
            node.tick()
    for _ in range(10):
        node.tick()
    end = replica.log.end
    node.kill()
    return end, above


def _restart(config: BrokerConfig) -> None:
    """Everything between a directory and a node that may vote, and then up to date."""
    disk = RealDisk(Path(config.node.directory))
    records = load_records(disk, config, Random(1))
    scanned = scan_log(disk, config, records, whole=False)
    assert scanned.result.damage is None, scanned.result.damage
    opened = open_log(disk, config, records, scanned)
    derived = Derived(disk, config.store)
    applied = derived.cut_back(opened.applied, opened.boot.start)
    assert derived.damage is None, derived.damage
    applier = Applier(opened.log, derived, opened.state, applied, opened.control)
    while applier.advance(opened.log.end):
        pass
    derived.close()
    opened.log.close()


def _rebuild(config: BrokerConfig) -> Span:
    """From the moment the derived files are doubted to the moment new ones are on disk."""
    disk = RealDisk(Path(config.node.directory))
    records = load_records(disk, config, Random(1))
    opened = open_log(disk, config, records, scan_log(disk, config, records, whole=False))
    derived, state = Derived(disk, config.store), StateMachine(opened.state.genesis)

    def work() -> None:
        derived.distrust()
        start = derived.cut_back(opened.applied, opened.boot.start)
        assert start == opened.log.start == 0, start
        applier = Applier(opened.log, derived, state, start, None)
        while applier.advance(opened.log.end):
            pass
        derived.sync(derived.flush())

    span = timed(work)
    assert state.snapshot() == opened.state.snapshot(), "the rebuild came to another state"
    derived.close()
    opened.log.close()
    return span
