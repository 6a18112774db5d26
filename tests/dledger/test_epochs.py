"""The epoch table against a twin that keeps the term of every single byte."""

from hypothesis import given
from hypothesis import strategies as st

from dledger.epochs import EpochTable
from model.ids import LogPosition, Term


class Twin:
    """A list of terms, one per byte; everything by looking."""

    def __init__(self, start: int, base_term: int, terms: list[int]) -> None:
        self.start, self.base_term, self.terms = start, base_term, terms

    @property
    def end(self) -> int:
        return self.start + len(self.terms)

    def before(self, position: int) -> int:
        return self.terms[position - 1 - self.start] if position > self.start else self.base_term

    def runs(self, start: int, end: int) -> list[tuple[int, int]]:
        return [
            (self.terms[p - self.start], p)
            for p in range(start, end)
            if p == start or self.terms[p - self.start] != self.terms[p - 1 - self.start]
        ]


def table_of(twin: Twin) -> EpochTable:
    runs = [(Term(term), LogPosition(at)) for term, at in twin.runs(twin.start, twin.end)]
    return EpochTable(LogPosition(twin.start), Term(twin.base_term), runs, LogPosition(twin.end))


@st.composite
def twins(draw: st.DrawFn) -> Twin:
    base_term = draw(st.integers(0, 3))
    terms = sorted(draw(st.lists(st.integers(base_term, base_term + 6), max_size=14)))
    return Twin(draw(st.integers(0, 5)), base_term, terms)


def positions(twin: Twin, data: st.DataObject) -> LogPosition:
    return LogPosition(data.draw(st.integers(twin.start, twin.end)))


@given(twins(), st.data())
def test_terms_and_runs_are_those_of_the_bytes(twin: Twin, data: st.DataObject) -> None:
    table = table_of(twin)
    start, end = sorted((positions(twin, data), positions(twin, data)))
    assert list(table.runs(start, end)) == twin.runs(start, end)
    assert table.term_before(start) == twin.before(start)
    assert table.last_term == twin.before(twin.end)
    assert start == twin.end or table.term_at(start) == twin.terms[start - twin.start]


@given(twins(), st.data())
def test_a_truncated_and_a_beheaded_table_are_those_of_the_bytes_left(twin: Twin, data: st.DataObject) -> None:
    table, to = table_of(twin), positions(twin, data)
    table.truncate(to)
    left = Twin(twin.start, twin.base_term, twin.terms[: to - twin.start])
    assert list(table.runs(table.start, table.end)) == left.runs(left.start, left.end)
    head = LogPosition(data.draw(st.integers(left.start, left.end)))
    table.drop_head(head)
    rest = Twin(head, left.before(head), left.terms[head - left.start :])
    assert (table.start, table.base_term, table.end) == (rest.start, rest.base_term, rest.end)
    assert list(table.runs(table.start, table.end)) == rest.runs(rest.start, rest.end)


@given(twins(), st.integers(0, 12))
def test_an_epoch_ends_where_its_last_byte_does(twin: Twin, term: int) -> None:
    table = table_of(twin)
    having = [p + 1 for p in range(twin.start, twin.end) if twin.terms[p - twin.start] == term]
    expected = max(having, default=None)
    if expected is None and term == twin.base_term:
        expected = twin.start
    assert table.end_of(Term(term)) == expected


@given(twins(), st.integers(0, 12))
def test_the_end_below_a_term_is_the_end_of_the_largest_smaller_epoch(twin: Twin, term: int) -> None:
    smaller = [p + 1 for p in range(twin.start, twin.end) if twin.terms[p - twin.start] < term]
    expected = max(smaller, default=twin.start if twin.base_term < term else None)
    assert table_of(twin).end_below(Term(term)) == expected


@given(twins(), st.data())
def test_the_hint_is_the_last_place_that_could_agree(twin: Twin, data: st.DataObject) -> None:
    table = table_of(twin)
    position = data.draw(st.integers(twin.start, twin.end + 5))
    term = data.draw(st.integers(twin.base_term, twin.base_term + 7))
    places = [p for p in range(twin.start, min(position, twin.end) + 1) if twin.before(p) <= term]
    assert table.hint(LogPosition(position), Term(term)) == (twin.before(max(places)), max(places))


@given(twins(), st.data())
def test_the_first_difference_is_found_by_comparing_every_byte(twin: Twin, data: st.DataObject) -> None:
    start, end = sorted((positions(twin, data), positions(twin, data)))
    theirs = sorted(data.draw(st.lists(st.integers(0, 9), min_size=end - start, max_size=end - start)))
    runs = Twin(start, 0, theirs).runs(start, end)
    different = [p for p in range(start, end) if twin.terms[p - twin.start] != theirs[p - start]]
    found = table_of(twin).first_difference([(Term(t), LogPosition(at)) for t, at in runs], start, end)
    assert found == min(different, default=None)


@given(twins(), twins())
def test_the_search_finds_the_longest_common_prefix_in_one_round_trip_per_epoch(one: Twin, other: Twin) -> None:
    """Leader and follower logs in which, as in Raft, a term's bytes are the same wherever both have them."""
    leader, follower = Twin(0, 0, one.terms), Twin(0, 0, other.terms)
    agree = 0
    while agree < min(leader.end, follower.end) and leader.terms[agree] == follower.terms[agree]:
        agree += 1
    if set(leader.terms[agree:]) & set(follower.terms[agree:]):
        return  # one term with two histories: no such logs exist
    lead, follow = table_of(leader), table_of(follower)
    prev, rounds = LogPosition(leader.end), 0
    while prev > follow.end or follow.term_before(prev) != lead.term_before(prev):
        hint_term, hint_end = follow.hint(prev, lead.term_before(prev))
        own_end = lead.end_of(hint_term)
        target = lead.end_below(hint_term) if own_end is None else min(own_end, hint_end)
        assert target is not None and target < prev
        prev, rounds = target, rounds + 1
    assert prev == agree
    assert rounds <= len(set(follower.terms)) + 1
