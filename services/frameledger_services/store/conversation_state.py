"""The state of a conversation before a client's question: its context, whether it is busy, and what it waits for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from frameledger_services.database_types import Connection
from frameledger_services.store import client_calls, contexts
from frameledger_services.store.client_calls import WaitingCall
from frameledger_services.store.contexts import NoSuchContextError, StoredContext, loads
from frameledger_services.store.shown_messages import ShownMessage, shown_messages

IS_RECORDED_OR_MIRRORED = (
    "(head.recording OR setting_at(head.context_id, 'mirror', head.version) #>> '{}' IS NOT NULL)"
)
"""SQL condition on a row of `contexts AS head`: it is a recording, or another program keeps its history."""


@dataclass(frozen=True, slots=True)
class Readiness:
    """A conversation and whether it accepts a question. `stored` is None if it does not exist."""

    stored: StoredContext | None
    cut_runs: frozenset[str] = frozenset()
    """Interrupted and failed runs that produced a message of the context."""

    is_recording: bool = False
    """Whether no worker answers it, because it is a recording, or because another program keeps its history."""

    goes_on: bool = False
    """Whether a run is open, or a call that the conversation waits for."""

    @property
    def version(self) -> int:
        return 0 if self.stored is None else int(self.stored.version)


@dataclass(frozen=True, slots=True)
class Thread:
    """The state of a conversation for a front end; the defaults apply if it does not exist."""

    version: int = 0
    is_recording: bool = False
    is_parked: bool = False
    goes_on: bool = False
    """Whether a run is open, or a call that the conversation waits for."""

    tools: Sequence[dict[str, Any]] = ()
    """The tools that its model may call."""

    messages: Sequence[ShownMessage] = ()
    waiting: Sequence[WaitingCall] = ()
    """Calls that wait for a person or for their client."""


async def readiness(connection: Connection, context_id: str) -> Readiness:
    """Returns the state of a conversation, read in one transaction."""
    async with connection.transaction():
        try:
            stored = await contexts.context(connection, context_id)
        except NoSuchContextError:
            return Readiness(None)
        runs = {one.removeprefix("run ") for one in stored.answers if one and one.startswith("run ")}
        cursor = await connection.execute(_READINESS, {"id": context_id, "runs": list(runs)})
        [(recording, cut)] = await cursor.fetchall()
        is_busy, _ = await goes_on(connection, context_id)
    return Readiness(stored, frozenset(cut), recording, is_busy)


async def thread(connection: Connection, context_id: str) -> Thread:
    """Returns the state of a conversation, read in one transaction."""
    async with connection.transaction():
        cursor = await connection.execute(
            f"""
            SELECT version, {IS_RECORDED_OR_MIRRORED}, parked_version IS NOT NULL,
                setting_at(context_id, 'tools', version)::text
            FROM contexts AS head
            WHERE context_id = %s
            """,
            (context_id,),
        )
        row = await cursor.fetchone()
        if row is None:
            return Thread()
        version, recording, parked, tools = row
        is_busy, _ = await goes_on(connection, context_id)
        shown = await shown_messages(connection, context_id, version)
        waiting = await client_calls.waiting(connection, context_id)
    return Thread(version, recording, parked, is_busy, loads(tools) or () if tools else (), shown, waiting)


async def goes_on(connection: Connection, context_id: str) -> tuple[bool, int]:
    """Returns whether a run is open, or a call that the conversation waits for, and the version of that state."""
    cursor = await connection.execute(
        """
        SELECT
            EXISTS (SELECT FROM runs WHERE context_id = %(id)s AND status IN ('requested', 'open'))
            OR EXISTS (
                SELECT FROM tool_calls
                WHERE context_id = %(id)s AND status IN ('announced', 'dispatched', 'running')
                    AND synchronous IS NOT FALSE
            ),
            coalesce((SELECT version FROM contexts WHERE context_id = %(id)s), 0)
        """,
        {"id": context_id},
    )
    [(does, version)] = await cursor.fetchall()
    return bool(does), int(version)


async def has_running_calls(connection: Connection, context_id: str) -> bool:
    """Returns whether a call is running or will be started, in the background or not. Waiting calls do not count."""
    cursor = await connection.execute(
        """
        SELECT EXISTS (
            SELECT FROM tool_calls
            WHERE context_id = %s AND status IN ('announced', 'dispatched', 'running')
        )
        """,
        (context_id,),
    )
    [(does,)] = await cursor.fetchall()
    return bool(does)


_READINESS = f"""
    SELECT
        {IS_RECORDED_OR_MIRRORED},
        ARRAY(
            SELECT run_id FROM runs
            WHERE runs.context_id = head.context_id AND run_id = ANY (%(runs)s)
                AND status IN ('interrupted', 'failed', 'context_ended')
        )
    FROM contexts AS head
    WHERE context_id = %(id)s
"""
