"""A client's stored request for an answer: when and with which settings it was made, and where its answer ends.

A process that has never seen the request needs no more than this to return its answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from frameledger_services.database_types import Connection
from frameledger_services.store.client_calls import BY_CLIENT
from frameledger_services.store.contexts import loads
from frameledger_services.store.newest_requests import (
    ASKING,
    REQUEST,
    RESULT,
    SPEAKING,
    is_marked,
    newest_marked,
)
from frameledger_services.store.shown_messages import CLIENT

_TYPES = {"asking": list(ASKING), "speaking": list(SPEAKING)}

RESPONSE = "response"
"""The key of the additional values of a request for a response, among the recorded details of a request."""


@dataclass(frozen=True, slots=True)
class AnsweredRequest:
    """A frame by which a client requested an answer, and the end of that answer."""

    version: int
    logged_at: datetime
    noted: Mapping[str, Any]
    """The recorded details of the request, as a request for a response."""

    opened_version: int | None
    """If the frame is the result of a call: the version that announced the call."""

    next_version: int | None
    """The version of the next question; None if there is none yet."""

    until: int | None
    """The version of the first frame after the end of this answer that may concern another answer: the next question,
    or an interruption while nothing is in progress. None if there is none."""

    settings: Mapping[str, Any]
    """The settings of the conversation at the time of the request."""

    tools: Sequence[Mapping[str, Any]]

    @property
    def since(self) -> int:
        """The first version at which calls were announced that the answer may leave to its client."""
        return self.version if self.opened_version is None else self.opened_version


@dataclass(frozen=True, slots=True)
class LatestRequest:
    """The newest frame by which a client requested an answer."""

    noted: Mapping[str, Any]
    """The recorded details of the request, as a request for a response."""

    settings: Mapping[str, Any]
    """The settings of the conversation at the time of the request."""


async def answered_request(
    connection: Connection, context_id: str, version: int, earliest: int = 0
) -> AnsweredRequest | None:
    """Returns the newest request at or before this version and not before `earliest`; None if there is none. Reads the
    conversation's frames backwards, and the frames of the answer up to the next question."""
    about = {"id": context_id, "version": version, "earliest": earliest}
    cursor = await connection.execute(READ, about | _TYPES)
    return _answered(await cursor.fetchone())


async def latest_request(connection: Connection, context_id: str, setting: str) -> LatestRequest | None:
    """Returns the newest request of a conversation that currently has this setting; None if it does not have the
    setting. Reads a few frames, however old the request is."""
    cursor = await connection.execute(LATEST, {"id": context_id, "setting": setting})
    row = await cursor.fetchone()
    return (
        None
        if row is None
        else LatestRequest(_noted(loads(row[0])), _object(loads(row[1]) if row[1] else None))
    )


def _answered(row: tuple[Any, ...] | None) -> AnsweredRequest | None:
    if row is None:
        return None
    request, payload, logged_at, following, until, settings, tools = row
    frame = loads(payload)
    opened = frame.get("opened_version")
    return AnsweredRequest(
        request,
        logged_at,
        _noted(frame),
        opened if isinstance(opened, int) else None,
        following,
        until,
        _object(loads(settings) if settings else None),
        loads(tools) or () if tools else (),
    )


def _noted(frame: Mapping[str, Any]) -> Mapping[str, Any]:
    return _object(_object(_object(frame.get("metadata")).get(REQUEST)).get(RESPONSE))


async def first_beyond(connection: Connection, context_id: str, version: int) -> int | None:
    """Returns `until` of the request at this version."""
    cursor = await connection.execute(
        BEYOND, {"id": context_id, "version": version, "speaking": list(SPEAKING)}
    )
    [(until,)] = await cursor.fetchall()
    return None if until is None else int(until)


def _object(value: Any) -> Mapping[str, Any]:
    """Returns a mapping unchanged, and an empty one for any other value: publishers may write anything."""
    return value if isinstance(value, Mapping) else {}


_ASKS = f"""
    later.type = 'LLMRunFrame'
    OR later.type = ANY (%(speaking)s)
    OR later.type IN (
        'LLMMessagesAppendFrame', 'LLMMessagesUpdateFrame', 'LLMContextFrame', 'FunctionCallCancelFrame'
    ) AND json_text(later.payload, 'run_llm') = 'true'
    OR later.type = 'FunctionCallResultFrame' AND ({is_marked("later", REQUEST, CLIENT)})
"""
"""SQL: whether the frame requests an answer. The result of a service's call does not: it continues one."""

_ENDS = f"({_ASKS}) OR later.type IN ('InterruptionFrame', 'ErrorFrame', 'EndFrame', 'CancelFrame')"
"""SQL: whether the frame requests an answer or ends one."""


def _first(which: str, version: str) -> str:
    """Returns an SQL query for the version of the first such frame after that version that arrived while nothing that
    had been requested since then was in progress.

    An input while something is in progress becomes part of what the model reads next, and so of the same answer. The
    next answer begins with a question that the gateway would have accepted: no run and no service's call was in
    progress, although a call may have been waiting for a person. The frames are read in order until one is found:
    PostgreSQL expects many frames to meet a condition within CASE, and so does not plan a join.
    """
    return f"""(
        SELECT later.version
        FROM frames AS later
        WHERE later.context_id = %(id)s AND later.version > {version} AND later.outcome = 'applied'
            AND CASE WHEN {which} THEN
                NOT EXISTS (
                    SELECT FROM runs
                    WHERE context_id = %(id)s AND requested_version >= {version} AND requested_version < later.version
                        AND status NOT IN ('dropped', 'noted')
                        AND (closed_version IS NULL OR closed_version >= later.version)
                )
                AND NOT EXISTS (
                    SELECT FROM tool_calls
                    WHERE context_id = %(id)s AND requested_version >= {version} AND requested_version < later.version
                        AND (settled_version IS NULL OR settled_version >= later.version)
                        AND synchronous IS NOT FALSE AND waiting_for IS NULL AND NOT {BY_CLIENT}
                )
            END
        ORDER BY later.version
        LIMIT 1
    )"""


BEYOND = f"SELECT {_first(_ENDS, '%(version)s')}"


READ = f"""
    SELECT
        asked.version,
        asked.payload::text,
        asked.logged_at,
        {_first(_ASKS, "asked.version")},
        {_first(_ENDS, "asked.version")},
        setting_at(asked.context_id, 'settings', asked.version)::text,
        setting_at(asked.context_id, 'tools', asked.version)::text
    FROM frames AS asked
    WHERE asked.context_id = %(id)s AND asked.version BETWEEN %(earliest)s AND %(version)s
        AND asked.outcome = 'applied'
        AND CASE asked.type
            WHEN '{RESULT}' THEN {is_marked("asked", REQUEST, CLIENT)}
            ELSE asked.type = ANY (%(asking)s) AND ({is_marked("asked", REQUEST)})
        END
    ORDER BY asked.version DESC
    LIMIT 1
"""

_NEWEST = newest_marked(
    f"""
        CASE type
            WHEN '{RESULT}' THEN {is_marked("marked", REQUEST, CLIENT)}
            ELSE {is_marked("marked", REQUEST)}
        END
    """
)

LATEST = f"""
    SELECT asked.payload::text, setting_at(asked.context_id, 'settings', asked.version)::text
    FROM contexts
    INNER JOIN frames AS asked ON asked.context_id = contexts.context_id AND asked.version = {_NEWEST}
    WHERE contexts.context_id = %(id)s
        AND setting_at(contexts.context_id, 'settings', contexts.version) ->> %(setting)s::text IS NOT NULL
"""
