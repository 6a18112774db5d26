"""structlog, set up once per process.

Law: an event is a snake_case fact with fields, on stderr, one line. Fields that hold secrets are masked here, last,
so that no caller has to remember it. Does not know: who logs, or what.
"""

import logging
import sys
from typing import TextIO

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

LEVELS = ("debug", "info", "warning", "error")
SECRET_WORDS = ("secret", "password", "token")


def setup(*, json: bool, level: str = "info", stream: TextIO | None = None) -> None:
    """JSON lines for machines, aligned columns for people."""
    assert level in LEVELS, level
    target = sys.stderr if stream is None else stream
    render: Processor = (
        structlog.processors.JSONRenderer() if json else structlog.dev.ConsoleRenderer(colors=target.isatty())
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _mask_secrets,
            *([structlog.processors.format_exc_info] if json else []),
            render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.WriteLoggerFactory(target),
        cache_logger_on_first_use=False,
    )


def logger(**fields: object) -> FilteringBoundLogger:
    """A logger whose events all carry these fields; usable before `setup`."""
    bound: FilteringBoundLogger = structlog.get_logger(**fields)
    return bound


def _mask_secrets(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    for name in event:
        if any(word in name.lower() for word in SECRET_WORDS):
            event[name] = "***"
    return event
