"""Every message, era, setting and call that a conversation ever had, with the versions at which it was valid. One
statement each.

JSON stays text, so that it can be passed on without parsing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from psycopg.rows import class_row

from frameledger_services.database_types import Connection
from frameledger_services.store.valid_to import FOR_EVER


@dataclass(frozen=True, slots=True)
class PastMessage:
    """A message with its content from one version until before another."""

    era: int
    position: int
    valid_from: int
    valid_to: int
    role: str | None
    run_id: str | None
    message: str


@dataclass(frozen=True, slots=True)
class PastEra:
    """A history, and the version that began it."""

    era: int
    valid_from: int


@dataclass(frozen=True, slots=True)
class PastSetting:
    """A setting from a version on, until the next one of its name."""

    name: str
    valid_from: int
    value: str


@dataclass(frozen=True, slots=True)
class PastCall:
    """A call of a function. Arguments and result are JSON text."""

    tool_call_id: str
    function_name: str
    status: str
    run_id: str | None
    group_id: str | None
    requested_version: int
    ordinal: int
    dispatched_version: int | None
    started_version: int | None
    settled_version: int | None
    interrupted_version: int | None
    resolved_version: int | None
    requested_at: Any
    dispatched_at: Any
    started_at: Any
    settled_at: Any
    attempt: int
    progress_count: int
    synchronous: bool | None
    safe_to_retry: bool | None
    builtin: bool
    worker: str | None
    waiting_for: str | None
    waiting_deadline: Any
    idempotency_key: UUID | None
    arguments: str
    result: str | None


async def messages(
    connection: Connection, context_id: str, era: int | None, after: int | None = None
) -> list[PastMessage]:
    """Returns all rows of the messages of an era, or of all eras; with `after` those that began or ended after it."""
    async with connection.cursor(row_factory=class_row(PastMessage)) as cursor:
        await cursor.execute(
            f"""
            SELECT era, position, valid_from, valid_to, role, run_id, message::text AS message
            FROM messages
            WHERE context_id = %(id)s AND (%(era)s::integer IS NULL OR era = %(era)s)
                AND (%(after)s::bigint IS NULL OR valid_from > %(after)s
                    OR valid_to > %(after)s AND valid_to <> {FOR_EVER})
            ORDER BY era, position, valid_from
            """,
            {"id": context_id, "era": era, "after": after},
        )
        return await cursor.fetchall()


async def eras(connection: Connection, context_id: str) -> list[PastEra]:
    """Returns the eras except the first one, which has no row."""
    async with connection.cursor(row_factory=class_row(PastEra)) as cursor:
        await cursor.execute(
            "SELECT era, valid_from FROM eras WHERE context_id = %s ORDER BY valid_from", (context_id,)
        )
        return await cursor.fetchall()


async def settings(connection: Connection, context_id: str, after: int | None = None) -> list[PastSetting]:
    """Returns every value of the settings; with `after` those set after that version."""
    async with connection.cursor(row_factory=class_row(PastSetting)) as cursor:
        await cursor.execute(
            "SELECT name, valid_from, value::text AS value FROM context_settings "
            "WHERE context_id = %(id)s AND (%(after)s::bigint IS NULL OR valid_from > %(after)s) "
            "ORDER BY name, valid_from",
            {"id": context_id, "after": after},
        )
        return await cursor.fetchall()


async def calls(connection: Connection, context_id: str) -> list[PastCall]:
    """Returns the calls of a conversation, in the order in which they were announced."""
    async with connection.cursor(row_factory=class_row(PastCall)) as cursor:
        await cursor.execute(
            """
            SELECT tool_call_id, function_name, status, run_id, group_id, requested_version, ordinal,
                dispatched_version, started_version, settled_version, interrupted_version, resolved_version,
                requested_at, dispatched_at, started_at, settled_at, attempt, progress_count, synchronous,
                safe_to_retry, builtin, worker, waiting_for, waiting_deadline, idempotency_key,
                arguments::text AS arguments, result::text AS result
            FROM tool_calls
            WHERE context_id = %s
            ORDER BY requested_version, ordinal
            """,
            (context_id,),
        )
        return await cursor.fetchall()


async def run(connection: Connection, context_id: str, run_id: str) -> str | None:
    """Returns the JSON text of `explain_run`; None if there is no such run."""
    cursor = await connection.execute("SELECT explain_run(%s, %s)::text", (context_id, run_id))
    [(text,)] = await cursor.fetchall()
    return None if text is None else str(text)


async def era_at(connection: Connection, context_id: str, version: int) -> int:
    """Returns the era of a conversation at a version."""
    cursor = await connection.execute("SELECT era_at(%s, %s)", (context_id, version))
    [(era,)] = await cursor.fetchall()
    return int(era)


@dataclass(frozen=True, slots=True)
class Chain:
    """The result of `verify_chain`."""

    intact: bool
    frame_count: int
    broken_at: int | None
    problem: str | None


async def chain(connection: Connection, context_id: str) -> Chain:
    """Returns whether the stored frames make the stored chain."""
    async with connection.cursor(row_factory=class_row(Chain)) as cursor:
        await cursor.execute(
            "SELECT intact, frame_count, broken_at, problem FROM verify_chain(%s)", (context_id,)
        )
        [row] = await cursor.fetchall()
        return row
