"""Logs of the services: events with names and fields, through the standard library's `logging`.

The loggers are `frameledger.<room>` of `logging`, so an application that hosts a worker or a client configures their
handlers and levels; a plain formatter prints `projector.fenced partitions=[3]`. Frameledger's own processes call
`configure` once, which writes the events to standard error: readable on a terminal, otherwise as one JSON object per
line. `log_events.py` explains each event.
"""

from __future__ import annotations

import json
import logging
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import lru_cache
from typing import IO, Any, Literal, TextIO, cast

import orjson
import structlog
from structlog.typing import EventDict, ExcInfo, FilteringBoundLogger, Processor, WrappedLogger

from frameledger_services.control_characters import escaped
from frameledger_services.telemetry import tracing

Format = Literal["auto", "console", "json"]
Level = Literal["debug", "info", "warning", "error"]

ROOT = "frameledger"


def get_logger(room: str) -> FilteringBoundLogger:
    """Returns a logger for events whose names start with `room` and a dot."""
    logger = structlog.wrap_logger(
        logging.getLogger(f"{ROOT}.{room}"),
        processors=[structlog.stdlib.filter_by_level, _with_ids, _as_record],
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    return cast(FilteringBoundLogger, logger)


_BLANK = vars(logging.LogRecord("", logging.INFO, "", 0, "", (), None))
"""The attributes that all records share."""


class FrequentEvent:
    """An event that is logged so often that it has to be fast, with the same values of most fields each time, which are
    rendered once. It is logged as by a logger of `get_logger`, but without bound fields and without a line of code. If
    `configure` sends JSON lines to a stream, it writes its line there without a record."""

    def __init__(self, room: str, event: str, **fields: Any) -> None:
        """The event of `room`, with the constant fields."""
        self._logger = logging.getLogger(f"{ROOT}.{room}")
        self._event = event
        self._constant = fields
        self._begin = _line({"event": event, **fields})[:-1] + b","

    def log(self, **fields: Any) -> None:
        """Log the event with these fields after the constant ones, at level `info`."""
        logger = self._logger
        if not logger.isEnabledFor(logging.INFO):
            return
        now = time.time()
        handler = _only_handler(logger)
        if handler is not None:
            rest = {**fields, "level": "info", "timestamp": _timestamp(now), "logger": logger.name}
            if handler.has_written(self._begin + _line(rest)[1:]):
                return
        ours = {**self._constant, **fields}
        # Not with its constructor, which computes the attributes that all records share.
        record = logging.LogRecord.__new__(logging.LogRecord)
        vars(record).update(
            _BLANK,
            name=logger.name,
            msg=_Text(self._event, ours),
            created=now,
            msecs=now % 1 * 1_000,
            relativeCreated=_BLANK["relativeCreated"] + 1_000 * (now - _BLANK["created"]),
            frameledger={"event": self._event, **ours},
        )
        logger.handle(record)


def configure(level: Level, form: Format, *, stream: IO[str] | None = None) -> None:
    """Send all logs of this process to a stream, by default standard error. For Frameledger's own processes only.

    `auto` is `console` on a terminal and `json` otherwise. Logs of other libraries are shown from level `warning`.
    Another call replaces the previous configuration.
    """
    stream = stream or sys.stderr
    handler: logging.Handler
    if form == "console" or (form == "auto" and stream.isatty()):
        handler = logging.StreamHandler(stream)
        handler.setFormatter(_console())
    else:
        handler = _JsonHandler(stream)
        handler.setFormatter(_JsonLines())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger(ROOT).setLevel(level.upper())
    # No line contains these, and computing them takes time for each record.
    logging.logProcesses = logging.logThreads = logging.logMultiprocessing = False


@contextmanager
def bound(**ids: str | int | None) -> Iterator[None]:
    """Add these fields to every event of this task and of tasks that it starts, within the block. Fields of the event
    itself take precedence. Fields that are None are omitted."""
    with structlog.contextvars.bound_contextvars(
        **{name: one for name, one in ids.items() if one is not None}
    ):
        yield


def _with_ids(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Add the bound fields and the ids of the current trace and span."""
    for name, value in structlog.contextvars.get_contextvars().items():
        event.setdefault(name, value)
    traceparent = tracing.current_traceparent()
    if traceparent is not None:
        event.setdefault("trace_id", traceparent[3:35])
        event.setdefault("span_id", traceparent[36:52])
    return event


class _Text:
    """The text of a record, rendered on demand: Frameledger's own formatters do not need it."""

    def __init__(self, name: str, fields: Mapping[str, Any]) -> None:
        self._name = name
        self._fields = fields

    def __str__(self) -> str:
        return " ".join([self._name, *(f"{key}={value!r}" for key, value in self._fields.items())])


def _as_record(_: WrappedLogger, __: str, event: EventDict) -> tuple[tuple[_Text], dict[str, Any]]:
    """Returns the arguments for `logging`: a text with all fields, and the fields for a formatter that reads them."""
    name, exc_info = event.pop("event"), event.pop("exc_info", None)
    # No arguments: the text has no placeholders.
    return (_Text(name, event),), {"exc_info": exc_info, "extra": {"frameledger": {"event": name, **event}}}


class _JsonLines(logging.Formatter):
    """One JSON object per line as structlog writes it, but five times as fast: a gateway logs every read."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns an event as its fields, or a line of another library unchanged."""
        ours = getattr(record, "frameledger", None)
        line = {
            **({"event": record.getMessage()} if ours is None else ours),
            "level": record.levelname.lower(),
            "timestamp": _timestamp(record.created),
            "logger": record.name,
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return _line(line).decode()


def _line(fields: Mapping[str, Any]) -> bytes:
    try:
        return orjson.dumps(fields, default=str, option=orjson.OPT_PASSTHROUGH_DATETIME)
    except TypeError:
        # Lone surrogates, huge integers, keys that are not text.
        return json.dumps(fields, default=str).encode()


class _JsonHandler(logging.StreamHandler[IO[str]]):
    """Writes records to a stream, and prepared lines."""

    def has_written(self, line: bytes) -> bool:
        """Write a line. Returns whether that worked; if not, the handler reports it with the record."""
        self.acquire()
        try:
            self.stream.write(line.decode() + self.terminator)
            self.stream.flush()
        except Exception:
            return False
        finally:
            self.release()
        return True


def _only_handler(logger: logging.Logger) -> _JsonHandler | None:
    """Returns the handler of `configure`, unless another handler receives the records of this logger, or a filter is
    set."""
    if logger.filters:
        return None
    while logger.parent is not None:
        if logger.handlers or not logger.propagate:
            return None
        logger = logger.parent
    handlers = logger.handlers
    if len(handlers) != 1 or not isinstance(handlers[0], _JsonHandler) or handlers[0].filters:
        return None
    return handlers[0]


def _timestamp(seconds: float) -> str:
    whole_secs, microseconds = divmod(round(seconds * 1_000_000), 1_000_000)
    return f"{_second(whole_secs)}.{microseconds:06d}Z"


@lru_cache(maxsize=4)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").removesuffix("+00:00")


def _console() -> logging.Formatter:
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=_BEFORE,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            _escape_fields,
            structlog.dev.ConsoleRenderer(exception_formatter=_traceback),
        ],
    )


def _fields(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Returns an event as its fields, or a line of another library unchanged."""
    ours = getattr(event["_record"], "frameledger", None)
    return event if ours is None else {**event, **ours}


def _escape_fields(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Replace control characters, which a terminal would execute: ids and messages come from anyone. Values that are
    not text are rendered by `repr`, which also replaces them."""
    return {
        name: escaped(value, but="\n\t" if name == "event" else "") if isinstance(value, str) else value
        for name, value in event.items()
    }


def _traceback(output: TextIO, exc_info: ExcInfo) -> None:
    """Write an exception with Python's traceback. structlog's default, Rich's, contains the values of all local
    variables: conversations and passwords."""
    output.write("\n" + escaped("".join(traceback.format_exception(*exc_info)).rstrip("\n"), but="\n\t"))


_BEFORE: list[Processor] = [
    _fields,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]
