"""What the leader believes of a follower, transition by transition."""

from dledger.progress import BEATS_OF_PATIENCE_MAX, Mode, Progress
from model.ids import Incarnation, LogPosition

HEARTBEAT = 2


def at(position: int) -> LogPosition:
    return LogPosition(position)


def progress(next_position: int = 100) -> Progress:
    return Progress(Incarnation(1), at(next_position), 0)


def replicating(position: int) -> Progress:
    believed = progress(position)
    believed.accepted(at(position), at(position), 0)
    return believed


def silence(believed: Progress, first: int, beats: int) -> int:
    """The follower answers heartbeats, but nothing moves; after how many beats is it called lost?"""
    for beat in range(1, beats + 1):
        now = first + beat * HEARTBEAT
        believed.heard = now
        asked, mode = believed.asked, believed.mode
        believed.check_silence(now, HEARTBEAT)
        if (believed.asked, believed.mode) != (asked, mode):
            return beat
    return 0


def test_an_accepted_probe_starts_replication_from_what_was_proved() -> None:
    believed = progress(100)
    assert believed.accepted(at(80), at(90), 1)
    assert (believed.mode, believed.match, believed.next) == (Mode.REPLICATE, 80, 90)


def test_nothing_proved_changes_nothing_but_what_was_received() -> None:
    believed = progress(100)
    assert not believed.accepted(at(-1), at(-1), 1)
    assert (believed.mode, believed.match, believed.next) == (Mode.PROBE, 0, 100)


def test_match_never_falls() -> None:
    believed = replicating(100)
    assert not believed.accepted(at(50), at(60), 1)
    assert believed.match == 100


def test_a_hint_moves_next_and_never_match() -> None:
    believed = progress(100)
    believed.rejected(at(100), at(40), 1)
    assert (believed.match, believed.next, believed.asked) == (0, 40, False)


def test_a_reject_of_another_probe_is_ignored() -> None:
    believed = progress(100)
    believed.asking(1)
    believed.rejected(at(90), at(40), 1)
    assert (believed.next, believed.asked) == (100, True)


def test_a_reject_of_what_was_proved_is_ignored() -> None:
    believed = replicating(100)
    believed.rejected(at(100), at(40), 1)
    assert (believed.mode, believed.next) == (Mode.REPLICATE, 100)


def test_a_reject_without_progress_is_ignored() -> None:
    believed = progress(100)
    believed.asking(1)
    believed.rejected(at(100), at(100), 1)
    assert believed.asked


def test_an_answer_from_before_a_handover_does_not_end_it() -> None:
    believed = progress(100)
    believed.rejected(at(100), None, 1)
    believed.handing_over(at(512), at(600))
    believed.asking(1)
    believed.accepted(at(100), at(100), 2)
    assert (believed.mode, believed.asked) == (Mode.HANDOVER, True)
    believed.accepted(at(512), at(512), 3)
    assert (believed.mode, believed.asked, believed.next) == (Mode.REPLICATE, False, 512)


def test_a_lost_probe_is_repeated_after_two_beats_and_then_ever_more_patiently() -> None:
    believed = progress(100)
    waits, now = [], 0
    for _ in range(7):
        believed.asking(now)
        waits.append(silence(believed, now, 200))
        now += waits[-1] * HEARTBEAT
    assert waits == [2, 4, 8, 16, 32, 64, BEATS_OF_PATIENCE_MAX]


def test_lost_bytes_are_sent_again_from_what_was_received() -> None:
    believed = replicating(100)
    believed.sending(0)
    believed.next = at(300)
    believed.accepted(at(100), at(200), 0)
    assert silence(believed, 0, 10) == 3
    assert (believed.mode, believed.next) == (Mode.PROBE, 200)


def test_a_follower_that_has_everything_is_never_called_lost() -> None:
    assert silence(replicating(100), 0, 100) == 0


def test_nobody_resends_to_the_dead() -> None:
    believed = progress(100)
    believed.asking(0)
    for now in range(2 * HEARTBEAT + 1, 100):
        believed.check_silence(now, HEARTBEAT)
    assert believed.asked


def test_a_broken_link_begins_again_from_what_was_proved() -> None:
    believed = replicating(100)
    believed.next = at(300)
    believed.lost(5)
    assert (believed.mode, believed.next) == (Mode.PROBE, 100)


def test_a_member_is_caught_up_when_it_has_what_was_there_when_it_came_and_all_but_the_newest() -> None:
    believed = progress(100)
    assert not believed.caught_up(0)
    believed.accepted(at(100), at(100), 1)
    assert believed.caught_up(60)
    assert not believed.caught_up(150)
    believed.handing_over(at(512), at(600))
    assert not believed.caught_up(60)


def test_a_follower_that_refuses_what_it_acknowledged_is_not_asked_again_at_once() -> None:
    believed = replicating(100)
    believed.lost(1)
    believed.asking(2)
    believed.rejected(at(100), at(40), 3)  # its disk was replaced by an older copy
    assert believed.asked and believed.next == 100
