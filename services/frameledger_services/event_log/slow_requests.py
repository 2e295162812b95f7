"""Notices requests that are slow. Pure asyncio.

One timer serves all requests of a client: a timer for each would be cancelled nearly always, and take as long as much
of the publishing of a record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

SLOW_SECONDS = 1.5
"""If a leader has not answered for this time, the other brokers are asked for the current leader, repeatedly at this
interval. The leader may be waiting for its replicas, or sending a large answer, so it is left only if it has lost the
leadership."""

Ask = Callable[[], object]
"""Called when a request is slow. It identifies the request, so each has its own."""


class SlowRequests:
    """The unanswered requests of one client."""

    def __init__(self) -> None:
        self._due: dict[Ask, float] = {}
        """When each request is next slow, in that order."""

        self._timer: asyncio.TimerHandle | None = None

    def add(self, ask: Ask) -> None:
        """Call `ask` when the request has taken `SLOW_SECONDS`, and repeatedly at this interval until `remove`."""
        loop = asyncio.get_running_loop()
        due = self._due[ask] = loop.time() + SLOW_SECONDS
        if self._timer is None:
            self._timer = loop.call_at(due, self._check)

    def remove(self, ask: Ask) -> None:
        del self._due[ask]

    def _check(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        slow = [ask for ask, due in self._due.items() if due <= now]
        for ask in slow:
            del self._due[ask]
            self._due[ask] = now + SLOW_SECONDS
        self._timer = loop.call_at(next(iter(self._due.values())), self._check) if self._due else None
        for ask in slow:
            ask()
