"""What aiokafka logs of our own clients, said once a minute instead of thirty times a second.

While a broker is away it logs each attempt to reach it. Its loggers are the whole process's, and the process may be
somebody else's program, with clients of its own: theirs are left as they are. Whose a line is follows from the context
(`contextvars`) of the task that logs it, which a task inherits from whoever made it.
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

MINUTE = 60.0

AWAY = "Kafka does not answer and is waited for"

_AWAY_WORDS = (
    "Unable connect to",
    "Unable to update metadata",
    "Unable to request metadata",
    "Got error produce response",
    "Group Coordinator Request failed",
    "Marking the coordinator dead",
)
"""How the lines begin that say so. Whichever comes first has the cause: a connection that broke or cannot be made."""

_of_ours: ContextVar[bool] = ContextVar("frameledger_kafka_client", default=False)


@contextmanager
def rate_limited() -> Iterator[None]:
    """What is logged in this block, and in tasks that begin in it, is of a client of ours."""
    _install()
    before = _of_ours.set(True)
    try:
        yield
    finally:
        _of_ours.reset(before)


def rate_limited_connections(client: Any) -> Any:
    """An `AIOKafkaClient` of ours: its connections are, whoever asks for them. Returns it."""
    connect = client._get_conn

    @wraps(connect)
    async def connected(*arguments: Any, **options: Any) -> Any:
        before = _of_ours.set(True)
        try:
            return await connect(*arguments, **options)
        finally:
            _of_ours.reset(before)

    client._get_conn = connected
    return client


@dataclass(slots=True)
class _Said:
    """When something was said last, and how often it would have been since."""

    at: float
    left_out: int = 0


class OnceAMinute(logging.Filter):
    """Of our clients' warnings and errors it lets each through once a minute, with how many were left out; what says
    in its several ways that the broker is away counts as one. Everything else passes as it is."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now = now
        self._said: dict[str, _Said] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING or not _of_ours.get():
            return True
        sentence = str(record.msg)
        is_away = sentence.startswith(_AWAY_WORDS)
        now, key = self._now(), AWAY if is_away else f"{record.name} {sentence}"
        said = self._said.get(key)
        if said is not None and now - said.at < MINUTE:
            said.left_out += 1
            return False
        self._said[key] = _Said(now)
        left_out = 0 if said is None else said.left_out
        told = record.getMessage()
        record.msg = f"{AWAY}: {told}" if is_away else told
        if left_out:
            record.msg += f" ({left_out} more such lines since the last one)"
        record.args = ()
        return True


_once_a_minute = OnceAMinute()


def _install() -> None:
    """Filters of a logger do not count for those below it. To add one twice does nothing."""
    for name in list(logging.root.manager.loggerDict):
        if name == "aiokafka" or name.startswith("aiokafka."):
            logging.getLogger(name).addFilter(_once_a_minute)
