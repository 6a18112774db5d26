"""A lane of slow jobs on one thread of its own.

Law: jobs run one at a time in the order of `submit`; `done` never runs on the lane's thread, but where `post` brings
it (for a broker: loop.call_soon_threadsafe). A job that raises does not stop the lane: its error is its result.
Does not know: what the jobs do, event loops.
"""

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeVar

T = TypeVar("T")


class ThreadLane:
    """The Lane port on a daemon thread; `close` lets the jobs already submitted finish."""

    def __init__(self, post: Callable[[Callable[[], None]], None], name: str = "lane") -> None:
        self._post = post
        self._jobs: SimpleQueue[Callable[[], Callable[[], None]] | None] = SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], T], done: Callable[[T | Exception], None]) -> None:
        assert not self._closed, "submit after close"

        def work() -> Callable[[], None]:
            result: T | Exception
            try:
                result = job()
            except Exception as error:  # the owner of the job decides what its failure means
                result = error
            return lambda: done(result)

        self._jobs.put(work)

    def close(self) -> None:
        """Run what was submitted, then end the thread."""
        if not self._closed:
            self._closed = True
            self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (work := self._jobs.get()) is not None:
            self._post(work())
