"""The time to read a long context in milliseconds, compared with a bare scan and orjson.

The bare table has the columns of `messages`, the messages that are valid now, and a primary key. Our two ways are the
client, which returns an `LLMContext` of any version, and `context_at` with its JSON parsed.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from itertools import islice
from typing import Any

import orjson
from psycopg import AsyncConnection
from psycopg.types.json import set_json_loads

from frameledger_services import access
from frameledger_services.bench.report import Figure
from frameledger_services.bench.road.direct import direct
from frameledger_services.bench.road.rounds import in_turns, no_collections
from frameledger_services.bench.road.servers import Servers
from frameledger_services.bench.road.stream import conversation
from frameledger_services.client import Client

FRAME_BYTES = 355
FRAMES_PER_MESSAGE = 6
CONTEXT = "a-long-talk"
WARM_UP = 3

_BARE = """
    CREATE TABLE bare_messages (LIKE messages);
    ALTER TABLE bare_messages ADD PRIMARY KEY (context_id, era, position, valid_from);
    INSERT INTO bare_messages SELECT * FROM messages WHERE valid_to = 9223372036854775807;
    ANALYZE bare_messages;
    ANALYZE messages;
"""


async def measure(servers: Servers, *, messages: int, rounds: int) -> list[Figure]:
    """Returns the milliseconds for a context of this many messages."""
    with servers.database() as settings:
        async with direct(settings) as projector:
            talk = islice(conversation(CONTEXT, FRAME_BYTES), messages * FRAMES_PER_MESSAGE)
            await projector.store(projector.records((CONTEXT, frame) for frame in talk), 500)
        async with (
            await AsyncConnection.connect(access.database_address(settings), autocommit=True) as connection,
            Client(settings) as client,
        ):
            await connection.execute(_BARE)
            set_json_loads(orjson.loads, connection)

            async def scan() -> float:
                return await _seconds(lambda: _scan(connection), messages)

            async def through_the_client() -> float:
                async def read() -> Any:
                    return (await client.context(CONTEXT)).context.messages

                return await _seconds(read, messages)

            async def with_context_at() -> float:
                return await _seconds(lambda: _context_at(connection), messages)

            with no_collections():
                by_client = await in_turns(through_the_client, scan, rounds, WARM_UP)
                by_function = await in_turns(with_context_at, scan, rounds, WARM_UP)
    return [
        by_client.figure(f"{messages:,} messages by the client / bare scan", "ms", float, 1.3),
        by_function.figure(f"{messages:,} messages by context_at / bare scan", "ms", float, 2.0),
    ]


async def _scan(connection: AsyncConnection) -> Any:
    cursor = await connection.execute(
        "SELECT message FROM bare_messages WHERE context_id = %s ORDER BY era, position", (CONTEXT,)
    )
    return [row[0] for row in await cursor.fetchall()]


async def _context_at(connection: AsyncConnection) -> Any:
    cursor = await connection.execute("SELECT context_at(%s)", (CONTEXT,))
    row = await cursor.fetchone()
    assert row is not None, "a function without a FROM gives one row"
    return row[0]["messages"]


async def _seconds(read: Callable[[], Awaitable[Any]], messages: int) -> float:
    start = time.perf_counter()
    messages_read = await read()
    took = time.perf_counter() - start
    assert len(messages_read) == messages, "all that are there, or the comparison means nothing"
    return 1e3 * took
