"""Runs actions at a fixed rate, whether or not the previous ones have ended; or one after another."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")
A = TypeVar("A")


async def at_pace(act: Callable[[A], Awaitable[T]], things: Iterable[A], rate: int) -> list[T]:
    """Returns the result of `act` for each item, in order. Starts `rate` per second, or with 0 each when the previous
    one has ended."""
    if rate == 0:
        return [await act(thing) for thing in things]
    loop = asyncio.get_running_loop()
    start = loop.time()
    tasks: list[asyncio.Task[T]] = []
    async with asyncio.TaskGroup() as group:
        for number, thing in enumerate(things):
            early = start + number / rate - loop.time()
            if early > 0:
                await asyncio.sleep(early)
            tasks.append(group.create_task(_act(act, thing)))
    return [task.result() for task in tasks]


async def _act(act: Callable[[A], Awaitable[T]], thing: A) -> T:
    return await act(thing)
