"""A service that runs beside the program that made it, from `start` to `stop` or `cancel`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any


class Background:
    """Runs a service in a task of its own, which whoever calls `stop` or `cancel` awaits."""

    def __init__(
        self,
        run: Callable[[asyncio.Event], Coroutine[Any, Any, None]],
        alive: Callable[[], Awaitable[Any]],
        name: str,
    ) -> None:
        """`run` works until its event is set; `alive` returns when it takes work; `name` is the task's."""
        self._run = run
        self._alive = alive
        self._name = name
        self._task: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()

    async def start(self) -> None:
        """Returns when it takes work. Called twice it does nothing. Raises what ended it before it took any."""
        if self._task is not None:
            return
        self._stopping.clear()
        self._task = asyncio.create_task(self._run(self._stopping), name=self._name)
        alive = asyncio.ensure_future(self._alive())
        try:
            await asyncio.wait({self._task, alive}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self.cancel()
            raise
        finally:
            alive.cancel()
        if self._task.done():
            task, self._task = self._task, None
            task.result()

    async def stop(self) -> None:
        """Let it finish what can be finished. Raises what ended it. Does nothing if it does not run."""
        self._stopping.set()
        if self._task is not None:
            task, self._task = self._task, None
            await task

    async def cancel(self) -> None:
        """End it at once. Does nothing if it does not run."""
        if self._task is not None:
            task, self._task = self._task, None
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
