"""Timing: wall and processor time of a stretch of work, and what several of them say.

Law: the best tells what the code can do, the median what the machine usually lets it do; both are reported.
Does not know: what is measured.
"""

from collections.abc import Callable
from statistics import median
from time import perf_counter, process_time
from typing import NamedTuple


class Span(NamedTuple):
    wall: float  # seconds
    cpu: float  # of this process, all threads


def timed(work: Callable[[], object]) -> Span:
    """Do it once."""
    wall, cpu = perf_counter(), process_time()
    work()
    return Span(perf_counter() - wall, process_time() - cpu)


def best_wall(spans: list[Span]) -> float:
    return min(span.wall for span in spans)


def median_wall(spans: list[Span]) -> float:
    return median(span.wall for span in spans)


def best_cpu(spans: list[Span]) -> float:
    return min(span.cpu for span in spans)


def median_cpu(spans: list[Span]) -> float:
    return median(span.cpu for span in spans)
