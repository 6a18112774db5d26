"""Position -> term as runs: all that consensus knows about the bytes of the log.

    start                                              end
      | term 3        | term 5              | term 6    |
      base_term = term of the byte before `start`

Law: terms never fall along the log, each term has at most one run, and a term's bytes were written by one leader.
So an equal term of the byte before p on two nodes, p an entry boundary, means equal bytes below p.
Does not know: entries, sizes, what a leader is."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from model.ids import LogPosition, Term

Run = tuple[Term, LogPosition]  # (term, where its run starts)


class EpochTable:
    """The runs of one log; rolled back on truncation, cut at the head when the log start moves."""

    __slots__ = ("_starts", "_terms", "base_term", "end", "start")

    def __init__(self, start: LogPosition, base_term: Term, runs: Iterable[Run], end: LogPosition) -> None:
        self.start = start
        self.base_term = base_term
        self.end = end
        self._terms: list[Term] = []
        self._starts: list[LogPosition] = []
        for term, at in runs:
            assert term >= self.last_term and (self._terms or at == start), (term, at, start)
            self._terms.append(term)
            self._starts.append(at)
        assert start <= end and (bool(self._terms) == (end > start)), (start, end, self._terms)

    @property
    def last_term(self) -> Term:
        """The term of the last byte (of the byte before the log when it is empty)."""
        return self._terms[-1] if self._terms else self.base_term

    def term_before(self, position: LogPosition) -> Term:
        """The term of the byte before `position`."""
        assert self.start <= position <= self.end, (self.start, position, self.end)
        index = bisect_left(self._starts, position) - 1
        return self._terms[index] if index >= 0 else self.base_term

    def term_at(self, position: LogPosition) -> Term:
        """The term of the byte at `position`."""
        assert self.start <= position < self.end, (self.start, position, self.end)
        return self._terms[bisect_right(self._starts, position) - 1]

    def append(self, term: Term, start: LogPosition, end: LogPosition) -> None:
        """Bytes [start, end) of this term follow the log."""
        assert start == self.end < end and term >= self.last_term, (start, self.end, end, term, self.last_term)
        if not self._terms or term != self._terms[-1]:
            self._terms.append(term)
            self._starts.append(start)
        self.end = end

    def truncate(self, to: LogPosition) -> None:
        """Forget everything at and above `to`."""
        assert self.start <= to <= self.end, (self.start, to, self.end)
        keep = bisect_left(self._starts, to)
        del self._terms[keep:], self._starts[keep:]
        self.end = to

    def drop_head(self, to: LogPosition) -> None:
        """The log begins at `to` from now on."""
        base_term, runs = self.term_before(to), self.runs(to, self.end)
        self.start, self.base_term = to, base_term
        self._terms = [term for term, _ in runs]
        self._starts = [at for _, at in runs]

    def runs(self, start: LogPosition, end: LogPosition) -> tuple[Run, ...]:
        """The runs that cover [start, end), the first one cut to begin at `start`."""
        assert self.start <= start <= end <= self.end, (self.start, start, end, self.end)
        if start == end:
            return ()
        first = bisect_right(self._starts, start) - 1
        last = bisect_left(self._starts, end)
        found = list(zip(self._terms[first:last], self._starts[first:last], strict=True))
        found[0] = (found[0][0], start)
        return tuple(found)

    def end_of(self, term: Term) -> LogPosition | None:
        """Where this term's run ends; None when the log never held the term."""
        index = bisect_left(self._terms, term)
        if index < len(self._terms) and self._terms[index] == term:
            return self._starts[index + 1] if index + 1 < len(self._starts) else self.end
        return self.start if term == self.base_term else None

    def end_below(self, term: Term) -> LogPosition | None:
        """The end of the largest epoch smaller than `term`; None when that lies below the log start."""
        index = bisect_left(self._terms, term)
        if index == 0:
            return self.start if self.base_term < term else None
        return self._starts[index] if index < len(self._starts) else self.end

    def hint(self, position: LogPosition, term: Term) -> Run:
        """Answer to "is your byte before `position` of `term`?": the last own epoch that could still agree.

        An epoch above the asked term cannot be in the asker's log below `position`; naming it would not move the
        search, so the answer is the largest epoch <= term, with the place where it ends, never beyond `position`."""
        limit = min(position, self.end)
        index = bisect_left(self._starts, limit) - 1
        while index >= 0 and self._terms[index] > term:
            limit = self._starts[index]
            index -= 1
        return (self._terms[index], limit) if index >= 0 else (self.base_term, self.start)

    def first_difference(self, runs: Iterable[Run], start: LogPosition, end: LogPosition) -> LogPosition | None:
        """The first byte of [start, end) whose term differs from what `runs` say; None when all agree."""
        theirs = [run for run in runs if run[1] < end]
        marks = sorted({start, *(at for _, at in theirs if start < at), *(a for a in self._starts if start < a < end)})
        for mark in marks:
            if mark >= end:
                break
            term = [t for t, at in theirs if at <= mark][-1]
            if self.term_at(LogPosition(mark)) != term:
                return LogPosition(mark)
        return None
