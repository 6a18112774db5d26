"""The small interfaces between pure code and the outside, and the type of "bytes from anywhere".

Law: a port says what is promised, never how. Real implementations live at the edge, simulated ones in chaos/.
Does not know: threads, event loops, files.
"""

from collections.abc import Callable
from typing import Protocol, TypeAlias, TypeVar

T = TypeVar("T")

Buffer: TypeAlias = bytes | bytearray | memoryview


class Lane(Protocol):
    """A queue of slow jobs beside the loop: they run one after another, off the loop, in the order of `submit`."""

    def submit(self, job: Callable[[], T], done: Callable[[T | Exception], None]) -> None:
        """Run `job` off the loop, then call `done` on the loop with its result, or with the exception it raised."""
