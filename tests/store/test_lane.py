"""Jobs in order, off the caller's thread, results brought back."""

import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue

import pytest

from store.lane import ThreadLane


def test_jobs_run_in_order_on_one_other_thread_and_results_come_back_in_order() -> None:
    posted: SimpleQueue[Callable[[], None]] = SimpleQueue()
    lane = ThreadLane(posted.put, "test")
    threads: set[int] = set()
    results: list[object] = []

    def job(number: int) -> int:
        threads.add(threading.get_ident())
        return number

    for number in range(100):
        lane.submit(partial(job, number), results.append)
    lane.close()
    assert results == []  # nothing was called on the lane's own thread
    while not posted.empty():
        posted.get()()
    assert results == list(range(100))
    assert len(threads) == 1 and threading.get_ident() not in threads


def test_a_failing_job_reports_its_error_and_the_lane_goes_on() -> None:
    results: list[object] = []
    lane = ThreadLane(lambda call: call())
    lane.submit(lambda: 1 // 0, results.append)
    lane.submit(lambda: "next", results.append)
    lane.close()
    assert isinstance(results[0], ZeroDivisionError)
    assert results[1] == "next"


def test_a_closed_lane_refuses_and_closes_twice() -> None:
    lane = ThreadLane(lambda call: call())
    lane.close()
    lane.close()
    with pytest.raises(AssertionError):
        lane.submit(lambda: None, lambda _: None)
