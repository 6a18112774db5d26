"""The system clock: units and directions (the one test that looks at real time, without waiting for it)."""

from model.clock import Clock, SystemClock


def test_wall_time_is_in_ms_and_monotonic_time_never_goes_back() -> None:
    clock: Clock = SystemClock()
    assert 1_600_000_000_000 < clock.now_ms() < 10_000_000_000_000
    earlier = clock.monotonic_ms()
    assert clock.monotonic_ms() >= earlier
