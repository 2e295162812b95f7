"""A feed that a test reads, and the records that it returned."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.bounds import IN_PROCESS
from tests.support.brokers_in_memory import NOT_LEADER

from frameledger_services.event_log import feed, leaders
from frameledger_services.event_log.feed import Feed

TOPIC = "llm.frames"
LATER = {
    "unknown": 3,
    "no leader": 5,
    "not the leader": NOT_LEADER,
    "no replica": 9,
    "storage": 56,
    "no offset": 78,
}
"""Errors after which a partition is fetched again."""


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short retries, and a limit that does not take a briefly suspended process for a frozen one."""
    monkeypatch.setattr(leaders, "AGAIN_SECONDS", 0.02)
    monkeypatch.setattr(feed, "FROZEN_SECONDS", IN_PROCESS)


class Taking:
    """Accepts answers at once or, while `halted`, only when `go_on` is called."""

    def __init__(self, feed: Any) -> None:
        self.feed = feed
        self.got: list[tuple[int, bytes | None]] = []
        self.revalidated: list[Any] = []
        self.answers = 0
        self.halted = False
        self.fetched: Any = []
        self._changed = asyncio.Event()
        self._may = asyncio.Semaphore(0)

    async def __call__(self, fetched: Any) -> None:
        self.fetched = fetched
        self.answers += 1
        self._tell()
        if self.halted:
            await self._may.acquire()
        for one in fetched:
            self.got += [(record.partition, record.value) for record in one.read(100) or ()]
        self._tell()

    def go_on(self) -> None:
        self._may.release()

    async def revalidate(self, offsets: Any) -> None:
        """Assume that nothing was lost, and continue to read."""
        self.revalidated.append(offsets)
        for partition, offset in offsets.items():
            self.feed.follow(partition, offset)

    async def until(self, holds: Any) -> None:
        while not holds():
            await self._changed.wait()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


@asynccontextmanager
async def reading(brokers: Any, **offsets: int) -> AsyncIterator[tuple[Feed, Taking, asyncio.Task[None]]]:
    """Yields a running feed, the records that it returns, and its task. `p3=7` follows partition 3 from offset 7 on."""
    feed = Feed(brokers, TOPIC)
    taking = Taking(feed)
    for name, offset in offsets.items():
        feed.follow(int(name[1:]), offset)
    async with asyncio.timeout(IN_PROCESS), asyncio.TaskGroup() as tasks:
        task = tasks.create_task(feed.run(taking, taking.revalidate))
        yield feed, taking, task
        task.cancel()


def of(found: list[tuple[int, bytes | None]], partition: int) -> list[bytes | None]:
    return [value for number, value in found if number == partition]


def one_error(run: Callable[[], Coroutine[Any, Any, object]]) -> BaseException:
    """Returns the only error with which the feed ends."""
    with pytest.raises(BaseExceptionGroup) as raised:
        asyncio.run(run())
    error: BaseException = raised.value
    while isinstance(error, BaseExceptionGroup):
        (error,) = error.exceptions
    return error
