"""A service that runs in the event loop of its program, from `start` to `stop` or `cancel`."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

from frameledger.frames import CancelFrame, EndFrame, StartFrame
from frameledger_services.work.worker import Worker


class BackgroundService(ABC):
    """A service with a worker. As a context manager it is started on entry and stopped on exit.

    The frames that `start`, `stop` and `cancel` take are those of Pipecat's services. They are ignored.
    """

    _worker: Worker[Any, Any]
    _task: asyncio.Task[None] | None = None
    _is_running = False

    @abstractmethod
    async def run(self, stopping: asyncio.Event) -> None:
        """Work until `stopping` is set, then finish what can be finished within the deadlines, and release the rest."""

    async def start(self, frame: StartFrame | None = None) -> None:
        """Run in a task of its own. Returns when the worker takes work. While it runs, another call does nothing.

        Raises the error that ended the service, if it ended before it took work or has ended since. The next call
        starts it again. Raises RuntimeError while an earlier `stop` or `cancel` has not returned.
        """
        if self._task is not None:
            if not self._task.done():
                return
            ended, self._task = self._task, None
            if not ended.cancelled():
                ended.result()
        self._stopping = asyncio.Event()
        task = self._task = asyncio.create_task(self.run(self._stopping), name=type(self).__name__)
        ready = asyncio.create_task(self._worker.ready())
        try:
            await asyncio.wait({task, ready}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self.cancel()
            raise
        finally:
            ready.cancel()
        if task.done() and task is self._task:
            self._task = None
            task.result()

    async def stop(self, frame: EndFrame | None = None) -> None:
        """Drain: finish what can be finished within the deadlines, and release the rest for other workers. Does nothing
        if it is not running. Raises the error that ended the service."""
        if self._task is not None:
            task, self._task = self._task, None
            self._stopping.set()
            await task

    async def cancel(self, frame: CancelFrame | None = None) -> None:
        """End at once: other workers take over its work one lease later. Does nothing if it is not running."""
        if self._task is not None:
            task, self._task = self._task, None
            task.cancel()
            # Awaiting the task itself could not distinguish its cancellation from one of this caller.
            await asyncio.wait([task])
            if not task.cancelled():
                task.result()

    @contextmanager
    def _running_alone(self) -> Iterator[None]:
        """Context manager around a run. Raises RuntimeError if another one has not ended: its end would close what both
        use."""
        if self._is_running:
            raise RuntimeError("The service is already running.")
        self._is_running = True
        try:
            yield
        finally:
            self._is_running = False

    async def cleanup(self) -> None:
        """Same as `cancel`. Safe to call twice."""
        await self.cancel()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
