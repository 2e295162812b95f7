"""The statements of roots and proofs: each function runs one, in the caller's transaction, and none commits.

Everything that is compared or proved together is read in one transaction of isolation level REPEATABLE READ, and so
from one snapshot.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from datetime import datetime
from typing import NamedTuple

from psycopg.rows import args_row

from frameledger_services.database_types import Connection
from frameledger_services.store.erasures import OLDEST_FIRST

FETCH_ROWS = 5_000
"""Number of heads that are fetched together."""

ROOT_LOCK = 0x726F6F74
"""The key of the advisory lock under which roots are published at intervals."""


async def moment(connection: Connection) -> datetime:
    """Returns the start of the transaction by the database's clock. Its snapshot includes everything committed
    before."""
    cursor = await connection.execute("SELECT transaction_timestamp()")
    [(at,)] = await cursor.fetchall()
    assert isinstance(at, datetime)
    return at


async def try_to_hold_roots(connection: Connection) -> bool:
    """Returns whether this transaction is now the only one that publishes a root for its interval."""
    cursor = await connection.execute("SELECT pg_try_advisory_xact_lock(%s)", (ROOT_LOCK,))
    [(held,)] = await cursor.fetchall()
    return bool(held)


class StoredLeaf(NamedTuple):
    """The content of a leaf: a head, or a receipt. A tuple, because there may be millions."""

    context_id: str
    version: int
    chain: bytes


async def heads(connection: Connection) -> AsyncGenerator[StoredLeaf, None]:
    """Yields context id, version and chain of every conversation, in the byte order of the ids."""
    async with connection.cursor(name="heads", row_factory=args_row(StoredLeaf)) as cursor:
        cursor.itersize = FETCH_ROWS
        await cursor.execute(
            "SELECT context_id, version, chain FROM contexts ORDER BY context_id", binary=True
        )
        async for row in cursor:
            yield row


async def receipts(connection: Connection) -> AsyncGenerator[StoredLeaf, None]:
    """Yields context id, version and chain of every receipt, in the byte order of the ids, the oldest of each id
    first."""
    async with connection.cursor(name="receipts", row_factory=args_row(StoredLeaf)) as cursor:
        cursor.itersize = FETCH_ROWS
        await cursor.execute(
            f"SELECT context_id, version, chain FROM erasures ORDER BY context_id, {OLDEST_FIRST}",
            binary=True,
        )
        async for row in cursor:
            yield row


async def links(connection: Connection, places: Sequence[tuple[str, int]]) -> dict[str, bytes]:
    """Returns the stored link of each of these conversations at its given version, if that frame exists."""
    cursor = await connection.execute(
        """
        SELECT frames.context_id, frames.chain
        FROM unnest(%s::text[], %s::bigint[]) AS asked (context_id, version)
        INNER JOIN frames ON frames.context_id = asked.context_id AND frames.version = asked.version
        """,
        ([context_id for context_id, _ in places], [version for _, version in places]),
    )
    return {context_id: bytes(chain) for context_id, chain in await cursor.fetchall()}


async def link_of_receipt(connection: Connection, context_id: str, version: int) -> bytes | None:
    """Returns the chain of a conversation's receipt of this version; None if there is none."""
    cursor = await connection.execute(
        "SELECT chain FROM erasures WHERE context_id = %s AND version = %s ORDER BY erased_at DESC LIMIT 1",
        (context_id, version),
    )
    row = await cursor.fetchone()
    return None if row is None else bytes(row[0])
