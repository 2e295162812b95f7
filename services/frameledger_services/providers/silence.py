"""The timeout of a silent stream, which counts only time in which the event loop could read it.

A process that is busy with other answers reads its sockets late, although data arrived in time. So silence is counted
in timer ticks: a part of the limit counts once, when its timer fires, however late that is.

Bytes that are no event, such as Anthropic's `ping` events or comments of the stream, start the timeout again (`hear`),
because a model that thinks without showing it may send nothing else for minutes. A server may send these for ever
without a model behind it, so `LONGEST_SILENCE` limits an answer that consists of signs of life only. A run's keep-alive
ends then, too, and after that the timekeeper fails the run. Only heartbeats decide whether its worker is alive.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from types import TracebackType

LOOKS = 8
"""The number of timer ticks without data that count as silence."""

LONGEST_SILENCE = 1800.0
"""Maximum seconds to wait for a model that produces nothing, whatever signs of life arrive."""

_current: ContextVar[Silence | None] = ContextVar("silence", default=None)


def hear() -> None:
    """Note that something arrived: the timeout of this task's `Silence`, if there is one, starts again."""
    silence = _current.get()
    if silence is not None:
        silence.restart()


class Silence:
    """A block that may take this many seconds in which the event loop runs, and as many again after each `hear`, up to
    `LONGEST_SILENCE`. Raises TimeoutError if it takes longer.

    Used once, for one `async with`, by one task.
    """

    def __init__(self, secs: float) -> None:
        self._every = secs / LOOKS
        self._left = LOOKS
        self._total, self._longest = 0.0, max(secs, LONGEST_SILENCE)
        self._limit = asyncio.timeout(None)
        self._next: asyncio.TimerHandle | None = None
        self._outer: Silence | None = None

    def expired(self) -> bool:
        """Whether this timeout ended the block, and not another one within it."""
        return self._limit.expired()

    @property
    def had_signs(self) -> bool:
        """Whether signs of life arrived up to the end, but not what the block waited for."""
        return self._left > 0

    def restart(self) -> None:
        self._left = LOOKS + 1  # one of them has begun already

    async def __aenter__(self) -> None:
        await self._limit.__aenter__()
        self._outer = _current.get()
        _current.set(self)
        self._wait()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._next is not None:
            self._next.cancel()
        _current.set(self._outer)
        await self._limit.__aexit__(kind, error, traceback)

    def _wait(self) -> None:
        self._next = asyncio.get_running_loop().call_later(self._every, self._look)

    def _look(self) -> None:
        self._left -= 1
        self._total += self._every
        if self._left > 0 and self._total < self._longest:
            self._wait()
        else:
            self._next = None
            self._limit.reschedule(asyncio.get_running_loop().time())
