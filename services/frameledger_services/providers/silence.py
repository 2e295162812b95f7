"""The timeout of a silent stream, which counts only time in which the event loop could read it.

A process that is busy with other answers looks at its sockets late, and what came meanwhile has come in time. So
silence is counted in looks: a part of the limit counts when its timer fires, once, however late that is.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

LOOKS = 8
"""So many times the loop has looked, and found nothing, before it is silence."""


class Silence:
    """A block that may take this many seconds in which the event loop runs; TimeoutError if it takes longer.

    Used once, for one `async with`, by one task.
    """

    def __init__(self, secs: float) -> None:
        self._every = secs / LOOKS
        self._left = LOOKS
        self._limit = asyncio.timeout(None)
        self._next: asyncio.TimerHandle | None = None

    def expired(self) -> bool:
        """Returns whether this timeout ended the block, and not another one within it."""
        return self._limit.expired()

    async def __aenter__(self) -> None:
        await self._limit.__aenter__()
        self._wait()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._next is not None:
            self._next.cancel()
        await self._limit.__aexit__(kind, error, traceback)

    def _wait(self) -> None:
        self._next = asyncio.get_running_loop().call_later(self._every, self._look)

    def _look(self) -> None:
        self._left -= 1
        if self._left > 0:
            self._wait()
        else:
            self._next = None
            self._limit.reschedule(asyncio.get_running_loop().time())
