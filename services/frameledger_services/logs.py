"""Logs of the services: events with names and fields, through the standard library's `logging`.

A logger is `logging`'s `frameledger.<room>`, so an application that hosts a worker or a client decides where its lines
go and from which level on; its formatter shows `projector.fenced partitions=[3]`. Our own processes call `configure`
once, which writes the same events to standard error: for people on a terminal, elsewhere as one JSON object a line.
What each event means stands in `log_events.py`.
"""

from __future__ import annotations

import logging
import sys
from typing import IO, Any, Literal, cast

import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

Format = Literal["auto", "console", "json"]
Level = Literal["debug", "info", "warning", "error"]

ROOT = "frameledger"


def get_logger(room: str) -> FilteringBoundLogger:
    """Returns a logger whose events begin with `room` and a dot."""
    logger = structlog.wrap_logger(
        logging.getLogger(f"{ROOT}.{room}"),
        processors=[structlog.stdlib.filter_by_level, _as_record],
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    return cast(FilteringBoundLogger, logger)


def configure(level: Level, form: Format, *, stream: IO[str] | None = None) -> None:
    """Send all logs of this process to a stream, standard error if none is given. For our own processes only.

    `auto` is `console` on a terminal and `json` elsewhere. Other libraries' lines are shown from `warning` on. Called
    again it replaces what it did before.
    """
    stream = stream or sys.stderr
    is_console = form == "console" or (form == "auto" and stream.isatty())
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(foreign_pre_chain=_BEFORE, processors=_rendered(is_console))
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger(ROOT).setLevel(level.upper())


def _as_record(_: WrappedLogger, __: str, event: EventDict) -> tuple[tuple[str], dict[str, Any]]:
    """What `logging` is given: a text that says everything, and the fields for a formatter that knows them."""
    name, exc_info = event.pop("event"), event.pop("exc_info", None)
    text = " ".join([name, *(f"{key}={value!r}" for key, value in event.items())])
    # The text has nothing that logging may fill in: it is given no arguments.
    return (text,), {"exc_info": exc_info, "extra": {"frameledger": {"event": name, **event}}}


def _fields(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """An event of ours as its fields; a line of another library as it is."""
    ours = getattr(event["_record"], "frameledger", None)
    return event if ours is None else {**event, **ours}


_BEFORE: list[Processor] = [
    _fields,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]


def _rendered(is_console: bool) -> list[Processor]:
    remove = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    if is_console:
        return [remove, structlog.dev.ConsoleRenderer()]
    return [
        structlog.stdlib.add_logger_name,
        remove,
        structlog.processors.format_exc_info,
        structlog.processors.JSONRenderer(default=str, ensure_ascii=False),
    ]
