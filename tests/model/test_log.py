"""Log lines: one JSON object each, filtered by level, secrets masked."""

import io
import json
from collections.abc import Iterator

import pytest
import structlog

from model import log


@pytest.fixture(autouse=True)
def _defaults_again() -> Iterator[None]:
    yield
    structlog.reset_defaults()


def test_a_json_line_holds_the_event_and_its_fields_but_no_secret() -> None:
    stream = io.StringIO()
    log.setup(json=True, stream=stream)
    logger = log.logger(node="n0")
    logger.debug("too_small_to_tell")
    logger.info("leader_elected", term=3, cluster_secret="hunter2")
    (line,) = stream.getvalue().splitlines()
    told = json.loads(line)
    assert (told["event"], told["level"], told["term"], told["node"]) == ("leader_elected", "info", 3, "n0")
    assert told["cluster_secret"] == "***" and told["timestamp"].endswith("Z")


def test_the_console_form_is_readable_and_without_colour_codes_in_a_file() -> None:
    stream = io.StringIO()
    log.setup(json=False, level="debug", stream=stream)
    log.logger().debug("segment_sealed", position=4096)
    assert "segment_sealed" in stream.getvalue() and "position=4096" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()
