"""Advisory locks as marks that a process sets for other processes to see. They end with its session.

Read-only users may set them, because nothing is written. Several processes may set the same mark; none waits.
"""

from __future__ import annotations

from collections.abc import Collection
from hashlib import blake2b

from frameledger_services.database_types import Connection
from frameledger_services.store.server import THIS_DATABASE


def mark(*words: str) -> int:
    """Returns the mark that these words name."""
    named = "\n".join(words).encode(errors="backslashreplace")
    return int.from_bytes(blake2b(named, digest_size=8).digest(), signed=True)


async def add(connection: Connection, marks: Collection[int]) -> None:
    """Set these marks, each once."""
    await connection.execute(
        "SELECT pg_try_advisory_lock_shared(mark) FROM unnest(%s::bigint[]) AS mark", [[*marks]]
    )


async def remove(connection: Connection, marks: Collection[int]) -> None:
    """Remove marks that this session has set."""
    await connection.execute(
        "SELECT pg_advisory_unlock_shared(mark) FROM unnest(%s::bigint[]) AS mark", [[*marks]]
    )


async def found(connection: Connection, marks: Collection[int]) -> set[int]:
    """Returns those of these marks that any session has set."""
    cursor = await connection.execute(
        f"""
        SELECT DISTINCT mark
        FROM (
            SELECT classid::bigint << 32 | objid::bigint AS mark
            FROM pg_locks
            WHERE locktype = 'advisory' AND objsubid = 1 AND granted
                AND database = {THIS_DATABASE}
        ) AS advisory
        WHERE mark = ANY (%s::bigint[])
        """,
        [[*marks]],
    )
    return {one for (one,) in await cursor.fetchall()}
