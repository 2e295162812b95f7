"""The loop around a service: it restarts the service after transient errors, with growing pauses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from frameledger_services import exception_groups, transient

SHORTEST_PAUSE, LONGEST_PAUSE = 0.5, 10.0
"""Seconds between two attempts."""


class Backoff:
    """Pauses in seconds that double from `SHORTEST_PAUSE` up to `LONGEST_PAUSE`."""

    def __init__(self) -> None:
        self._next = SHORTEST_PAUSE

    def next(self) -> float:
        """Returns the next pause."""
        pause, self._next = self._next, min(2 * self._next, LONGEST_PAUSE)
        return pause

    def reset(self) -> None:
        """Start again with the shortest pause."""
        self._next = SHORTEST_PAUSE


async def keep_running(work: Callable[[], Awaitable[None]], stopping: asyncio.Event, log: Any) -> None:
    """Call `work()` repeatedly until `stopping` is set. `work` must itself return when `stopping` is set.

    A transient error of the broker or the database is logged and followed by a pause. Raises every other error; of a
    group of errors, the part that is not transient.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None, "an await is in a task"
    cancelled_before = task.cancelling()
    backoff = Backoff()
    while not stopping.is_set():
        began, seconds = loop.time(), 0.0
        try:
            await work()
        except* transient.EITHER as errors:
            if loop.time() - began > LONGEST_PAUSE:
                backoff.reset()
            seconds = backoff.next()
            log.warning(
                "service.retrying", reason=transient.reason(exception_groups.first(errors)), again_in=seconds
            )
        else:
            # Such as that of a worker whose lease ended in an outage: the next error is another outage's first.
            backoff.reset()
        if task.cancelling() > cancelled_before:
            # A task group that ends with an error loses a cancellation that arrives while its other tasks end.
            raise asyncio.CancelledError
        if seconds:
            await pause(stopping, seconds)


async def pause(event: asyncio.Event, seconds: float) -> None:
    """Wait for `seconds`, or until the event is set, such as `stopping`."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
