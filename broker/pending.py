"""Who waits for which entry.

Law: a waiting request is answered only by what was committed at its position: done when the byte there has the term
in which it was written, refused when another leader's entry stands there. Being truncated here proves nothing yet:
the entry may live on another node and be committed by it later. Until then there is no answer."""

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

from model.ids import LogPosition


class Pending:
    """One proposed sub-batch or command."""

    __slots__ = ("end", "offset", "position", "replies", "stored_at", "term")

    def __init__(self, offset: int = -1, position: int = -1, end: int = -1, term: int = -1) -> None:
        self.offset = offset  # first queue offset
        self.position = position  # of the entry, known when it is placed
        self.end = end
        self.term = term
        self.stored_at = -1  # commitlog position of the first message
        self.replies: list[Callable[[bool], None]] = []

    def settle(self, stored: bool) -> None:
        """Tell everybody who waits; a duplicate that attached hears the same."""
        for reply in self.replies:
            reply(stored)
        self.replies.clear()


class PendingTable:
    """All that waits, by the position of its entry: what is committed at that byte decides, long before the log has
    grown to the end of an entry that was replaced by a shorter one."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Pending]] = []
        self._number = count()

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, pending: Pending) -> None:
        """Wait for this entry."""
        heappush(self._heap, (pending.position, next(self._number), pending))

    def complete(self, applied: int, term_at: Callable[[LogPosition], int]) -> None:
        """Everything below `applied`, an entry boundary, is committed and in force."""
        while self._heap and self._heap[0][0] < applied:
            pending = heappop(self._heap)[2]
            pending.settle(term_at(LogPosition(pending.position)) == pending.term)

    def forget_below(self, position: int) -> None:
        """The log was replaced from `position` on: what waited below it can no longer be judged here."""
        while self._heap and self._heap[0][0] < position:
            heappop(self._heap)
