"""Random walks of bare cores keep every promise of chaos.coreoracle, and live when peace comes."""

import pytest

from chaos.corewalk import walk


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_a_random_walk_keeps_every_promise(first: int) -> None:
    for seed in range(first, first + 50):
        try:
            walk(seed)
        except AssertionError as error:
            pytest.fail(f"seed {seed}: {error}")


def test_the_same_seed_is_the_same_walk() -> None:
    one, other = walk(7), walk(7)
    assert one.group.oracle.committed == other.group.oracle.committed
    assert one.group.wire == other.group.wire
