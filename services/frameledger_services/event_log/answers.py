"""Waits for the answers to records, without a callback of its own: each would take the event loop some microseconds."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any


class Answers:
    """The answers to the records of one publication."""

    def __init__(self) -> None:
        self._waiter: asyncio.Future[None] | None = None

    def note(self) -> None:
        """To be called when an answer is done."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def until_all(self, answers: Iterable[asyncio.Future[Any]]) -> None:
        """Returns when all of these are done. Cancelling the caller cancels none of them."""
        for answer in answers:
            while not answer.done():
                self._waiter = asyncio.get_running_loop().create_future()
                await self._waiter
