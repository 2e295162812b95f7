"""What goes on beside the calls, and after them: hooks, `on_context_updated`, handlers that go on after their call."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class Tails:
    """Tasks of one task group, which can be ended before the group. One that raises ends the group: it is a bug."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks
        self._going_on: set[asyncio.Task[None]] = set()

    def start(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Begin one."""
        task = self._tasks.create_task(coroutine)
        self._going_on.add(task)
        task.add_done_callback(self._going_on.discard)
        return task

    async def end(self, within: float) -> None:
        """Wait for those that go on, and cancel the rest."""
        if self._going_on:
            await asyncio.wait(tuple(self._going_on), timeout=within)
        for task in tuple(self._going_on):
            task.cancel()
