"""Where the log should begin."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.config import StoreConfig
from store.retention import RetentionDecision, SegmentFacts, log_start_target

CONFIG = StoreConfig()
HOUR_MS = 3_600_000
NOW = 1000 * HOUR_MS


def segments(*ages_hours: float) -> list[SegmentFacts]:
    return [
        SegmentFacts(100 * index, 100 * (index + 1), int(NOW - age * HOUR_MS)) for index, age in enumerate(ages_hours)
    ]


def decide(ages: tuple[float, ...], *, hour: int = 12, used: float = 0.1, limit: int = 10**9) -> RetentionDecision:
    return log_start_target(segments(*ages), NOW, hour, used, CONFIG, limit)


OLD = (100, 90, 80, 70, 60, 1, 0)


@pytest.mark.parametrize(
    "hour, used, target",
    [
        (4, 0.10, 300),  # the hour
        (5, 0.10, None),  # not the hour
        (5, 0.749, None),
        (5, 0.75, 300),  # filling up: any hour
        (5, 0.85, 300),  # aged ones first
        (4, 0.99, 300),
    ],
)
def test_aged_segments_go_in_their_hour_or_when_the_disk_fills_up(hour: int, used: float, target: int | None) -> None:
    assert decide(OLD, hour=hour, used=used).target == target


def test_a_segment_goes_at_exactly_the_configured_age_and_not_before() -> None:
    assert decide((72, 0, 0), hour=4).target == 100
    assert decide((71.999, 0, 0), hour=4).target is None


def test_a_young_segment_protects_older_looking_ones_behind_it() -> None:
    assert decide((100, 1, 100, 0, 0), hour=4).target == 100


def test_above_the_force_mark_the_oldest_one_goes_whatever_its_age() -> None:
    assert decide((5, 4, 3, 2), used=0.849).target is None
    decision = decide((5, 4, 3, 2), used=0.85)
    assert decision.target == 100
    assert "85 %" in decision.reason


def test_the_last_two_segments_never_go() -> None:
    assert decide((100, 100), hour=4, used=0.99).target is None
    assert decide((100, 100, 100), hour=4, used=0.99).target == 100
    assert decide((), hour=4, used=0.99).target is None


def test_nothing_goes_beyond_the_limit() -> None:
    assert decide(OLD, hour=4, limit=299).target == 200
    assert decide(OLD, hour=4, used=0.95, limit=99).target is None


@pytest.mark.parametrize("used, refuse", [(0.899, False), (0.90, True), (1.0, True)])
def test_sends_are_refused_from_the_last_mark_on(used: float, refuse: bool) -> None:
    assert decide((0, 0), used=used).refuse_writes is refuse


@given(
    st.lists(st.integers(0, 200), max_size=9), st.integers(0, 23), st.floats(0, 1), st.integers(0, 1000)
)
def test_a_target_is_a_boundary_below_limit_and_tail(ages: list[int], hour: int, used: float, limit: int) -> None:
    decision = decide(tuple(sorted(ages, reverse=True)), hour=hour, used=used, limit=limit)
    if decision.target is not None:
        assert 0 < decision.target <= min(limit, 100 * (len(ages) - 2))
        assert decision.target % 100 == 0
        assert decision.reason
