"""The hunt for planted bugs: each is planted alone, and what its row names must complain, or a seed of the simulator.

    bug --> what its row names, then further seeds or walks --> somebody complains --> and is silent without the bug

Law: a row's catcher is a hint and never believed: the hunt runs it. A complaint counts only if the same catcher is
silent on the unbroken build. Catchers are named by kind: "transcript NAME", "walk N" (bare cores), "seed N" (the
simulator), "tests/FILE.py::NAME" (one test of the source tree).
Does not know: which bugs there are, terminals."""

import multiprocessing
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from chaos.corewalk import walk
from chaos.planted import SEEDS, Planted
from chaos.planted_core import CORE_PLANTED, SEEDS_TRIED
from chaos.planted_system import SYSTEM_PLANTED
from chaos.simrun import run_seed
from chaos.transcripts import DIRECTORY, run

ROOT = Path(__file__).parents[1]
SIM_SEEDS_TRIED = 60  # of the default seeds, when the hinted one has nothing to say any more


class Row(NamedTuple):
    """What became of one bug."""

    name: str
    rule: str
    caught_by: str | None  # a seed with the property it broke; None: nothing noticed it
    complaint: str


def all_planted() -> list[Planted]:
    """The slow ones first: two processes then end at the same time."""
    return [*SYSTEM_PLANTED, *CORE_PLANTED]


def in_source_tree() -> bool:
    """Whether the transcripts and tests that catch bugs are here; an installed package has none."""
    return DIRECTORY.is_dir()


def hunt_all(workers: int) -> Iterator[Row]:
    """Hunt every bug, in as many processes; rows come as they are ready."""
    names = [bug.name for bug in all_planted()]
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:  # says so when a process dies
        for done in as_completed([pool.submit(_hunt_named, name) for name in names]):
            yield done.result()


def _hunt_named(name: str) -> Row:
    return hunt(next(bug for bug in all_planted() if bug.name == name))


def hunt(bug: Planted) -> Row:
    """Try one catcher after another until one complains about the bug alone."""
    for catcher in catchers(bug.caught_by):
        with bug.patch():
            said = complaint(catcher)
        if said is not None and _silent_unbroken(catcher):
            found = f"{catcher}, {said.partition(':')[0]}" if catcher.startswith("seed ") else catcher
            return Row(bug.name, bug.breaks, found, said)
    return Row(bug.name, bug.breaks, None, "")


def catchers(hint: str) -> Iterator[str]:
    """Whom to ask, in this order."""
    if hint == SEEDS:
        yield from (f"walk {number}" for number in range(SEEDS_TRIED))
    elif hint.startswith("seed "):
        others = (f"seed {number}" for number in range(1, SIM_SEEDS_TRIED + 1))
        yield from chain([hint], (other for other in others if other != hint))
    else:
        yield hint if "::" in hint else f"transcript {hint}"


@cache
def _silent_unbroken(catcher: str) -> bool:
    return complaint(catcher) is None


def complaint(catcher: str) -> str | None:
    """What this catcher has to complain about; None when all is well."""
    kind, _, which = catcher.partition(" ")
    try:
        if kind == "seed":
            violations = run_seed(int(which)).violations
            return f"{violations[0].property}: {violations[0].sentence}" if violations else None
        if kind == "walk":
            walk(int(which))
        elif kind == "transcript":
            run((DIRECTORY / f"{which}.txt").read_text(encoding="utf-8"))
        else:
            _run_test(catcher)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # broken code may fail in any way (pytest's own failures are no Exception)
        return f"{type(error).__name__}: {error}"
    return None


def _run_test(catcher: str) -> None:
    path, _, name = catcher.partition("::")
    if str(ROOT) not in sys.path:
        sys.path.append(str(ROOT))  # an installed command does not look into the source tree by itself
    getattr(import_module(path.removesuffix(".py").replace("/", ".")), name)()


def figures(rows: Sequence[Row]) -> dict[str, object]:
    """The line of `dlmq sim --planted`."""
    return {
        "planted": len(rows),
        "caught": sum(row.caught_by is not None for row in rows),
        "rows": [{"name": row.name, "rule": row.rule, "caught_by": row.caught_by} for row in rows],
    }
