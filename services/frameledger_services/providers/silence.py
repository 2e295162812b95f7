"""The timeout of a silent stream, which counts only time in which the event loop could read it.

A process that is busy with other answers looks at its sockets late, and what came meanwhile has come in time. So
silence is counted in looks: a part of the limit counts when its timer fires, once, however late that is.

Bytes that are no event yet start it again (`hear`), for a model that thinks in hidden may send nothing else for
minutes: Anthropic's `ping` events, comments of the stream. A server may send those for ever without a model behind it,
so they do so for `LONGEST_SILENCE` only. That is the bound of an answer of signs of life alone; a run's keep-alive ends
with it, too, and after that the timekeeper fails the run. Whether its worker is alive is judged by heartbeats alone.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from types import TracebackType

LOOKS = 8
"""So many times the loop has looked, and found nothing, before it is silence."""

LONGEST_SILENCE = 1800.0
"""Seconds for which a model that says nothing is waited for, whatever signs of life it gives."""

_current: ContextVar[Silence | None] = ContextVar("silence", default=None)


def hear() -> None:
    """Note that something arrived: the silence that this task is in, if it is in one, starts again."""
    silence = _current.get()
    if silence is not None:
        silence.restart()


class Silence:
    """A block that may take this many seconds in which the event loop runs, and as many again after each `hear`, up to
    `LONGEST_SILENCE`; TimeoutError if it takes longer.

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
        """Returns whether this timeout ended the block, and not another one within it."""
        return self._limit.expired()

    @property
    def had_signs(self) -> bool:
        """Whether something arrived up to its end, only not what was waited for."""
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
