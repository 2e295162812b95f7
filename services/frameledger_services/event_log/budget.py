"""A limit on the number of unacknowledged bytes."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress


class Budget:
    """A semaphore that counts bytes, first come, first served, for one event loop. An amount larger than the whole
    budget is granted when nothing else is taken.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._taken = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, amount: int) -> None:
        """Take `amount` as soon as there is room for it. A caller that is cancelled has taken nothing."""
        if not self._waiting and self._fits(amount):
            self._taken += amount
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((amount, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                # It was granted just before the cancellation.
                self.give(amount)
            else:
                # Unless a task that returned bytes has removed it before this task continued.
                with suppress(ValueError):
                    self._waiting.remove((amount, turn))
                self._grant()
            raise

    def give(self, amount: int) -> None:
        """Return what was taken."""
        self._taken -= amount
        self._grant()

    def _fits(self, amount: int) -> bool:
        return self._taken == 0 or self._taken + amount <= self._total

    def _grant(self) -> None:
        while self._waiting and self._fits(self._waiting[0][0]):
            amount, turn = self._waiting.popleft()
            if not turn.cancelled():
                self._taken += amount
                turn.set_result(None)
