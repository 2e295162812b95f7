"""A projector and workers, started like by their commands, and turns of users that give them work."""

from __future__ import annotations

import asyncio
import json
import time
from asyncio.subprocess import Process
from bisect import bisect_left
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import psutil
from psycopg import AsyncConnection

from frameledger.frames import (
    AnyFrame,
    TranscriptionFrame,
    UserStartedSpeakingFrame,
    UserStoppedSpeakingFrame,
)
from frameledger_services import access
from frameledger_services.bench.road.processes import WATCHED, BenchError, running
from frameledger_services.bench.road.servers import Servers
from frameledger_services.client import Client
from frameledger_services.database_types import Connection
from frameledger_services.settings import Settings
from frameledger_services.store.progress_channel import CHANNEL

POLL_SECONDS = 0.25
WITHIN = 120.0

Row = tuple[Any, ...]


class Scene:
    """A running projector and running workers, on their own topics and database."""

    def __init__(
        self,
        settings: Settings,
        client: Client,
        connection: Connection,
        projector: Process,
        workers: Sequence[Process],
    ) -> None:
        self.settings = settings
        self.client = client
        self.workers = workers
        self.projector = projector
        self._connection = connection

    async def publish(self, frames: Mapping[str, Iterable[AnyFrame]]) -> None:
        """Publish the frames of many conversations concurrently. Returns when they are on the log."""
        async with asyncio.TaskGroup() as tasks:
            for context_id, some in frames.items():
                tasks.create_task(self.client.publish(context_id, *some))

    async def rows(self, query: str, *parameters: Any) -> list[Row]:
        return await (await self._connection.execute(query, parameters)).fetchall()

    async def until(self, query: str, *parameters: Any, within: float = WITHIN, pause: float = 0.0) -> None:
        """Return when the query returns true. It is executed at every batch of the projector, but at most once per
        `pause` seconds.

        Raises `BenchError` if that takes too long, or if a process has ended.
        """
        try:
            async with asyncio.timeout(within):
                while not (await self.rows(query, *parameters))[0][0]:
                    for process in (self.projector, *self.workers):
                        if process.returncode is not None:
                            raise BenchError(f"A process ended with exit code {process.returncode}.")
                    if pause:
                        await asyncio.sleep(pause)
                    async for _ in self._connection.notifies(timeout=POLL_SECONDS, stop_after=1):
                        pass
        except TimeoutError:
            raise BenchError(f"It took more than {within:.0f} s until: {' '.join(query.split())}") from None

    async def committed(self) -> Committed:
        """Stop the projector and return the commit times of its transactions."""
        self.projector.terminate()
        output, _ = await self.projector.communicate()
        return Committed(json.loads(output)["committed"])


class Committed:
    """The commit times of the projector's transactions. The time in a row is slightly earlier than its commit."""

    def __init__(self, times: Sequence[float]) -> None:
        """`times`: Unix times in seconds, ascending."""
        self._times = times

    def of(self, recorded_at: float) -> float:
        """Returns when a row became visible. `recorded_at` is Unix time in seconds."""
        return self._times[bisect_left(self._times, recorded_at)]


@asynccontextmanager
async def scene(
    servers: Servers,
    workers: Sequence[Sequence[str]],
    kind: str,
    also: Mapping[str, str] | None = None,
    **changes: Any,
) -> AsyncIterator[Scene]:
    """Yields a scene with these workers of a kind, each a module and its arguments. `changes` are changed settings, and
    `also` are environment variables of the workers.

    The block starts when all workers have registered and been assigned their partitions.
    """
    async with AsyncExitStack() as stack:
        settings = stack.enter_context(servers.database()).model_copy(update=changes)
        settings = await servers.make_topics(settings)
        stack.push_async_callback(servers.delete_topics, settings)
        address = access.database_address(settings, application_name="frameledger-bench")
        connection = await stack.enter_async_context(await AsyncConnection.connect(address, autocommit=True))
        await connection.execute(f"LISTEN {CHANNEL}")
        client = await stack.enter_async_context(Client(settings))
        projector = await stack.enter_async_context(running(settings, *WATCHED))
        processes = [
            await stack.enter_async_context(running(settings, *worker, also=also)) for worker in workers
        ]
        here = Scene(settings, client, connection, projector, processes)
        # When this is stored, the projector is running.
        await client.publish("first", UserStartedSpeakingFrame(), wait=True, within=WITHIN)
        await here.until(
            "SELECT count(*) = %s FROM workers WHERE kind = %s AND stopped_at IS NULL", len(workers), kind
        )
        yield here


def turn(text: str) -> list[AnyFrame]:
    """Returns the frames of a complete turn of the user, which requests a run."""
    return [UserStartedSpeakingFrame(), TranscriptionFrame(text=text), UserStoppedSpeakingFrame()]


def cpu_seconds(processes: Iterable[Process]) -> float:
    """Returns the CPU seconds that these processes have used."""
    times = [psutil.Process(process.pid).cpu_times() for process in processes]
    return sum(one.user + one.system for one in times)


def monotonic_offset() -> float:
    """Returns the offset from `time.monotonic` to Unix time."""
    return time.time() - time.monotonic()
