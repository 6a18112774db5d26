"""Time as an argument.

Law: this is the only module that imports `time`; everyone else is handed a Clock, so that a simulation can own it.
Wall time goes into log entries (people read it); durations are measured on the monotonic clock, which no operator
and no NTP step can move.
"""

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall time in ms since the epoch; may jump either way."""
        ...

    def monotonic_ms(self) -> int:
        """Ms since some fixed moment; never goes back."""
        ...


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000
