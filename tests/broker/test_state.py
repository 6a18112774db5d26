"""The replicated state machine: a function of committed entries; snapshots restore it; duplicates are known."""

import ast
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.state import dedup, machine
from broker.state.commands import Command, UnknownCommand, encode, log_start, topic_delete, topic_set
from broker.state.dedup import ANSWERS_KEPT, KEY_WINDOW_BYTES, Answer, Dedup, Verdict
from broker.state.machine import Diverged, StateMachine
from store.entry import ENVELOPE_BYTES
from store.preamble import Preamble, SubBatch, pack_preamble, parse_preamble

SOURCE = (b"p", "t", 0)
PURE = {"typing", "msgpack", "enum", "collections", "broker", "store"}


def entry(*batches: SubBatch, control: tuple[Command, ...] = (), length: int = 100) -> Preamble:
    count = sum(batch.count for batch in batches)
    return parse_preamble(
        pack_preamble(
            encode(list(control)), batches, np.full(count, length, ">u4"), np.zeros(count, ">i8"),
            np.zeros(count, "u1"), np.empty(0, ">i4"),
        )
        + bytes(count * length)
    )  # fmt: skip


class Tape:
    """Applies entries one after another, as a log would hold them."""

    def __init__(self) -> None:
        self.state = StateMachine((("n0", 7),))
        self.end = 0

    def put(self, *batches: SubBatch, control: tuple[Command, ...] = (), size: int = 1000) -> tuple[str, ...]:
        deleted = self.state.apply(self.end, self.end + size, entry(*batches, control=control))
        self.end += size
        return deleted


def with_topic() -> Tape:
    tape = Tape()
    tape.put(control=(topic_set("t", 2, 2, 6),))
    return tape


# ---- apply, snapshot, restore ----------------------------------------------------------------------------------------


def test_equal_entries_give_equal_snapshots_and_a_snapshot_restores_all_of_it() -> None:
    one, two = with_topic(), with_topic()
    for tape in (one, two):
        tape.put(SubBatch("t", 0, 3, 0, b"p", 0), SubBatch("t", 1, 1, 0, b"key"))
        tape.put(SubBatch("t", 0, 2, 3, b"p", 1), control=(topic_set("u", 4, 4, 6), log_start(500)))
        tape.state.advance(tape.end + 48)
    assert one.state.snapshot() == two.state.snapshot()
    back = StateMachine.restore(one.state.snapshot())
    assert back.snapshot() == one.state.snapshot()
    assert vars(back)["topics"] == one.state.topics and back.next_offsets == one.state.next_offsets
    assert (back.position, back.log_start, back.genesis) == (one.end + 48, 500, (("n0", 7),))
    assert back.last_positions == one.state.last_positions != {}


def test_the_order_in_which_topics_came_leaves_no_trace_in_a_snapshot() -> None:
    one, two = Tape(), Tape()
    one.put(control=(topic_set("a", 1, 1, 6), topic_set("b", 1, 1, 6)))
    two.put(control=(topic_set("b", 1, 1, 6), topic_set("a", 1, 1, 6)))
    assert one.state.snapshot() == two.state.snapshot()


def test_control_a_forgotten_field_would_show_in_the_snapshot() -> None:
    tape = with_topic()
    before = tape.state.snapshot()
    tape.put(SubBatch("t", 0, 1, 0))
    assert tape.state.snapshot() != before


commands = st.one_of(
    st.builds(topic_set, st.sampled_from("ab"), st.just(2), st.just(2), st.just(6)),
    st.builds(topic_delete, st.sampled_from("ab")),
    st.builds(log_start, st.integers(0, 20_000)),
)


sends = st.tuples(st.sampled_from("ab"), st.integers(0, 1), st.integers(1, 3), st.sampled_from([b"", b"p", b"k"]))


@given(st.lists(st.one_of(commands, sends), max_size=25), st.integers(0, 25))
def test_a_state_restored_anywhere_goes_on_like_one_that_was_never_stopped(steps: list[Any], stop: int) -> None:
    plain, stopped = Tape(), Tape()
    numbers: dict[tuple[str, int], int] = {}
    for index, step in enumerate(steps):
        if index == stop:
            stopped.state = StateMachine.restore(stopped.state.snapshot())
        if isinstance(step[0], str) and len(step) == 4 and isinstance(step[3], bytes):
            topic, queue, count, producer = step
            if topic not in plain.state.topics:
                continue
            key = (topic, queue)
            sequence = numbers[key] = numbers.get(key, -1) + 1 if producer == b"p" else numbers.get(key, -1)
            first = plain.state.next_offsets.get(key, 0)
            batch = SubBatch(topic, queue, count, first, producer, sequence if producer == b"p" else -1)
            for tape in (plain, stopped):
                tape.put(batch)
        else:
            if step[0] == "topic_delete":
                numbers = {key: number for key, number in numbers.items() if key[0] != step[2]}
            assert plain.put(control=(step,)) == stopped.put(control=(step,))
    assert plain.state.snapshot() == stopped.state.snapshot()


def test_apply_reads_no_clock_and_no_configuration() -> None:
    for module in (machine, dedup):
        tree = ast.parse(Path(str(module.__file__)).read_text())
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names.append(node.module or "")
            for name in names:
                assert name.split(".")[0] in PURE and "config" not in name and "clock" not in name, name


def test_control_the_rule_would_see_a_clock() -> None:
    tree = ast.parse("from model.clock import SystemClock")
    assert any(isinstance(node, ast.ImportFrom) and "clock" in (node.module or "") for node in ast.walk(tree))


# ---- what cannot be followed -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [("grow_wings", 1), ("topic_set", 2, "t", 1, 1, 6), ("topic_set", 1, "t"), ()])
def test_a_command_that_is_not_known_stops_the_node_and_is_never_skipped(command: Command) -> None:
    with pytest.raises(UnknownCommand, match="run the release that wrote it"):
        with_topic().put(control=(command,))


def test_a_newer_state_version_stops_the_node() -> None:
    data = with_topic().state.snapshot().replace(b"\xa7version\x01", b"\xa7version\x02")
    with pytest.raises(UnknownCommand):
        StateMachine.restore(data)


@pytest.mark.parametrize("first", [0, 2, 4])
def test_an_offset_that_is_not_the_next_one_is_divergence(first: int) -> None:
    tape = with_topic()
    tape.put(SubBatch("t", 0, 3, 0))
    with pytest.raises(Diverged, match="expects 3"):
        tape.put(SubBatch("t", 0, 1, first))


def test_messages_of_a_topic_that_does_not_exist_are_divergence() -> None:
    with pytest.raises(Diverged, match="does not exist"):
        Tape().put(SubBatch("t", 0, 1, 0))


def test_commands_come_into_force_before_the_messages_of_their_entry() -> None:
    tape = Tape()
    tape.put(SubBatch("t", 0, 1, 0), control=(topic_set("t", 1, 1, 6),))
    assert tape.state.next_offsets == {("t", 0): 1}


def test_where_the_last_sub_batch_of_a_queue_begins_is_known_until_its_topic_goes() -> None:
    tape = with_topic()
    first = entry(SubBatch("t", 0, 3, 0), SubBatch("t", 1, 1, 0))
    at = tape.end + ENVELOPE_BYTES + first.messages_at
    tape.put(SubBatch("t", 0, 3, 0), SubBatch("t", 1, 1, 0))
    assert tape.state.last_positions == {("t", 0): at, ("t", 1): at + 300}
    tape.put(SubBatch("t", 0, 1, 3))
    assert tape.state.last_positions[("t", 0)] > tape.end - 1000 and tape.state.last_positions[("t", 1)] == at + 300
    tape.put(control=(topic_set("u", 1, 1, 6),))
    tape.put(SubBatch("u", 0, 1, 0), control=(topic_delete("t"),))
    assert list(tape.state.last_positions) == [("u", 0)]


def test_the_last_entry_with_keys_is_known_and_restored() -> None:
    tape = with_topic()
    assert tape.state.last_keys == (-1, 0)
    keyed = pack_preamble(b"", [SubBatch("t", 0, 2, 0)], [9, 9], [0, 0], [2, 1], [5, 6, 7])
    tape.state.apply(tape.end, tape.end + 1000, parse_preamble(keyed + bytes(18)))
    tape.end += 1000
    tape.put(SubBatch("t", 0, 1, 2))
    assert tape.state.last_keys == (tape.end - 2000, 3)
    assert StateMachine.restore(tape.state.snapshot()).last_keys == (tape.end - 2000, 3)


# ---- topics that go and come back ------------------------------------------------------------------------------------


def test_a_topic_that_is_deleted_and_made_again_shows_nothing_old() -> None:
    tape = with_topic()
    tape.put(SubBatch("t", 0, 3, 0, b"p", 0), SubBatch("t", 1, 1, 0, b"key"))
    old = tape.end - 1000
    assert tape.state.shows("t", old)
    assert tape.put(control=(topic_delete("t"),)) == ("t",)
    assert not tape.state.shows("t", old) and ("t", 0) not in tape.state.next_offsets
    tape.put(control=(topic_set("t", 2, 2, 6),))
    assert not tape.state.shows("t", old) and tape.state.shows("t", tape.end)
    assert tape.state.dedup.judge(SOURCE, 0) is Verdict.FRESH and tape.state.dedup.find_key(b"key") is None
    tape.put(SubBatch("t", 0, 1, 0, b"p", 0))


def test_a_change_of_a_topic_keeps_what_it_shows() -> None:
    tape = with_topic()
    tape.put(SubBatch("t", 0, 3, 0))
    tape.put(control=(topic_set("t", 8, 8, 6),))
    assert tape.state.shows("t", 1000) and tape.state.topics["t"].write_queues == 8


def test_deleting_what_does_not_exist_names_nothing() -> None:
    assert with_topic().put(control=(topic_delete("u"),)) == ()


def test_the_log_start_never_goes_back() -> None:
    tape = with_topic()
    tape.put(control=(log_start(800),))
    tape.put(control=(log_start(300),))
    assert tape.state.log_start == 800


# ---- dedup -----------------------------------------------------------------------------------------------------------


def test_a_repeated_sub_batch_gets_its_first_answer_and_each_batch_of_an_entry_its_own() -> None:
    tape = with_topic()
    tape.put(SubBatch("t", 0, 2, 0, b"p", 0), SubBatch("t", 1, 1, 0, b"p", 0))
    one, two = (tape.state.dedup.judge((b"p", "t", queue), 0) for queue in (0, 1))
    assert isinstance(one, Answer) and isinstance(two, Answer)
    assert (one.offset, two.offset) == (0, 0) and two.position - one.position == 200


def test_a_gap_is_refused_and_an_answer_that_is_no_longer_kept_is_not_fresh() -> None:
    table = Dedup()
    for sequence in range(ANSWERS_KEPT + 2):
        table.store(SOURCE, Answer(sequence, sequence * 3, sequence * 10))
    last = ANSWERS_KEPT + 1
    assert table.judge(SOURCE, last + 1) is Verdict.FRESH
    assert table.judge(SOURCE, last + 2) is Verdict.GAP
    assert table.judge(SOURCE, last - ANSWERS_KEPT) is Verdict.FORGOTTEN
    assert table.judge(SOURCE, last - ANSWERS_KEPT + 1) == Answer(2, 6, 20)
    assert table.judge((b"other", "t", 0), 1) is Verdict.GAP


def test_keys_are_forgotten_by_log_position_and_by_nothing_else() -> None:
    table = Dedup()
    table.store_key(b"old", "t", Answer(-1, 0, 100))
    table.store_key(b"edge", "t", Answer(-1, 1, 200))
    table.store_key(b"new", "t", Answer(-1, 2, 200 + KEY_WINDOW_BYTES))
    assert table.find_key(b"old") is None
    assert table.find_key(b"edge") == Answer(-1, 1, 200)


def test_the_oldest_key_goes_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dedup, "KEYS_MAX", 3)
    table = Dedup()
    for number in range(5):
        table.store_key(b"%d" % number, "t", Answer(-1, number, number))
    assert [table.find_key(b"%d" % number) is not None for number in range(5)] == [False, False, True, True, True]


def test_the_producer_that_was_silent_longest_goes_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dedup, "PRODUCERS_MAX", 2)
    table = Dedup()
    for number, producer in enumerate((b"a", b"b", b"a", b"c")):
        table.store((producer, "t", 0), Answer(number, 0, number))
    assert [table.last_sequence((producer, "t", 0)) for producer in (b"a", b"b", b"c")] == [2, -1, 3]


def test_eviction_is_the_same_after_a_restore(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dedup, "PRODUCERS_MAX", 4)
    monkeypatch.setattr(dedup, "KEYS_MAX", 4)
    random, plain, restored = Random(5), Dedup(), Dedup()
    for position in range(300):
        answer = Answer(position, position, position)
        if position % 50 == 0:
            fresh = Dedup()
            fresh.restore(restored.snapshot())
            restored = fresh
        producer = b"%d" % random.randrange(9)
        for table in (plain, restored):
            table.store((producer, "t", 0), answer)
            table.store_key(producer, "t", answer)
        assert plain.snapshot() == restored.snapshot()


def test_keys_below_the_log_start_go_and_numbered_producers_stay() -> None:
    tape = with_topic()
    tape.put(SubBatch("t", 0, 1, 0, b"p", 0), SubBatch("t", 1, 1, 0, b"key"))
    tape.put(control=(log_start(tape.end),))
    assert tape.state.dedup.find_key(b"key") is None
    assert isinstance(tape.state.dedup.judge(SOURCE, 0), Answer), "its retry would be stored twice"
