"""Logs of the services: events with names and fields, through the standard library's `logging`.

A logger is `logging`'s `frameledger.<room>`, so an application that hosts a worker or a client decides where its lines
go and from which level on; its formatter shows `projector.fenced partitions=[3]`. Our own processes call `configure`
once, which writes the same events to standard error: for people on a terminal, elsewhere as one JSON object a line.
What each event means stands in `log_events.py`.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import IO, Any, Literal, cast

import orjson
import structlog
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

from frameledger_services.telemetry import tracing

Format = Literal["auto", "console", "json"]
Level = Literal["debug", "info", "warning", "error"]

ROOT = "frameledger"


def get_logger(room: str) -> FilteringBoundLogger:
    """Returns a logger whose events begin with `room` and a dot."""
    logger = structlog.wrap_logger(
        logging.getLogger(f"{ROOT}.{room}"),
        processors=[structlog.stdlib.filter_by_level, _with_ids, _as_record],
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    return cast(FilteringBoundLogger, logger)


class QuickLogger:
    """A logger for an event of which a process has hundreds a second, in a fifth of the time: it is no structlog logger
    that something may be bound to, and its records do not know the line of code that they are from."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._blank = vars(logging.LogRecord(logger.name, logging.INFO, "", 0, "", (), None))
        """What records have in common."""

    def info(self, event: str, **fields: Any) -> None:
        """Log an event, as loggers of `get_logger` do."""
        if not self._logger.isEnabledFor(logging.INFO):
            return
        fields = dict(_with_ids(None, "info", fields))
        now = time.time()
        # It would find out again what is the same for all.
        record = logging.LogRecord.__new__(logging.LogRecord)
        vars(record).update(
            self._blank,
            msg=_Text(event, fields),
            created=now,
            msecs=now % 1 * 1_000,
            relativeCreated=self._blank["relativeCreated"] + 1_000 * (now - self._blank["created"]),
            frameledger={"event": event, **fields},
        )
        self._logger.handle(record)


def get_quick_logger(room: str) -> QuickLogger:
    """Returns a logger for events of a room that are logged with every request."""
    return QuickLogger(logging.getLogger(f"{ROOT}.{room}"))


def configure(level: Level, form: Format, *, stream: IO[str] | None = None) -> None:
    """Send all logs of this process to a stream, standard error if none is given. For our own processes only.

    `auto` is `console` on a terminal and `json` elsewhere. Other libraries' lines are shown from `warning` on. Called
    again it replaces what it did before.
    """
    stream = stream or sys.stderr
    is_console = form == "console" or (form == "auto" and stream.isatty())
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_console() if is_console else _JsonLines())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger(ROOT).setLevel(level.upper())
    # No line says these, and each record would find them out.
    logging.logProcesses = logging.logThreads = logging.logMultiprocessing = False


@contextmanager
def bound(**ids: str | int | None) -> Iterator[None]:
    """For a block, every event of this task, and of those that it starts, has these fields too, unless it says them
    itself. Those that are None are left out."""
    with structlog.contextvars.bound_contextvars(
        **{name: one for name, one in ids.items() if one is not None}
    ):
        yield


def _with_ids(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Add what is bound, behind the fields of the event, and the trace and the span that it happened in."""
    for name, value in structlog.contextvars.get_contextvars().items():
        event.setdefault(name, value)
    traceparent = tracing.current_traceparent()
    if traceparent is not None:
        event.setdefault("trace_id", traceparent[3:35])
        event.setdefault("span_id", traceparent[36:52])
    return event


class _Text:
    """What a record says as one text, made when somebody reads it: our own formatters do not."""

    def __init__(self, name: str, fields: Mapping[str, Any]) -> None:
        self._name = name
        self._fields = fields

    def __str__(self) -> str:
        return " ".join([self._name, *(f"{key}={value!r}" for key, value in self._fields.items())])


def _as_record(_: WrappedLogger, __: str, event: EventDict) -> tuple[tuple[_Text], dict[str, Any]]:
    """What `logging` is given: a text that says everything, and the fields for a formatter that knows them."""
    name, exc_info = event.pop("event"), event.pop("exc_info", None)
    # The text has nothing that logging may fill in: it is given no arguments.
    return (_Text(name, event),), {"exc_info": exc_info, "extra": {"frameledger": {"event": name, **event}}}


class _JsonLines(logging.Formatter):
    """One JSON object a line, as structlog would write it, in a fifth of the time: a gateway logs every read."""

    def format(self, record: logging.LogRecord) -> str:
        """An event of ours as its fields; a line of another library as it is."""
        ours = getattr(record, "frameledger", None)
        line = {
            **({"event": record.getMessage()} if ours is None else ours),
            "level": record.levelname.lower(),
            "timestamp": _timestamp(record.created),
            "logger": record.name,
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        try:
            return orjson.dumps(line, default=str, option=orjson.OPT_PASSTHROUGH_DATETIME).decode()
        except TypeError:
            # Halves of characters, integers without end, keys that are no texts.
            return json.dumps(line, default=str)


def _timestamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _console() -> logging.Formatter:
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=_BEFORE,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.dev.ConsoleRenderer(),
        ],
    )


def _fields(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """An event of ours as its fields; a line of another library as it is."""
    ours = getattr(event["_record"], "frameledger", None)
    return event if ours is None else {**event, **ours}


_BEFORE: list[Processor] = [
    _fields,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]
