"""The response times of queries about a conversation, database and Python together, in milliseconds: `restore` of the
client, and the SQL functions behind `diff`, `why` and `timeline`.

The first figures are compared with a limit in milliseconds (`ALLOWED_MS`). The others are compared with the same query
in a database that holds only this conversation.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

from psycopg import AsyncConnection

from frameledger_services import access
from frameledger_services.bench.report import Figure
from frameledger_services.bench.road.direct import Direct, direct
from frameledger_services.bench.road.rounds import in_turns, no_collections
from frameledger_services.bench.road.servers import Servers
from frameledger_services.bench.road.stream import conversation, interleaved
from frameledger_services.client import Client
from frameledger_services.settings import Settings
from frameledger_services.store import history

CONTEXT = "a-talk"
FRAME_BYTES = 355
FRAMES_OF_OTHERS = 20
WARM_UP = 3
FLAT = 1.2
"""Maximum ratio of the time among other conversations to the time without them: the query reads the same rows."""

ALLOWED_MS = {"restore": 10.0, "diff": 10.0, "why": 10.0, "timeline": 30.0}
"""Goals on an idle machine, for a conversation of a thousand frames."""


async def measure(servers: Servers, *, frames: int, others: int, rounds: int) -> list[Figure]:
    """Returns the milliseconds of each query of a conversation with this many frames, in a database with this many
    other conversations."""
    figures = []
    with servers.database() as alone, servers.database() as among:
        await _fill(alone, frames, 0)
        await _fill(among, frames, others)
        async with _asker(alone, frames) as quiet, _asker(among, frames) as crowded:
            for name, allowed in ALLOWED_MS.items():
                with no_collections():
                    measured = await in_turns(crowded.timed(name), quiet.timed(name), rounds, WARM_UP)
                flat = measured.figure(f"{name} among {others:,} others / alone", "ms", float, FLAT)
                figures += [_within(name, frames, flat.value, allowed), flat]
    return figures


@dataclass(frozen=True, slots=True)
class _Asker:
    """Executes the queries of a conversation on open connections."""

    questions: dict[str, Callable[[], Awaitable[Any]]]

    def timed(self, name: str) -> Callable[[], Awaitable[float]]:
        """Executes a query and returns its duration in milliseconds."""

        async def ask() -> float:
            start = time.perf_counter()
            answer = await self.questions[name]()
            took = 1e3 * (time.perf_counter() - start)
            assert answer, "an answer, or the time means nothing"
            return took

        return ask


@asynccontextmanager
async def _asker(settings: Settings, frames: int) -> AsyncIterator[_Asker]:
    async with (
        await AsyncConnection.connect(access.database_address(settings), autocommit=True) as connection,
        Client(settings) as client,
    ):
        position = await _middle(connection)

        async def restore() -> Any:
            return (await client.restore(CONTEXT)).context.messages

        async def diff() -> Any:
            return await _value(connection, "SELECT context_diff(%s, %s, %s)", CONTEXT, frames // 2, frames)

        async def why() -> Any:
            return await _value(connection, "SELECT explain_message(%s, %s)", CONTEXT, position)

        async def timeline() -> Any:
            return [frame async for frame in history.timeline(connection, CONTEXT)]

        yield _Asker({"restore": restore, "diff": diff, "why": why, "timeline": timeline})


async def _fill(settings: Settings, frames: int, others: int) -> None:
    async with direct(settings) as projector:
        talk = islice(conversation(CONTEXT, FRAME_BYTES), frames)
        await _store(projector, ((CONTEXT, frame) for frame in talk))
        await _store(projector, interleaved(others, FRAMES_OF_OTHERS, FRAME_BYTES))
    async with await AsyncConnection.connect(
        access.database_address(settings), autocommit=True
    ) as connection:
        await connection.execute("VACUUM ANALYZE")


async def _store(projector: Direct, frames: Any) -> None:
    await projector.store(projector.records(frames), 500)


async def _middle(connection: AsyncConnection) -> int:
    """Returns the position of a message in the middle of the conversation."""
    return int(
        await _value(
            connection,
            "SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY position) FROM messages WHERE context_id = %s",
            CONTEXT,
        )
    )


async def _value(connection: AsyncConnection, query: str, *parameters: object) -> Any:
    cursor = await connection.execute(query, parameters)
    row = await cursor.fetchone()
    assert row is not None, "a SELECT without a FROM gives one row"
    return row[0]


def _within(name: str, frames: int, took: float, allowed: float) -> Figure:
    return Figure(
        name=f"{name} of {frames:,} frames / allowed",
        value=took,
        unit="ms",
        yardstick=allowed,
        ratio=took / allowed,
        goal=1.0,
        bound="at most",
    )
