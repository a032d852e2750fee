"""Log lines: one JSON object each, on standard error, with request id and tenant, never with text of a question,
an answer or a document.

An exception is logged as its class and the places it passed, without its message: messages of database drivers quote
the parameters of the statement.
"""

from __future__ import annotations

import logging
import math
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, Final

import structlog
from structlog.typing import EventDict, WrappedLogger

PAUSE_S: Final = 10.0


def configure_logging(level: str = "INFO") -> None:
    """Send structlog and the standard library's loggers through one JSON formatter. For the server process."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
        without_messages,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.JSONRenderer(sort_keys=True),
        ],
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)
    # It writes a line for every request to the generator, with the generator's address.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    logging.getLogger("asyncio").filters = [Seldom()]


class Seldom(logging.Filter):
    """Lets a message pass once in `PAUSE_S`: without free descriptors asyncio reports each of thousands of tries."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._last = ("", -math.inf)

    def filter(self, record: logging.LogRecord) -> bool:
        message, now = str(record.msg).partition("\n")[0], self._clock()
        if message == self._last[0] and now < self._last[1] + PAUSE_S:
            return False
        self._last = (message, now)
        return True


def without_messages(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Replace `exc_info` by the class of the exception and the frames it passed."""
    found = event.pop("exc_info", None)
    if found:
        if isinstance(found, BaseException):
            error: BaseException | None = found
        else:
            error = found[1] if isinstance(found, tuple) else sys.exc_info()[1]
        if error is not None:
            event["exception"] = type(error).__name__
            event["frames"] = [
                f"{frame.filename}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(error.__traceback__)
            ]
    return event
