"""The size of a message on disk in bytes: every table and index that the projector fills, compared with two bare
tables.

The bare tables have the columns and rows of `frames` and `messages`, in the order in which these were written, and only
their primary keys. About a kilobyte of settings and empty tables is counted as well.

The ratio depends on when autovacuum comes. A run and a call are updated about twice, and the space of the rows before
is used again only after a vacuum, for which PostgreSQL looks once a minute by default (`autovacuum_naptime`); this
writes for less than that. At full scale the ratio is 1.316 without autovacuum, always the same; 1.25 to 1.26 if it
looks each second; and something in between by default.
"""

from __future__ import annotations

from psycopg import AsyncConnection

from frameledger_services import access
from frameledger_services.bench.report import Figure
from frameledger_services.bench.road.direct import direct
from frameledger_services.bench.road.servers import Servers
from frameledger_services.bench.road.stream import interleaved
from frameledger_services.store import tables

FRAME_BYTES = 355
BATCH = 500

_KEYS = {"frames": "context_id, version", "messages": "context_id, era, position, valid_from"}


async def measure(servers: Servers, *, contexts: int, each: int) -> list[Figure]:
    """Returns bytes per message, with this many conversations of `each` frames."""
    with servers.database() as settings:
        async with direct(settings) as projector:
            await projector.store(projector.records(interleaved(contexts, each, FRAME_BYTES)), BATCH)
        async with await AsyncConnection.connect(
            access.database_address(settings), autocommit=True
        ) as connection:
            # A projector publishes and deletes these right after their batch; here they stayed.
            await connection.execute("TRUNCATE outbox")
            for table, key in _KEYS.items():
                await _copy_bare(connection, table, key)
            ours = await _size(connection, [table.name for table in tables.metadata.sorted_tables])
            bare = await _size(connection, [f"bare_{table}" for table in _KEYS])
            [(messages,)] = await (await connection.execute("SELECT count(*) FROM messages")).fetchall()
    return [
        Figure(
            name="all tables / bare frames and messages",
            value=ours / messages,
            unit="B/message",
            yardstick=bare / messages,
            ratio=ours / bare,
            goal=1.3,
            bound="at most",
        )
    ]


async def _copy_bare(connection: AsyncConnection, table: str, key: str) -> None:
    await connection.execute(f"CREATE TABLE bare_{table} (LIKE {table})")
    await connection.execute(f"ALTER TABLE bare_{table} ADD PRIMARY KEY ({key})")
    await connection.execute(f"INSERT INTO bare_{table} SELECT * FROM {table}")


async def _size(connection: AsyncConnection, names: list[str]) -> int:
    cursor = await connection.execute(
        "SELECT sum(pg_total_relation_size(name::regclass)) FROM unnest(%s::text[]) AS name", (names,)
    )
    [(size,)] = await cursor.fetchall()
    return int(size)
