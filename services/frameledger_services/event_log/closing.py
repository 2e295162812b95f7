"""Closes a client of aiokafka without losing a cancellation.

aiokafka cancels a task of its own, waits for it, and mistakes any cancellation that arrives meanwhile for that of the
task. The cancelled caller would continue, and its canceller would wait for ever. Also, a task that aiokafka has only
just created is cancelled before it begins, which raises a cancellation, as if the caller had been cancelled, instead of
the error for which the client is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable


async def closed(closing: Awaitable[None]) -> None:
    """Await a client's `close()` or `stop()`. Raises `CancelledError` afterwards if this task was cancelled meanwhile
    and aiokafka swallowed the cancellation."""
    task = asyncio.current_task()
    assert task is not None, "an await is in a task"
    before = task.cancelling()
    try:
        # Lets every task of the client begin.
        await asyncio.sleep(0)
    finally:
        await closing
    if task.cancelling() > before:
        raise asyncio.CancelledError
