"""The version up to which each conversation was verified, and the state from which the next verification continues."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg.rows import class_row

from frameledger_services.database_types import Connection


@dataclass(frozen=True, slots=True)
class VerifiedUpTo:
    """A row of `verified`."""

    context_id: str
    version: int
    chain: bytes
    fold_version: int
    head: str
    """JSON: the fields of a head except its state."""

    state: str
    """The state at that version, in its stored form."""


async def load(connection: Connection, context_ids: Sequence[str]) -> dict[str, VerifiedUpTo]:
    """Returns what was verified of these conversations; those that were never verified are omitted."""
    async with connection.cursor(row_factory=class_row(VerifiedUpTo)) as cursor:
        await cursor.execute(
            """
            SELECT context_id, version, chain, fold_version, head::text, state::text
            FROM verified
            WHERE context_id = ANY (%s)
            """,
            (list(context_ids),),
        )
        return {one.context_id: one for one in await cursor.fetchall()}


async def store(connection: Connection, verified: Sequence[VerifiedUpTo]) -> None:
    """Store what was verified, in a transaction of its own. A conversation that was erased meanwhile is skipped, even
    if another life of it has begun."""
    async with connection.transaction():
        # Each statement has a snapshot of its own. The first one waits for an erasure that is not committed yet, which
        # the second then sees in the frames; a later erasure waits until this is committed.
        await connection.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        await connection.execute(
            "SELECT FROM contexts WHERE context_id = ANY (%s) ORDER BY context_id FOR KEY SHARE",
            ([one.context_id for one in verified],),
        )
        await connection.execute(
            _STORE,
            tuple(
                [getattr(one, name) for one in verified]
                for name in ("context_id", "version", "chain", "fold_version", "head", "state")
            ),
        )


_STORE = """
    INSERT INTO verified AS before (context_id, version, chain, fold_version, head, state)
    SELECT given.context_id, given.version, given.chain, given.fold_version, given.head::json, given.state::json
    FROM unnest(%s::text[], %s::bigint[], %s::bytea[], %s::int[], %s::text[], %s::text[])
        AS given (context_id, version, chain, fold_version, head, state)
    INNER JOIN frames USING (context_id, version, chain)
    ORDER BY given.context_id
    ON CONFLICT (context_id) DO UPDATE SET
        version = excluded.version,
        chain = excluded.chain,
        fold_version = excluded.fold_version,
        head = excluded.head,
        state = excluded.state,
        verified_at = clock_timestamp(),
        verified_by = SESSION_USER
"""


async def may_store(connection: Connection) -> bool:
    """Returns whether verifications can be stored: the user has the permission, and its transactions may write, unlike
    those on a standby."""
    cursor = await connection.execute(
        """
        SELECT has_table_privilege('verified', 'INSERT') AND has_table_privilege('verified', 'UPDATE')
            -- Locking a row requires the permission to change a column.
            AND has_any_column_privilege('contexts', 'UPDATE')
            AND NOT current_setting('transaction_read_only')::boolean
        """
    )
    [(may,)] = await cursor.fetchall()
    return bool(may)


async def left(connection: Connection, behind: str, limit: int, *, again: bool) -> list[tuple[str, int]]:
    """Returns conversations after this id, in order, each with the number of frames that were not verified yet, or with
    `again` the number of all its frames."""
    cursor = await connection.execute(
        f"{_LEFT} WHERE contexts.context_id > %s ORDER BY contexts.context_id LIMIT %s",
        (again, behind, limit),
    )
    return await cursor.fetchall()


async def left_of(
    connection: Connection, context_ids: Sequence[str], *, again: bool
) -> list[tuple[str, int]]:
    """Returns those of these conversations that exist, as `left` does."""
    cursor = await connection.execute(
        f"{_LEFT} WHERE contexts.context_id = ANY (%s) ORDER BY contexts.context_id",
        (again, list(context_ids)),
    )
    return await cursor.fetchall()


_LEFT = """
    SELECT contexts.context_id,
        greatest(contexts.version - CASE WHEN %s THEN 0 ELSE coalesce(verified.version, 0) END, 0)
    FROM contexts
    LEFT JOIN verified USING (context_id)
"""
