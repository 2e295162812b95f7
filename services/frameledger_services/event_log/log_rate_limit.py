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

from aiokafka.client import ConnectionGroup

from frameledger_services.event_log.failover import open_connection

MINUTE = 60.0

AWAY = "Kafka does not answer; waiting for it"

_AWAY_WORDS = (
    "Unable connect to",
    "Unable to update metadata",
    "Unable to request metadata",
    "Got error produce response",
    "Group Coordinator Request failed",
    "Marking the coordinator dead",
)
"""The beginnings of lines about a broker that is down. The first of them names the cause: a connection that broke or
cannot be opened."""

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
    different lines about a broker that is down count as one. Everything else passes unchanged."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now = now
        self._lines: dict[str, _LogLine] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING or not _of_ours.get():
            return True
        sentence = str(record.msg)
        is_away = sentence.startswith(_AWAY_WORDS)
        now, key = self._now(), AWAY if is_away else f"{record.name} {sentence}"
        logged = self._lines.get(key)
        if logged is not None and now - logged.at < MINUTE:
            logged.left_out += 1
            return False
        self._lines[key] = _LogLine(now)
        left_out = 0 if logged is None else logged.left_out
        if isinstance(record.args, tuple):
            # A connection that is closed during the TLS handshake, or that took too long, has an error without text.
            record.args = tuple(
                type(one).__name__ if isinstance(one, Exception) and not str(one) else one
                for one in record.args
            )
        message = record.getMessage()
        record.msg = f"{AWAY}: {message}" if is_away else message
        if left_out:
            record.msg += f" ({left_out} more such lines since the last one)"
        record.args = ()
        return True


_once_a_minute = OnceAMinute()


def _install() -> None:
    """Add the filter to each logger, since a logger's filters do not apply to its children. Adding it twice does
    nothing."""
    for name in list(logging.root.manager.loggerDict):
        if name == "aiokafka" or name.startswith("aiokafka."):
            logging.getLogger(name).addFilter(_once_a_minute)
