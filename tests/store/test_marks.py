"""Boundaries known by heart, against a dictionary of all of them."""

from random import Random

import pytest

from store.marks import RECENT_MAX, SPACING_BYTES, Marks


@pytest.mark.parametrize("seed", range(4))
def test_marks_are_true_and_near_and_few(seed: int) -> None:
    random = Random(seed)
    marks = Marks()
    chains: dict[int, int] = {0: 7}
    end = start = 0
    marks.note(0, 7)
    for _ in range(30_000):
        end += random.choice([60, 300, 5000])
        chains[end] = random.getrandbits(32)
        marks.note(end, chains[end])
        if random.random() < 0.0005:  # a truncation, a dropped head, a walk through old bytes
            end = random.choice(list(chains)[-6000:])
            marks.cut_above(end)
            chains = {position: chain for position, chain in chains.items() if position <= end}
        if random.random() < 0.0005:
            start = random.choice(list(chains)[:200])
            marks.drop_below(start)
            chains = {position: chain for position, chain in chains.items() if position >= start}
        if random.random() < 0.01:
            known = random.choice(list(chains))
            marks.learn(known, chains[known])
    boundaries = sorted(chains)
    recent = boundaries[-RECENT_MAX // 2 :]
    for position in (*random.sample(boundaries, 500), *recent[-100:]):
        found = marks.floor(position + random.randrange(60))
        if found is not None:
            assert chains[found[0]] == found[1] and found[0] <= position
    assert len(marks) <= 2 * RECENT_MAX + 2 * (end - start) // SPACING_BYTES + 2


def test_of_recent_boundaries_every_one_is_known_and_old_ones_are_spaced() -> None:
    marks = Marks()
    for number in range(5 * RECENT_MAX):
        marks.note(100 * number, number)
    for number in range(4 * RECENT_MAX, 5 * RECENT_MAX):
        assert marks.floor(100 * number + 99) == (100 * number, number)
    for number in range(3 * RECENT_MAX):
        found = marks.floor(100 * number)
        assert found is not None and 100 * number - found[0] < SPACING_BYTES + 100
    marks.cut_above(100 * RECENT_MAX)
    for number in range(RECENT_MAX + 1, 6 * RECENT_MAX):
        marks.note(100 * number, number)
    assert len(marks) <= 2 * RECENT_MAX + 6 * RECENT_MAX * 100 // SPACING_BYTES + 2
    marks.drop_below(10**9)
    assert marks.floor(10**9) is None and len(marks) == 0
