"""Combines concurrent reads into one statement.

Nobody waits for company: who finds a statement to spare is read for at once. Who comes while all are under way is read
for by the next one, together with whoever else has come by then. So what a statement costs beside its rows is shared
by the more, the busier the process is; and whoever asks sees what was committed before it asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Generic, TypeVar

from frameledger_services.database_types import Connection
from frameledger_services.store.connections import Connections, DatabaseUnavailableError

MOST_STATEMENTS = 2
"""So many are under way at once."""

MOST_AT_ONCE = 16
"""One statement reads for so many at most, if the answers are not small: it is as slow as the slowest, and in memory
all at once."""

_A = TypeVar("_A")
_R = TypeVar("_R")


@dataclass(frozen=True, slots=True)
class _Waiting(Generic[_R]):
    """Those who ask for the same, until a statement begins."""

    timer: asyncio.TimerHandle
    askers: list[asyncio.Future[_R]] = field(default_factory=list)

    def answer(self, result: _R) -> None:
        for asker in self.askers:
            if not asker.done():
                asker.set_result(result)

    def fail(self, error: BaseException) -> None:
        for asker in self.askers:
            if not asker.done():
                asker.set_exception(error)


class SharedReads(Generic[_A, _R]):
    """Answers questions of one kind. Nothing is connected before the first one."""

    def __init__(
        self,
        database: Connections,
        read: Callable[[Connection, Sequence[_A]], Awaitable[Sequence[_R]]],
        *,
        begun_within: float,
        most_at_once: int = MOST_AT_ONCE,
    ) -> None:
        """`read` returns an answer for each question, in their order. No question waits longer than `begun_within`
        seconds for its statement to begin."""
        self._database = database
        self._read = read
        self._begun_within = begun_within
        self._most_at_once = most_at_once
        self._waiting: dict[_A, _Waiting[_R]] = {}
        self._working: set[asyncio.Task[None]] = set()

    async def read(self, asked: _A) -> _R:
        """Returns the answer, as of now or later. Raises what `Connections.read` raises."""
        loop = asyncio.get_running_loop()
        waiting = self._waiting.get(asked)
        if waiting is None:
            timer = loop.call_later(self._begun_within, self._give_up, asked)
            waiting = self._waiting[asked] = _Waiting(timer)
        asker: asyncio.Future[_R] = loop.create_future()
        waiting.askers.append(asker)
        if len(self._working) < MOST_STATEMENTS:
            working = loop.create_task(self._work())
            self._working.add(working)
            working.add_done_callback(self._working.discard)
        return await asker

    async def _work(self) -> None:
        """One statement after another, until nobody waits. What goes wrong is for those who asked."""
        while self._waiting:
            some = {asked: self._waiting.pop(asked) for asked in [*islice(self._waiting, self._most_at_once)]}
            for waiting in some.values():
                waiting.timer.cancel()
            try:
                answers = await self._database.read(self._read, list(some))
            except BaseException as error:
                for waiting in some.values():
                    waiting.fail(error)
                if not isinstance(error, Exception):
                    raise
            else:
                for waiting, answer in zip(some.values(), answers, strict=True):
                    waiting.answer(answer)

    def _give_up(self, asked: _A) -> None:
        error = DatabaseUnavailableError(
            f"The database did not begin to answer within {self._begun_within:g} s: it is busy with others."
        )
        self._waiting.pop(asked).fail(error)
