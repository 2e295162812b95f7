"""The heartbeats of a worker, in a thread of their own.

A handler that blocks the event loop stops everything else that the worker does, but is no reason to take its work
away: so the heart has an event loop and a connection of its own, and renews the lease from its thread. A loop that is
blocked for very long is as good as dead; then the heart stops too.

What has to be told to jobs is told in the worker's loop. If the process dies or freezes, so does the heart.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import AsyncConnection

from frameledger_services import claims, logs, transient
from frameledger_services.claims import Heartbeat
from frameledger_services.settings import Settings
from frameledger_services.work.database import connect
from frameledger_services.work.lease import Lease

BLOCKED_SECONDS = 60.0
"""The worker's loop may be blocked for so long."""

STOP_SECONDS = 15.0
"""What psycopg needs at most to give up a statement that a frozen server does not answer."""


Held = Mapping[str, Any]
Told = Callable[[Heartbeat, Held], None]

_log = logs.get_logger("worker")


class HeartbeatThread:
    """Beats from `run` until the lease is over or `run` is cancelled."""

    def __init__(
        self, settings: Settings, worker_id: str, lease: Lease, held: Callable[[], Held], told: Told
    ) -> None:
        """`held` is called in the heart's thread: what the worker has at the moment, by effect, each with the token of
        its claim. `told` is called in the
        worker's loop with each answer and what was held when it was asked for."""
        self._settings = settings
        self._worker_id = worker_id
        self._lease = lease
        self._held = held
        self._told = told
        self._turned = lease.clock()

    async def run(self) -> None:
        """Returns when the lease is over. Raises what is neither that nor a database that is away."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        stop = threading.Event()

        def live() -> None:
            error: BaseException | None = None
            try:
                asyncio.run(self._beat(loop, stop))
            except BaseException as raised:
                error = raised
            # The loop may be closed by now: then nobody waits.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(_settle, ended, error)

        # A daemon: a server that never answers does not keep the process from ending.
        threading.Thread(target=live, name=f"heart of {self._worker_id}", daemon=True).start()
        try:
            await asyncio.shield(ended)
        finally:
            stop.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_SECONDS):
                    await asyncio.wait([ended])

    async def _beat(self, loop: asyncio.AbstractEventLoop, stop: threading.Event) -> None:
        """In the heart's thread and its own loop."""
        connection: AsyncConnection[Any] | None = None
        first, said = True, False
        try:
            while not stop.is_set() and self._lease.valid():
                try:
                    async with asyncio.timeout(self._lease.seconds):
                        if connection is None:
                            connection = await connect(self._settings, "heart")
                            if not first:
                                await claims.reconnected(connection, self._worker_id)
                            first = False
                        held, sent = self._held(), self._lease.clock()
                        answer = await claims.heartbeat(
                            connection, self._worker_id, {effect: one.claim for effect, one in held.items()}
                        )
                    said = False
                except transient.DATABASE as error:
                    await _close(connection)
                    connection = None
                    if not said:
                        said = True
                        _log.warning(
                            "worker.heartbeat_failed", worker=self._worker_id, reason=transient.reason(error)
                        )
                else:
                    if answer.alive:
                        self._lease.renew(sent)
                    with suppress(RuntimeError):
                        loop.call_soon_threadsafe(self._took, answer, held)
                    if not answer.alive:
                        return
                if self._lease.clock() - self._turned > BLOCKED_SECONDS:
                    _log.error("worker.event_loop_blocked", worker=self._worker_id, seconds=BLOCKED_SECONDS)
                    return
                await self._pause(stop)
        finally:
            await _close(connection)

    def _took(self, answer: Heartbeat, held: Held) -> None:
        """In the worker's loop."""
        self._turned = self._lease.clock()
        if not answer.alive:
            self._lease.end()
        self._told(answer, held)

    async def _pause(self, stop: threading.Event) -> None:
        # The event is of threads: it is looked at often enough for a quick end.
        until = self._lease.clock() + self._settings.work_heartbeat_secs
        while not stop.is_set() and (left := until - self._lease.clock()) > 0:
            await asyncio.sleep(min(left, 0.05))


async def _close(connection: AsyncConnection[Any] | None) -> None:
    if connection is not None:
        with suppress(psycopg.Error):
            await connection.close()


def _settle(ended: asyncio.Future[None], error: BaseException | None) -> None:
    if error is None:
        ended.set_result(None)
    else:
        ended.set_exception(error)
        # Whoever ended the heart does not ask any more.
        ended.exception()
