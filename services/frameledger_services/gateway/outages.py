"""Logging of outages: every few seconds, the number of requests that failed because Kafka or PostgreSQL is down."""

from __future__ import annotations

import time
from collections.abc import Callable

from frameledger_services import logs

EVERY_SECONDS = 5.0

_log = logs.get_logger("gateway")


class Outages:
    """Logs that a server is down: at once, then every `EVERY_SECONDS` with the number of failed requests."""

    def __init__(self, *, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._refused: dict[str, int] = {}
        self._logged_at: dict[str, float] = {}

    def note(self, word: str, reason: str) -> None:
        """Count a request that failed with the problem of this kind. Only outages are logged."""
        if word not in ("database-away", "log-away"):
            return
        refused = self._refused[word] = self._refused.get(word, 0) + 1
        now = self._now()
        if now < self._logged_at.get(word, float("-inf")) + EVERY_SECONDS:
            return
        self._logged_at[word] = now
        self._refused[word] = 0
        if word == "database-away":
            _log.warning("gateway.database_away", reason=reason, requests=refused)
        else:
            _log.warning("gateway.log_away", reason=reason, requests=refused)
