"""Verifies many conversations concurrently. Each job has a connection, and one snapshot for several conversations."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager

import psycopg
from psycopg import IsolationLevel

from frameledger_services import database
from frameledger_services.audit.verify import Verified, verify
from frameledger_services.database_types import Connection
from frameledger_services.settings import Settings
from frameledger_services.store import schema, verified
from frameledger_services.store.connections import failure

LIST_SIZE = 1_000
"""The number of conversations that one statement lists."""

MAX_BATCH_FRAMES = 4_000
MAX_BATCH = 200
"""Maximum number of frames, and of conversations, in one snapshot; a long conversation has its own."""

NAME = "frameledger verify"


@asynccontextmanager
async def connected(settings: Settings) -> AsyncIterator[Connection]:
    """Yields a connection whose transactions are snapshots. Raises psycopg's errors and `SchemaError`."""
    # While the log is read, the transaction waits.
    session = {**database.UNLIMITED, "idle_in_transaction_session_timeout": "0"}
    async with await database.connect(settings, NAME, session) as connection:
        await schema.check(connection)
        await connection.set_isolation_level(IsolationLevel.REPEATABLE_READ)
        yield connection


async def verify_many(
    settings: Settings,
    context_ids: Sequence[str] | None,
    report: Callable[[Verified], object],
    *,
    jobs: int,
    again: bool,
) -> None:
    """Verify these conversations, or all if None, and report each, in no particular order.

    Conversations without differences are recorded in the table `verified`, if the user may write it. Raises an
    `ExceptionGroup` of `DatabaseError` and `SchemaError`. Memory does not grow with the number of conversations or
    their length.
    """
    waiting: asyncio.Queue[list[str] | None] = asyncio.Queue(jobs)

    async def distribute() -> None:
        with _database_errors():
            async for batch in batches(settings, context_ids, again=again):
                await waiting.put(batch)
        for _ in range(jobs):
            await waiting.put(None)

    async def work() -> None:
        with _database_errors():
            async with connected(settings) as connection:
                remembers = await verified.may_store(connection)
                while (batch := await waiting.get()) is not None:
                    results = await verify(connection, batch, again=again)
                    if remembers:
                        await _remember(connection, results)
                    for result in results:
                        report(result)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(distribute())
        for _ in range(jobs):
            tasks.create_task(work())


@contextmanager
def _database_errors() -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        raise failure("The database could not be read", error) from error


async def _remember(connection: Connection, results: Sequence[Verified]) -> None:
    new = [result.remembered for result in results if result.remembered is not None]
    if new:
        await verified.store(connection, new)


async def batches(
    settings: Settings, context_ids: Sequence[str] | None, *, again: bool
) -> AsyncIterator[list[str]]:
    """Yields these conversations, or all if None, in groups that are verified together. Skips unknown ones. With
    `again` all frames count, otherwise those that were not verified before. Raises psycopg's errors and
    `SchemaError`."""
    batch, frames = list[str](), 0
    async with connected(settings) as connection:
        async for context_id, left in _listed(connection, context_ids, again=again):
            if batch and (frames + left > MAX_BATCH_FRAMES or len(batch) == MAX_BATCH):
                yield batch
                batch, frames = [], 0
            batch.append(context_id)
            frames += left
        if batch:
            yield batch


async def _listed(
    connection: Connection, context_ids: Sequence[str] | None, *, again: bool
) -> AsyncIterator[tuple[str, int]]:
    """Yields conversations, each with the number of frames that are left to verify."""
    if context_ids is not None:
        for first in range(0, len(context_ids), LIST_SIZE):
            for one in await verified.left_of(
                connection, context_ids[first : first + LIST_SIZE], again=again
            ):
                yield one
        return
    behind = ""
    while listed := await verified.left(connection, behind, LIST_SIZE, again=again):
        for one in listed:
            yield one
        behind = listed[-1][0]
