"""What clients of any gateway follow: marks in PostgreSQL (`store/client_marks`), on one session of this process.

A client may return to a gateway other than the one that it left, which must then not interrupt its answer. And a client
that stops its answer and asks again may do so at another gateway, which interrupts the answer that was left.

A process that dies loses its marks with its session; one that loses its session sets them again on the next one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection
from contextlib import suppress

import psycopg

from frameledger.errors import FrameledgerError
from frameledger_services import database, logs, transient
from frameledger_services.database_types import Connection
from frameledger_services.settings import Settings
from frameledger_services.store import client_marks, connections
from frameledger_services.store.connections import Connections
from frameledger_services.supervision import Backoff

MOST_MARKS = 1_000
"""The maximum of this process: PostgreSQL has room for some thousand locks of all sessions. Clients beyond it are not
marked, and have to return to this process."""

Mark = tuple[str, ...]
"""Words that name what is marked."""

_log = logs.get_logger("gateway")


class SharedMarks:
    """The marks of this process, and those of others. Connects for the first mark."""

    def __init__(self, settings: Settings, readers: Connections) -> None:
        """`readers` are the connections by which the marks of all processes are read."""
        self._settings = settings
        self._readers = readers
        self._wanted_marks: Counter[int] = Counter()
        self._set: set[int] = set()
        """The marks that are set on the current session."""

        self._session: Connection | None = None
        self._one_at_a_time = asyncio.Lock()
        self._changed = asyncio.Event()
        self._working: asyncio.Task[None] | None = None

    def add(self, *mark: str) -> None:
        """Set a mark, soon. Each has to be removed as often as it was added."""
        self._change(mark, 1)

    def remove(self, *mark: str) -> None:
        """Remove a mark, soon."""
        self._change(mark, -1)

    async def settle(self) -> None:
        """Return once the marks are set, and others are removed. Raises `DatabaseError`."""
        async with self._one_at_a_time:
            if not self._wanted_marks and self._session is None:
                return
            try:
                await self._synchronized()
            except psycopg.Error as error:
                await self._drop()
                raise connections.failure("The marks of clients", error) from error

    async def found(self, marks: Collection[Mark]) -> set[Mark]:
        """Returns which of these marks any gateway has set, this one included. Raises `DatabaseError`."""
        await self.settle()
        named = {client_marks.mark(*one): one for one in marks}
        return {named[one] for one in await self._readers.read(client_marks.found, named)}

    def _change(self, words: Mark, count: int) -> None:
        mark = client_marks.mark(*words)
        self._wanted_marks[mark] += count
        if self._wanted_marks[mark] <= 0:
            del self._wanted_marks[mark]
        self._changed.set()
        if self._working is None:
            self._working = asyncio.create_task(self._keep())

    async def _keep(self) -> None:
        """Keep the session's marks as they are wanted; without any, no session."""
        backoff = Backoff()
        try:
            while True:
                self._changed.clear()
                seconds = database.LISTENERS_ASK_SECONDS
                try:
                    async with self._one_at_a_time:
                        if self._wanted_marks:
                            await database.ping(await self._synchronized())
                        else:
                            await self._drop()
                    backoff.reset()
                except (psycopg.Error, FrameledgerError) as error:
                    await self._drop()
                    seconds = backoff.next()
                    _log.warning(
                        "gateway.presence_unshared", reason=transient.reason(error), again_in=seconds
                    )
                with suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await self._changed.wait()
        finally:
            await self._drop()

    async def _synchronized(self) -> Connection:
        """Returns the session, with the marks that are wanted."""
        if self._session is None:
            self._session = await connections.connect(self._settings, "frameledger-gateway")
            self._set = set()
        wanted_marks = set(list(self._wanted_marks)[:MOST_MARKS])
        if old := self._set - wanted_marks:
            await client_marks.remove(self._session, old)
            self._set -= old
        if new := wanted_marks - self._set:
            await client_marks.add(self._session, new)
            self._set |= new
        return self._session

    async def _drop(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()
