"""The frames by which clients request answers: the latest one, those with given ids, and their outcomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from frameledger_services.database_types import Connection
from frameledger_services.store.contexts import loads
from frameledger_services.store.newest_requests import (
    ASKING,
    NEWEST_ASKING,
    REQUEST,
    RESULT,
    SPEAKING,
    is_marked,
    newest_marked,
)
from frameledger_services.store.shown_messages import CLIENT

ANSWERING = ("FunctionCallResultFrame", "FunctionCallCancelFrame")
"""Frames by which clients settle their calls."""


@dataclass(frozen=True, slots=True)
class Question:
    """A frame by which a client requested an answer."""

    version: int
    metadata: Mapping[str, Any]
    answered_version: int | None
    """If the frame is the result of a call: the version that announced the call."""

    newest_run: str | None
    """The status of the newest run of its conversation."""

    is_newest: bool
    """Whether no later frame requests an answer."""


@dataclass(frozen=True, slots=True)
class AskedRun:
    """The run that the latest request of a client requests."""

    version: int
    """The version of the request; the newest version if there was none."""

    run_id: str
    """The client's name for the run, otherwise its id here."""

    is_answer: bool = False
    """Whether the request is the answer of a call, which its events show."""

    is_mirror: bool = False
    """Whether another program keeps the history, so that streamed text and stored messages may differ."""

    by_client: bool = True
    """Whether a client of AG-UI requested it. Otherwise it continues whether or not a client follows it."""


@dataclass(frozen=True, slots=True)
class FrameOutcome:
    """The outcome of a stored frame."""

    version: int
    outcome: str
    reason: str | None


async def asked_by(
    connection: Connection, context_id: str, frame_ids: Sequence[UUID]
) -> tuple[int, Question | None]:
    """Returns the number of stored frames with these ids, and the newest of them that was applied."""
    parameters = {"id": context_id, "frames": list(frame_ids)}
    cursor = await connection.execute(
        "SELECT count(*) FROM frames WHERE context_id = %(id)s AND frame_id = ANY (%(frames)s)", parameters
    )
    [(count,)] = await cursor.fetchall()
    cursor = await connection.execute(
        f"{_QUESTION} AND asked.frame_id = ANY (%(frames)s) ORDER BY asked.version DESC LIMIT 1", parameters
    )
    return int(count), _read(await cursor.fetchone())


async def last_question(connection: Connection, context_id: str) -> Question | None:
    """Returns the latest request for an answer; None if there is none. Reads a few frames, however old the request
    is."""
    cursor = await connection.execute(LAST_QUESTION, {"id": context_id})
    return _read(await cursor.fetchone())


async def last_asked_run(connection: Connection, context_id: str) -> AskedRun | None:
    """Returns the latest request of a conversation; None if the conversation does not exist. Reads the frames after
    the latest message or speech."""
    cursor = await connection.execute(
        LAST_ASKED,
        {
            "id": context_id,
            "client": f'%"{CLIENT}"%',
            "speaking": list(SPEAKING),
            "answering": list(ANSWERING),
        },
    )
    row = await cursor.fetchone()
    if row is None:
        return None
    newest, version, kind, payload, run_id, is_mirror = row
    if version is None:
        return AskedRun(newest, run_id or f"run-{newest}", is_mirror=is_mirror, by_client=False)
    named = _about(payload).get("run_id")
    by_client = isinstance(named, str)
    name = named if isinstance(named, str) else run_id or f"run-{version}"
    return AskedRun(version, name, kind in ANSWERING, is_mirror, by_client)


async def has_another_asked(connection: Connection, context_id: str, version: int) -> bool:
    """Returns whether a run was requested after this version by another request than the one that is stored there. A
    run that the result of a service's call requests belongs to the request before it."""
    cursor = await connection.execute(
        _ANOTHER_ASKED,
        {
            "id": context_id,
            "version": version,
            "asking": [*ASKING, *SPEAKING],
            "answering": list(ANSWERING),
        },
    )
    [(exists,)] = await cursor.fetchall()
    return bool(exists)


async def outcomes_of(
    connection: Connection, context_id: str, frame_ids: Sequence[UUID]
) -> dict[UUID, FrameOutcome]:
    """Returns the outcomes of these frames; those that are not stored are omitted."""
    cursor = await connection.execute(
        "SELECT frame_id, version, outcome, reason FROM frames WHERE context_id = %s AND frame_id = ANY(%s)",
        (context_id, list(frame_ids)),
    )
    return {row[0]: FrameOutcome(*row[1:]) for row in await cursor.fetchall()}


async def message_ids_of(connection: Connection, context_id: str, version: int) -> Sequence[str]:
    """Returns the ids that a client gave the messages of the frame at this version."""
    cursor = await connection.execute(
        "SELECT payload::text FROM frames WHERE context_id = %s AND version = %s", (context_id, version)
    )
    row = await cursor.fetchone()
    ids = _about(row[0]).get("message_ids") if row is not None and row[0] is not None else None
    return [one for one in ids if isinstance(one, str)] if isinstance(ids, list) else []


def _about(payload: str) -> Mapping[str, Any]:
    """Returns the metadata that a client's front end stored in a frame."""
    metadata = loads(payload).get("metadata")
    about = metadata.get(CLIENT) if isinstance(metadata, dict) else None
    return about if isinstance(about, dict) else {}


def _read(row: tuple[Any, ...] | None) -> Question | None:
    if row is None:
        return None
    version, payload, newest_run, is_newest = row
    frame = loads(payload)
    metadata, answered = frame.get("metadata"), frame.get("opened_version")
    return Question(
        version,
        metadata if isinstance(metadata, dict) else {},
        answered if isinstance(answered, int) else None,
        newest_run,
        is_newest,
    )


_NEWEST_RESULT = newest_marked(
    f"type = '{RESULT}' AND ({is_marked('marked', REQUEST)})", after=f"coalesce({NEWEST_ASKING}, 0)"
)
_NEWEST_QUESTION = f"greatest({NEWEST_ASKING}, {_NEWEST_RESULT})"

_QUESTION = f"""
    SELECT
        asked.version,
        asked.payload::text,
        (
            SELECT status FROM runs
            WHERE context_id = asked.context_id AND requested_version >= asked.version
            ORDER BY requested_version DESC
            LIMIT 1
        ),
        coalesce({_NEWEST_QUESTION}, 0) <= asked.version
    FROM frames AS asked
    WHERE asked.context_id = %(id)s AND asked.outcome = 'applied'
"""

LAST_QUESTION = f"{_QUESTION} AND asked.version = {_NEWEST_QUESTION}"


LAST_ASKED = f"""
    SELECT
        head.version, asked.version, asked.type, asked.payload,
        (SELECT run_id FROM runs WHERE context_id = head.context_id ORDER BY requested_version DESC LIMIT 1),
        setting_at(head.context_id, 'mirror', head.version) #>> '{{}}' IS NOT NULL
    FROM contexts AS head
    LEFT JOIN LATERAL (
        SELECT version, type, payload::text AS payload
        FROM frames
        WHERE context_id = head.context_id AND version >= coalesce({NEWEST_ASKING}, 0) AND outcome = 'applied'
            AND (
                version = {NEWEST_ASKING}
                OR type = ANY (%(speaking)s)
                OR type = ANY (%(answering)s) AND payload::text LIKE %(client)s
            )
        ORDER BY version DESC
        LIMIT 1
    ) AS asked ON true
    WHERE head.context_id = %(id)s
"""

_ANOTHER_ASKED = f"""
    SELECT EXISTS (
        SELECT FROM runs
        JOIN frames AS later ON later.context_id = runs.context_id AND later.version = runs.requested_version
        CROSS JOIN LATERAL (SELECT json_text(later.payload, 'metadata')) AS of_later (metadata)
        WHERE runs.context_id = %(id)s AND runs.requested_version > %(version)s
            AND (
                later.type = ANY (%(asking)s)
                OR later.type = ANY (%(answering)s) AND (
                    json_text(of_later.metadata::json, '{REQUEST}') IS NOT NULL
                    OR json_text(of_later.metadata::json, '{CLIENT}') IS NOT NULL
                )
            )
            -- All frames of one request have the same metadata.
            AND of_later.metadata IS DISTINCT FROM (
                SELECT coalesce(json_text(payload, 'metadata'), 'none') FROM frames
                WHERE context_id = %(id)s AND version = %(version)s
            )
    )
"""
