"""Known entry boundaries of the log with the chain crc there: every recent one, and a sparse trail of older ones.

Law: a mark is an entry boundary and its chain is right; how many there are is a matter of speed only.
Does not know: files, entries.
"""

from array import array
from bisect import bisect_right

SPACING_BYTES = 64 << 10  # older marks: at most this many bytes of envelopes are walked to find any boundary
RECENT_MAX = 4096  # of these every boundary is known: followers that keep up ask for nothing else


class Marks:
    def __init__(self) -> None:
        self._positions = array("q")
        self._chains = array("I")
        self._sparse = 0  # how many of the marks have been thinned out

    def __len__(self) -> int:
        return len(self._positions)

    def note(self, position: int, chain: int) -> None:
        """A new boundary above all others."""
        self._positions.append(position)
        self._chains.append(chain)
        if len(self._positions) - self._sparse > 2 * RECENT_MAX:
            self._thin()

    def learn(self, position: int, chain: int) -> None:
        """An old boundary met on a walk; kept if there is none near."""
        positions = self._positions
        at = bisect_right(positions, position)
        if at and position - positions[at - 1] < SPACING_BYTES:
            return
        if at < len(positions) and positions[at] - position < SPACING_BYTES:
            return
        positions.insert(at, position)
        self._chains.insert(at, chain)
        self._sparse += at <= self._sparse

    def floor(self, position: int) -> tuple[int, int] | None:
        """The highest mark at or below `position`."""
        at = bisect_right(self._positions, position) - 1
        return (self._positions[at], self._chains[at]) if at >= 0 else None

    def cut_above(self, position: int) -> None:
        at = bisect_right(self._positions, position)
        del self._positions[at:], self._chains[at:]
        self._sparse = min(self._sparse, at)

    def drop_below(self, position: int) -> None:
        at = bisect_right(self._positions, position - 1)
        del self._positions[:at], self._chains[:at]
        self._sparse = max(0, self._sparse - at)

    def _thin(self) -> None:
        positions, chains = self._positions, self._chains
        stop = self._sparse + RECENT_MAX
        kept_positions, kept_chains = positions[: self._sparse], chains[: self._sparse]
        for at in range(self._sparse, stop):
            if not kept_positions or positions[at] - kept_positions[-1] >= SPACING_BYTES:
                kept_positions.append(positions[at])
                kept_chains.append(chains[at])
        self._sparse = len(kept_positions)
        self._positions = kept_positions + positions[stop:]
        self._chains = kept_chains + chains[stop:]
