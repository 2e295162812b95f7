"""Which runs have a client at any gateway: marks in PostgreSQL (`store/client_marks`), on one session of this process.

A client may come back to another gateway than the one that it left: that one must not interrupt its run. And one that
stops its run and asks again may do so at another gateway, which interrupts the run that was left.

A process that dies loses its marks with its session; one that loses its session sets them again on the next one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Literal

import psycopg

from frameledger.errors import FrameledgerError
from frameledger_services import database, logs, transient
from frameledger_services.database_types import Connection
from frameledger_services.settings import Settings
from frameledger_services.store import client_marks, connections
from frameledger_services.supervision import Backoff

MOST_MARKS = 1_000
"""The maximum of this process: PostgreSQL has room for some thousand locks of all sessions. Further runs are not
marked, and their clients have to reconnect to this process."""

Kind = Literal["followed", "left"]
"""A client follows the run; its client has left it and is waited for."""

_log = logs.get_logger("gateway")


class SharedPresence:
    """The marks of this process, and those of others. Connects for the first mark."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._wanted_marks: Counter[int] = Counter()
        self._set: set[int] = set()
        """On the session that there is."""

        self._session: Connection | None = None
        self._one_at_a_time = asyncio.Lock()
        self._changed = asyncio.Event()
        self._working: asyncio.Task[None] | None = None

    def add(self, kind: Kind, thread_id: str, run_id: str) -> None:
        """Mark a run. Each mark has to be removed once."""
        self._change(kind, thread_id, run_id, 1)

    def remove(self, kind: Kind, thread_id: str, run_id: str) -> None:
        """Remove a mark."""
        self._change(kind, thread_id, run_id, -1)

    async def kinds(self, thread_id: str, run_id: str) -> set[Kind]:
        """Returns how a run is marked, by any gateway. Raises `DatabaseError`."""
        named: dict[int, Kind] = {
            _mark("followed", thread_id, run_id): "followed",
            _mark("left", thread_id, run_id): "left",
        }
        async with self._one_at_a_time:
            try:
                marks = await client_marks.found(await self._synchronized(), named)
            except psycopg.Error as error:
                await self._drop()
                raise connections.failure("The clients of a run", error) from error
        self._work()
        return {named[one] for one in marks}

    def _change(self, kind: Kind, thread_id: str, run_id: str, count: int) -> None:
        mark = _mark(kind, thread_id, run_id)
        self._wanted_marks[mark] += count
        if self._wanted_marks[mark] <= 0:
            del self._wanted_marks[mark]
        self._changed.set()
        self._work()

    def _work(self) -> None:
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


def _mark(kind: Kind, thread_id: str, run_id: str) -> int:
    return client_marks.mark("ag_ui", kind, thread_id, run_id)
