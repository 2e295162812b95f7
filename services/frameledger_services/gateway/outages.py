"""Outages in the log: requests that were refused because the log or the database is away are told every few seconds."""

from __future__ import annotations

import time
from collections.abc import Callable

from frameledger_services import logs

EVERY_SECONDS = 5.0

_log = logs.get_logger("gateway")


class Outages:
    """Logs that a server is away: at once, and then once in `EVERY_SECONDS`, with how many requests that was."""

    def __init__(self, *, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._refused: dict[str, int] = {}
        self._told_at: dict[str, float] = {}

    def note(self, word: str, reason: str) -> None:
        """Note that a request was answered by the problem of this word. Those of no outage are not logged."""
        if word not in ("database-away", "log-away"):
            return
        refused = self._refused[word] = self._refused.get(word, 0) + 1
        now = self._now()
        if now < self._told_at.get(word, float("-inf")) + EVERY_SECONDS:
            return
        self._told_at[word] = now
        self._refused[word] = 0
        if word == "database-away":
            _log.warning("gateway.database_away", reason=reason, requests=refused)
        else:
            _log.warning("gateway.log_away", reason=reason, requests=refused)
