"""Tells all gateways what clients follow, by marks in PostgreSQL (`store/client_marks`) on one session of each process.

A client may reconnect to another gateway than the one that it left, which must not interrupt the client's answer then.
And a client that stops its answer may ask again at another gateway, which interrupts the abandoned answer.

A process that dies loses its marks with its session. A process that loses its session sets them again on the next one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection

import psycopg

from frameledger.errors import FrameledgerError
from frameledger_services import database, logs, transient
from frameledger_services.database_types import Connection
from frameledger_services.settings import Settings
from frameledger_services.store import client_marks, connections
from frameledger_services.store.connections import Connections
from frameledger_services.supervision import Backoff, pause

MAX_MARKS = 1_000
"""The maximum number of marks of this process: PostgreSQL has room for some thousands of locks of all sessions. Beyond
it nothing is marked, and clients have to reconnect to this process."""

Mark = tuple[str, ...]
"""The words that name a mark."""

_log = logs.get_logger("gateway")


class SharedMarks:
    """The marks of this process, and those of others. Connects for the first mark."""

    def __init__(self, settings: Settings, readers: Connections) -> None:
        """`readers` are the connections by which the marks of all processes are read."""
        self._settings = settings
        self._readers = readers
        self._wanted_marks: Counter[int] = Counter()
        self._set: set[int] = set()
        """The keys that are set on the current session."""

        self._session: Connection | None = None
        self._one_at_a_time = asyncio.Lock()
        self._changed = asyncio.Event()
        self._working: asyncio.Task[None] | None = None

    def add(self, *mark: str) -> None:
        """Set a mark soon (`settle` waits for it). A mark has to be removed as often as it was added."""
        self._change(mark, 1)

    def remove(self, *mark: str) -> None:
        """Remove a mark soon."""
        self._change(mark, -1)

    async def settle(self) -> None:
        """Wait until all added marks are set and all removed ones are gone. Raises `DatabaseError`."""
        # Not cancelled with its caller: what is set on the session would not be known.
        await asyncio.shield(self._settle())

    async def _settle(self) -> None:
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
        """Synchronize the session's marks with the wanted ones, and close the session when there are none."""
        backoff = Backoff()
        try:
            while True:
                self._changed.clear()
                seconds = database.LISTENERS_ASK_SECONDS
                try:
                    async with self._one_at_a_time:
                        if self._wanted_marks:
                            await database.ping(await self._synchronized())
                        elif self._session is not None:
                            # The server keeps the marks of a closed session until it notices.
                            await self._synchronized()
                            await self._drop()
                    backoff.reset()
                except (psycopg.Error, FrameledgerError) as error:
                    await self._drop()
                    seconds = backoff.next()
                    _log.warning(
                        "gateway.presence_unshared", reason=transient.reason(error), again_in=seconds
                    )
                await pause(self._changed, seconds)
        finally:
            await self._drop()

    async def _synchronized(self) -> Connection:
        """Returns the session after setting the wanted marks on it."""
        if self._session is None:
            self._session = await connections.connect(self._settings, "frameledger-gateway")
            self._set = set()
        wanted_marks = set(list(self._wanted_marks)[:MAX_MARKS])
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
