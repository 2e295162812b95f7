"""Limits aiokafka's log lines about our own clients to one a minute instead of thirty a second.

While a broker is down, aiokafka logs each attempt to reach it. Its loggers belong to its modules, so a client cannot
have one of its own, and the process may have other clients, whose lines the filter passes unchanged. A line is one of
ours if the task that logs it, or a task that created that task, set a context variable.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from typing import Any

from aiokafka import errors as kafka_errors
from aiokafka.client import ConnectionGroup

from frameledger_services.event_log.failover import open_connection

MINUTE = 60.0

AWAY = "Kafka does not answer; waiting for it"

NOT_READY = "Kafka is not ready; waiting for it"
"""It answers, but has no leader for a partition, or no coordinator for a group: after its first start, or for a topic
that was just created, this lasts some seconds."""

_COORDINATOR_LOST = "Marking the coordinator dead"
"""The line does not say why. If the broker is down, another line does."""

_AWAY_WORDS = (
    "Unable connect to",
    "Unable to update metadata",
    "Unable to request metadata",
    "Got error produce response",
    "Group Coordinator Request failed",
    _COORDINATOR_LOST,
)
"""The beginnings of lines about a broker that is down or not ready. The first of them names the cause: a connection
that broke or cannot be opened."""

_of_ours: ContextVar[bool] = ContextVar("frameledger_kafka_client", default=False)


@contextmanager
def rate_limited() -> Iterator[None]:
    """Mark the lines that are logged in this block, and by tasks that are created in it, as those of a client of
    ours."""
    _install()
    before = _of_ours.set(True)
    try:
        yield
    finally:
        _of_ours.reset(before)


def limit_connection_logs(client: Any) -> None:
    """Rate-limit lines about the connections of this `AIOKafkaClient`, in whichever task."""
    connect = client._get_conn

    @wraps(connect)
    async def connected(node: Any, *, group: Any = ConnectionGroup.DEFAULT, **options: Any) -> Any:
        if (known := open_connection(client, node, group)) is not None:
            # Each request asks for its connection; one that is open logs nothing.
            return known
        before = _of_ours.set(True)
        try:
            return await connect(node, group=group, **options)
        finally:
            _of_ours.reset(before)

    client._get_conn = connected


@dataclass(slots=True)
class _LogLine:
    """When a line was last let through, and how many were dropped since."""

    at: float
    left_out: int = 0


class OnceAMinute(logging.Filter):
    """Lets each of our clients' warnings and errors through once a minute, with the number of those dropped. The
    different lines about a broker that is down count as one, and so do those about one that is not ready, which are
    warnings. Everything else passes unchanged."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now = now
        self._lines: dict[str, _LogLine] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING or not _of_ours.get():
            return True
        sentence = str(record.msg)
        state = _state(record) if sentence.startswith(_AWAY_WORDS) else None
        now, key = self._now(), state or f"{record.name} {sentence}"
        logged = self._recent(key, now)
        if logged is None and state == NOT_READY:
            # The end of an outage that is in the log already.
            logged = self._recent(AWAY, now)
        if logged is not None:
            logged.left_out += 1
            return False
        before, self._lines[key] = self._lines.get(key), _LogLine(now)
        left_out = 0 if before is None else before.left_out
        if isinstance(record.args, tuple):
            record.args = tuple(map(_readable, record.args))
        message = record.getMessage()
        record.msg = f"{state}: {message}" if state else message
        if state == NOT_READY:
            record.levelno, record.levelname = logging.WARNING, logging.getLevelName(logging.WARNING)
        if left_out:
            record.msg += f" ({left_out} more such lines since the last one)"
        record.args = ()
        return True

    def _recent(self, key: str, now: float) -> _LogLine | None:
        """Returns the line if it was let through less than a minute ago."""
        logged = self._lines.get(key)
        return logged if logged is not None and now - logged.at < MINUTE else None


def _state(record: logging.LogRecord) -> str:
    """Returns whether the broker is down or only not ready, by the error in the line: it answered with one of its
    codes, of which aiokafka also gives one to a request that got no answer in time."""
    if str(record.msg).startswith(_COORDINATOR_LOST):
        return NOT_READY
    error = record.args[-1] if isinstance(record.args, tuple) and record.args else None
    kind = error if isinstance(error, type) else type(error)
    is_answer = issubclass(kind, kafka_errors.BrokerResponseError)
    return NOT_READY if is_answer and kind is not kafka_errors.RequestTimedOutError else AWAY


def _readable(argument: object) -> object:
    """Returns an argument of a line, with the name of an error that has no text: of a class, or of a connection that
    took too long or was closed during the TLS handshake."""
    if isinstance(argument, type):
        return argument.__name__
    return type(argument).__name__ if isinstance(argument, Exception) and not str(argument) else argument


_once_a_minute = OnceAMinute()


def _install() -> None:
    """Add the filter to each logger, since a logger's filters do not apply to its children. Adding it twice does
    nothing."""
    for name in list(logging.root.manager.loggerDict):
        if name == "aiokafka" or name.startswith("aiokafka."):
            logging.getLogger(name).addFilter(_once_a_minute)
