"""What a seed decides before anything happens: the shape of the group, its load, and which faults it meets how often.

Law: swarm testing: every plan switches some faults off and makes others extreme, because faults hide one another (a
group that is always partitioned never fills a segment). Only the Random of the seed is asked.
Does not know: how a fault is done."""

from dataclasses import dataclass, field
from random import Random

from chaos.sim import MS_US, SECOND_US
from chaos.simnet import Weather

KIB = 1 << 10

# kind -> how often it comes when it is on, relative to the others
KINDS: dict[str, float] = {
    "crash": 3.0,  # power off one node: unsynced bytes vanish or tear
    "crash_at_io": 2.0,  # the same in the middle of a disk operation
    "kill": 1.5,  # the process ends, the machine goes on
    "power_cut": 0.5,  # all nodes at once
    "clean_stop": 0.7,
    "pause": 1.5,
    "partition": 3.0,
    "break_link": 1.5,
    "storm": 1.0,  # loss, delay, duplication and reordering for a while
    "slow_disk": 1.0,
    "clock_jump": 1.0,
    "disk_error": 1.0,
    "disk_full": 0.5,
    "flip": 1.5,
    "wipe": 0.7,
    "member": 1.5,
    "transfer": 1.2,
    "log_start": 1.5,
}


@dataclass(frozen=True)
class Plan:
    """One group's fate."""

    voters: int
    spare: bool  # a node that is no voter at first, and joins as a learner
    segment_bytes: int
    append_bytes_max: int
    in_flight_bytes_max: int
    checkpoint_bytes: int
    queue_file_units: int
    index_units: int
    heartbeat_ms: int
    election_min_ms: int
    election_max_ms: int
    link_loss_ms: int
    sync_us: tuple[int, int]
    queues: int
    producers: int
    anonymous: int  # producers without identity
    readers: int
    window: int  # sub-batches a producer has in flight
    batch_max: int
    body_max: int
    think_us: int
    client_loss: float
    safety_us: int
    gap_us: int  # between two faults
    weather: Weather
    weights: dict[str, float] = field(default_factory=dict)


def draw_plan(random: Random) -> Plan:
    """The plan of a seed."""
    voters, spare = random.choice(((3, False), (3, False), (3, False), (3, True), (3, True), (5, False), (2, True)))
    segment = random.choice((4 * KIB, 4 * KIB, 8 * KIB, 16 * KIB))
    append = random.choice((1 * KIB, 2 * KIB, 16 * KIB))
    heartbeat = random.choice((40, 60, 100))
    election_min = heartbeat * random.choice((3, 4))
    weights = {kind: weight * random.choice((0.0, 0.0, 1.0, 1.0, 3.0)) for kind, weight in KINDS.items()}
    if not any(weights[kind] for kind in ("crash", "crash_at_io", "kill", "power_cut")):
        weights[random.choice(("crash", "crash_at_io", "kill"))] = 3.0
    return Plan(
        voters=voters,
        spare=spare,
        segment_bytes=segment,
        append_bytes_max=append,
        in_flight_bytes_max=append * random.choice((1, 2, 8)),
        checkpoint_bytes=random.choice((2 * KIB, 8 * KIB, 64 * KIB)),
        queue_file_units=random.choice((16, 64, 1000)),
        index_units=random.choice((32, 256)),
        heartbeat_ms=heartbeat,
        election_min_ms=election_min,
        election_max_ms=election_min * 2,
        link_loss_ms=random.choice((0, 40, 100)),
        sync_us=random.choice(((50, 400), (200, 3_000), (1_000, 20_000))),
        queues=random.choice((1, 2, 4)),
        producers=random.choice((1, 2, 3)),
        anonymous=random.choice((0, 1)),
        readers=random.choice((1, 2)),
        window=random.choice((1, 3, 8)),
        batch_max=random.choice((1, 5, 9)),
        body_max=random.choice((40, 120)),
        think_us=random.choice((15, 30, 50)) * MS_US,
        client_loss=random.choice((0.0, 0.01, 0.1)),
        safety_us=random.choice((15, 20, 30)) * SECOND_US,
        gap_us=random.choice((500, 1000, 2000)) * MS_US,
        weather=draw_weather(random, calm=random.random() < 0.5),
        weights=weights,
    )


def draw_weather(random: Random, *, calm: bool) -> Weather:
    """Fair weather, or a mixture of troubles."""
    if calm:
        return Weather(delay_high_us=random.choice((300, 1_000, 5_000)))
    return Weather(
        loss=random.choice((0.0, 0.01, 0.05, 0.3)),
        double=random.choice((0.0, 0.05, 0.3)),
        reorder=random.choice((0.0, 0.1, 0.5)),
        delay_high_us=random.choice((1_000, 5_000, 30_000)),
        tail=random.choice((0.0, 0.02, 0.1)),
        tail_us=random.choice((20, 200)) * MS_US,
    )
