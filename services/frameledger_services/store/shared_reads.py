"""Combines concurrent reads into one statement.

No read waits while the process is idle: if no statement is running, one starts at once. Reads that arrive while all
statements are running share the next one, which starts when the event loop has processed its pending work. So the
busier the process is, the more reads share the fixed cost of a statement, and every read sees what was committed before
it began.

The fixed cost dominates small reads: about 140 us, most of it the system call that wakes the server. They run one
statement at a time, and a second one only if the first takes longer than `patience`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Generic, TypeVar

from frameledger_services.database_types import Connection
from frameledger_services.store.connections import Connections, DatabaseUnavailableError

MAX_STATEMENTS = 2
"""The maximum number of statements in progress."""

MAX_AT_ONCE = 16
"""The maximum number of requests in one statement, unless answers are small: a statement is as slow as the slowest of
them, and all answers are in memory at the same time."""

TURNS = 3
"""Number of turns of the event loop between two statements: callers that received an answer continue, data of clients
is received, and the requests in it start their reads. If connections send their next request at once, statements of
twice the size save a tenth of the processor time of a read."""

_A = TypeVar("_A")
_R = TypeVar("_R")


@dataclass(slots=True)
class _Waiting(Generic[_R]):
    """The callers that wait for the same answer, until a statement begins."""

    deadline: float
    """When they give up, by the loop's clock."""

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
    """Answers questions of one kind. Connects with the first question."""

    def __init__(
        self,
        database: Connections,
        read: Callable[[Connection, Sequence[_A]], Awaitable[Sequence[_R]]],
        *,
        begun_within: float,
        most_at_once: int = MAX_AT_ONCE,
        patience: float = 0.0,
    ) -> None:
        """`read` returns an answer for each question, in order. No question waits longer than `begun_within` seconds
        for its statement to start. A second statement starts if the first has taken `patience` seconds."""
        self._database = database
        self._read = read
        self._begun_within = begun_within
        self._most_at_once = most_at_once
        self._patience = patience
        self._waiting: dict[_A, _Waiting[_R]] = {}
        """In order of arrival, which is the order in which they are read for or given up."""

        self._working: set[asyncio.Task[None]] = set()
        self._begun_at = 0.0
        """When the newest statement started, by the loop's clock."""

        # One timer for all waiting callers: a timer of uvloop for each would cost more than the rest of waiting.
        self._giving_up: asyncio.TimerHandle | None = None
        self._patience_timer: asyncio.TimerHandle | None = None

    async def read(self, key: _A) -> _R:
        """Returns the answer, as of now or later. Raises what `Connections.read` raises."""
        loop = asyncio.get_running_loop()
        waiting = self._waiting.get(key)
        if waiting is None:
            waiting = self._waiting[key] = _Waiting(loop.time() + self._begun_within)
            if self._giving_up is None:
                self._giving_up = loop.call_at(waiting.deadline, self._give_up)
        asker: asyncio.Future[_R] = loop.create_future()
        waiting.askers.append(asker)
        self._begin()
        return await asker

    def _begin(self) -> None:
        """Start a statement, or schedule one for when those in progress take too long."""
        if len(self._working) >= MAX_STATEMENTS:
            return
        loop = asyncio.get_running_loop()
        if self._working and (left := self._begun_at + self._patience - loop.time()) > 0:
            if self._patience_timer is None:
                self._patience_timer = loop.call_later(left, self._begin_another)
            return
        self._begun_at = loop.time()
        self._working.add(loop.create_task(self._work()))

    def _begin_another(self) -> None:
        self._patience_timer = None
        if self._waiting:
            self._begin()

    async def _work(self) -> None:
        """Run one statement after another, until no caller waits or another task continues."""
        try:
            while self._waiting:
                await self._run_statement()
                for _ in range(TURNS):
                    await asyncio.sleep(0)
                if self._patience > 0 and len(self._working) > 1:
                    break
        finally:
            self._working.remove(_this_task())
        if self._waiting:
            self._begin()

    async def _run_statement(self) -> None:
        """Run one statement. Its error is raised to the callers that wait for it."""
        self._begun_at = asyncio.get_running_loop().time()
        some = {key: self._waiting.pop(key) for key in [*islice(self._waiting, self._most_at_once)]}
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

    def _give_up(self) -> None:
        """Raise `DatabaseUnavailableError` to the callers whose statement did not start in time."""
        self._giving_up = None
        loop = asyncio.get_running_loop()
        while self._waiting:
            key, waiting = next(iter(self._waiting.items()))
            if waiting.deadline > loop.time():
                self._giving_up = loop.call_at(waiting.deadline, self._give_up)
                return
            del self._waiting[key]
            waiting.fail(
                DatabaseUnavailableError(
                    f"The database did not begin to answer within {self._begun_within:g} s: it is busy with other "
                    "requests."
                )
            )


def _this_task() -> asyncio.Task[None]:
    task = asyncio.current_task()
    assert task is not None
    return task
