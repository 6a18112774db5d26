"""One heap, one clock, one Random: same seed, same run."""

from functools import partial

from chaos.sim import SimClock, World


def test_events_run_in_the_order_of_time_and_then_of_announcement() -> None:
    world, order = World(1), []
    for name, time_us in (("c", 20), ("a", 10), ("b", 10), ("never", 31)):
        world.at(time_us, partial(lambda name: order.append((name, world.now_us)), name))
    world.run_until(30)
    assert order == [("a", 10), ("b", 10), ("c", 20)]
    assert (world.now_us, world.events) == (30, 3)


def test_an_event_for_the_past_runs_now() -> None:
    world, order = World(1), []
    world.run_until(100)
    world.at(5, lambda: order.append(world.now_us))
    world.run_until(100)
    assert order == [100]


def test_an_event_may_announce_others_for_the_same_moment() -> None:
    world, order = World(1), []
    world.after(5, lambda: world.after(0, lambda: order.append(world.now_us)))
    world.run_until(5)
    assert order == [5]


def _walk(seed: int) -> World:
    world = World(seed)

    def step() -> None:
        world.note("walker", f"draws {world.between(1, 6)}")
        world.after(world.between(1, 1000), step)

    step()
    world.run_until(100_000)
    return world


def test_the_digest_is_the_identity_of_a_run() -> None:
    assert _walk(1).digest == _walk(1).digest != _walk(2).digest


def test_a_trace_does_not_change_the_run() -> None:
    lines = []
    world = World(1, lambda *line: lines.append(line))
    world.note("n1", "crashes")
    world.trace("n1", "receives a letter")
    silent = World(1)
    silent.note("n1", "crashes")
    assert world.digest == silent.digest
    assert lines == [(0, "n1", "crashes"), (0, "n1", "receives a letter")]


def test_a_wall_clock_may_jump_and_a_monotonic_one_may_not() -> None:
    world = World(1)
    clock = SimClock(world)
    world.run_until(5_000)
    before = clock.now_ms(), clock.monotonic_ms()
    clock.skew_ms -= 3_600_000
    assert clock.now_ms() == before[0] - 3_600_000
    assert clock.monotonic_ms() == before[1] == 5
