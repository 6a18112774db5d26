"""The store's knobs: tiny values are legal, contradictions are not."""

from model.config import violations
from store.config import StoreConfig


def test_defaults_and_tiny_test_values_are_legal() -> None:
    assert violations(StoreConfig()) == []
    tiny = StoreConfig(segment_bytes=4096, queue_file_units=4, index_slots=4, index_units=4, checkpoint_bytes=1024)
    assert violations(tiny) == []


def test_an_entry_never_exceeds_what_a_segment_can_hold() -> None:
    assert StoreConfig().entry_bytes_limit == 8 * 1024 * 1024
    assert StoreConfig(segment_bytes=4096).entry_bytes_limit == 4096 - 48


def test_disk_marks_must_rise() -> None:
    (problem,) = violations(StoreConfig(disk_clean_percent=85))
    assert "85, 85, 90 must rise" in problem
