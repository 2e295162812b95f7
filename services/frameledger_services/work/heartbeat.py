"""The heartbeats of a worker, in a thread of their own.

A handler that blocks the event loop stops everything else that the worker does, but is no reason to take its work away.
So heartbeats have an event loop and a connection of their own, and renew the lease from their thread. If the worker's
loop stays blocked for very long, the worker counts as dead, and its heartbeats stop too.

The answers are handed to the worker's loop. If the process dies or freezes, the heartbeats stop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import psycopg

from frameledger_services import claims, logs, transient
from frameledger_services.claims import Heartbeat
from frameledger_services.database_types import Connection
from frameledger_services.settings import Settings
from frameledger_services.work.database import answered_within, connect
from frameledger_services.work.lease import Lease

BLOCKED_SECONDS = 60.0
"""Maximum time in seconds for which the worker's loop may be blocked."""

STOP_SECONDS = 15.0
"""Maximum time in seconds that psycopg needs to abandon a statement that a frozen server does not answer."""


Held = Mapping[str, Any]
OnAnswer = Callable[[Heartbeat, Held], None]

_log = logs.get_logger("worker")


class HeartbeatThread:
    """Sends heartbeats from `run` until the lease ends or `run` is cancelled."""

    def __init__(
        self, settings: Settings, worker_id: str, lease: Lease, held: Callable[[], Held], on_answer: OnAnswer
    ) -> None:
        """`held`, called in the heartbeats' thread, returns the jobs by effect, each with the token of its claim.
        `on_answer` is called in the worker's loop with each answer and with what was held when it was requested."""
        self._settings = settings
        self._worker_id = worker_id
        self._lease = lease
        self._held = held
        self._on_answer = on_answer
        self._stopping = threading.Event()
        self._handed_over_at: float | None = None
        """When the oldest callback that has not run was passed to the worker's loop; None if all have run."""

    async def run(self) -> None:
        """Returns when the lease ends. Waits through outages of the database, and raises every other error. Call it
        once."""
        loop = self._loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()

        def in_thread() -> None:
            error: BaseException | None = None
            try:
                asyncio.run(self._keep_sending())
            except BaseException as raised:
                error = raised
            # A loop that is already closed does not wait for it.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(_settle, ended, error)

        # A daemon thread: a server that never answers does not keep the process from exiting.
        threading.Thread(target=in_thread, name=f"heartbeats of {self._worker_id}", daemon=True).start()
        try:
            await asyncio.shield(ended)
        finally:
            self._stopping.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_SECONDS):
                    await asyncio.wait([ended])

    async def _keep_sending(self) -> None:
        """Send heartbeats until the lease ends or the worker stops them. Runs in the heartbeats' thread and event
        loop."""
        connection: Connection | None = None
        first, warned = True, False
        try:
            while not self._stopping.is_set() and self._lease.valid():
                try:
                    async with answered_within(self._lease.seconds):
                        if connection is None:
                            connection = await connect(self._settings, "heartbeats")
                            if not first:
                                await claims.reconnected(connection, self._worker_id)
                            first = False
                        held, sent = self._held(), self._lease.clock()
                        answer = await claims.heartbeat(
                            connection, self._worker_id, {effect: one.claim for effect, one in held.items()}
                        )
                    warned = False
                except transient.DATABASE as error:
                    await _close(connection)
                    connection = None
                    if not warned:
                        warned = True
                        _log.warning(
                            "worker.heartbeat_failed", worker=self._worker_id, reason=transient.reason(error)
                        )
                    # A blocked loop has to be noticed during an outage of the database too.
                    self._hand_over(self._note_callback_ran)
                else:
                    if answer.alive:
                        self._lease.renew(sent)
                    self._hand_over(self._process_answer, answer, held)
                    if not answer.alive:
                        return
                if self._blocked_for() > BLOCKED_SECONDS:
                    _log.error("worker.event_loop_blocked", worker=self._worker_id, seconds=BLOCKED_SECONDS)
                    return
                await self._pause()
        finally:
            await _close(connection)

    def _hand_over(self, callback: Callable[..., None], *arguments: Any) -> None:
        """Call this in the worker's loop."""
        if self._handed_over_at is None:
            self._handed_over_at = self._lease.clock()
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, *arguments)

    def _blocked_for(self) -> float:
        """Returns the seconds for which a callback has waited for the worker's loop."""
        handed_over_at = self._handed_over_at
        return 0.0 if handed_over_at is None else self._lease.clock() - handed_over_at

    def _note_callback_ran(self) -> None:
        """Record that the worker's loop is not blocked. Runs in that loop."""
        self._handed_over_at = None

    def _process_answer(self, answer: Heartbeat, held: Held) -> None:
        """Process the answer to a heartbeat. Runs in the worker's loop."""
        self._note_callback_ran()
        if not answer.alive:
            self._lease.end()
        self._on_answer(answer, held)

    async def _pause(self) -> None:
        # A threading event cannot be awaited, so it is polled, often enough to stop quickly.
        deadline = self._lease.clock() + self._settings.work_heartbeat_secs
        while not self._stopping.is_set() and (left := deadline - self._lease.clock()) > 0:
            await asyncio.sleep(min(left, 0.05))


async def _close(connection: Connection | None) -> None:
    if connection is not None:
        with suppress(psycopg.Error):
            await connection.close()


def _settle(ended: asyncio.Future[None], error: BaseException | None) -> None:
    if error is None:
        ended.set_result(None)
    else:
        ended.set_exception(error)
        # Marks the error as retrieved, since a cancelled `run` does not read it.
        ended.exception()
