"""A conversation as a front end finds it: whether it can be asked something, and where its last question was asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from frameledger_services.database_types import Connection
from frameledger_services.store import client_calls, conversations
from frameledger_services.store.client_calls import WaitingCall
from frameledger_services.store.contexts import loads
from frameledger_services.store.shown_messages import CLIENT, ShownMessage, shown_messages


@dataclass(frozen=True, slots=True)
class Thread:
    """How a conversation stands. Without anything if there is none."""

    version: int = 0
    is_recording: bool = False
    is_parked: bool = False
    goes_on: bool = False
    """A run is open, or a call that the conversation waits for."""

    tools: Sequence[dict[str, Any]] = ()
    """What its model may call."""

    messages: Sequence[ShownMessage] = ()
    waiting: Sequence[WaitingCall] = ()
    """Calls that wait, for a person or for their client."""


@dataclass(frozen=True, slots=True)
class StoredFrame:
    """What became of a frame."""

    version: int
    outcome: str
    reason: str | None


@dataclass(frozen=True, slots=True)
class AskedRun:
    """Where a client asked for something."""

    version: int
    """The frame's that asked; the newest one if nobody did."""

    run_id: str
    """As the client named it, or else as we do."""

    is_answer: bool = False
    """It answered a call, which its events show."""

    is_mirror: bool = False
    """Another program keeps the history: what is said is not what is stored."""


async def thread(connection: Connection, context_id: str) -> Thread:
    """Returns how a conversation stands. What changes while it is read has a later version than the one returned."""
    cursor = await connection.execute(
        """
        SELECT version, recording OR setting_at(context_id, 'mirror', version) #>> '{}' IS NOT NULL,
            parked_version IS NOT NULL, setting_at(context_id, 'tools', version)::text
        FROM contexts
        WHERE context_id = %s
        """,
        (context_id,),
    )
    row = await cursor.fetchone()
    if row is None:
        return Thread()
    version, recording, parked, tools = row
    goes_on, _ = await conversations.goes_on(connection, context_id)
    return Thread(
        version,
        recording,
        parked,
        goes_on,
        loads(tools) or () if tools else (),
        await shown_messages(connection, context_id, version),
        await client_calls.waiting(connection, context_id),
    )


async def stored_of(
    connection: Connection, context_id: str, frame_ids: Sequence[UUID]
) -> dict[UUID, StoredFrame]:
    """Returns those of these frames that are stored."""
    cursor = await connection.execute(
        "SELECT frame_id, version, outcome, reason FROM frames WHERE context_id = %s AND frame_id = ANY(%s)",
        (context_id, list(frame_ids)),
    )
    return {row[0]: StoredFrame(*row[1:]) for row in await cursor.fetchall()}


async def message_ids_of(connection: Connection, context_id: str, version: int) -> Sequence[str]:
    """Returns the ids that a client gave the messages which it said by the frame at this version."""
    cursor = await connection.execute(
        "SELECT payload::text FROM frames WHERE context_id = %s AND version = %s", (context_id, version)
    )
    row = await cursor.fetchone()
    metadata = loads(row[0]).get("metadata") if row is not None and row[0] is not None else None
    about = metadata.get(CLIENT) if isinstance(metadata, dict) else None
    ids = about.get("message_ids") if isinstance(about, dict) else None
    return [one for one in ids if isinstance(one, str)] if isinstance(ids, list) else []


async def last_asked(connection: Connection, context_id: str) -> AskedRun | None:
    """Returns where a conversation was asked for something last; None if there is no such conversation. It reads the
    frames backwards."""
    cursor = await connection.execute(_LAST_ASKED, {"id": context_id, "client": f'%"{CLIENT}"%'})
    row = await cursor.fetchone()
    if row is None:
        return None
    newest, version, kind, payload, run_id, is_mirror = row
    if version is None:
        return AskedRun(newest, run_id or f"run-{newest}", is_mirror=is_mirror)
    metadata = loads(payload).get("metadata")
    about = metadata.get(CLIENT) if isinstance(metadata, dict) else None
    named = about.get("run_id") if isinstance(about, dict) else None
    name = named if isinstance(named, str) else run_id or f"run-{version}"
    is_answer = kind in ("FunctionCallResultFrame", "FunctionCallCancelFrame")
    return AskedRun(version, name, is_answer, is_mirror)


_LAST_ASKED = """
    SELECT
        head.version, asked.version, asked.type, asked.payload,
        (SELECT run_id FROM runs WHERE context_id = head.context_id ORDER BY requested_version DESC LIMIT 1),
        setting_at(head.context_id, 'mirror', head.version) #>> '{}' IS NOT NULL
    FROM contexts AS head
    LEFT JOIN LATERAL (
        SELECT version, type, payload::text AS payload
        FROM frames
        WHERE context_id = head.context_id AND outcome = 'applied'
            AND (
                type IN (
                    'LLMMessagesAppendFrame', 'LLMMessagesUpdateFrame', 'LLMRunFrame', 'LLMContextFrame',
                    'TranscriptionFrame', 'UserStoppedSpeakingFrame'
                )
                OR type IN ('FunctionCallResultFrame', 'FunctionCallCancelFrame')
                    AND payload::text LIKE %(client)s
            )
        ORDER BY version DESC
        LIMIT 1
    ) AS asked ON true
    WHERE head.context_id = %(id)s
"""
