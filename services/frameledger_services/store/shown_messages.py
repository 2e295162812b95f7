"""The messages of a conversation at a version, with the ids that clients know. One statement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from frameledger_services.database_types import Connection
from frameledger_services.store.contexts import loads

CLIENT = "ag_ui"
"""The key of a frame's `metadata` under which the gateway stores what an AG-UI client sent about itself."""


@dataclass(frozen=True, slots=True)
class ShownMessage:
    """A message of the history."""

    era: int
    position: int
    run_id: str | None
    """The run that generated it, if any."""

    client_id: str | None
    """The id that the client gave it, if a client wrote it."""

    message: Mapping[str, Any]
    """As a model gets it."""


@dataclass(frozen=True, slots=True)
class WrittenMessage:
    """When and where a message was written."""

    version: int
    place: tuple[int, int]
    """Its era and position."""

    role: str | None
    run_id: str | None = None
    """The run that generated it, if any."""

    makes_calls: bool = False


async def written_after(
    connection: Connection, context_id: str, place: tuple[int, int], version: int
) -> list[WrittenMessage]:
    """Returns the messages after a position (era and position) that were written up to a version, in order; including
    those that were later removed or changed."""
    cursor = await connection.execute(
        _WRITTEN, {"id": context_id, "era": place[0], "position": place[1], "version": version}
    )
    return [
        WrittenMessage(valid_from, (era, position), role, run_id, makes_calls)
        for valid_from, era, position, role, run_id, makes_calls in await cursor.fetchall()
    ]


async def shown_messages(connection: Connection, context_id: str, version: int) -> list[ShownMessage]:
    """Returns the messages of a conversation at a version, in order; none if the conversation does not exist."""
    cursor = await connection.execute(_MESSAGES, {"id": context_id, "version": version, "client": CLIENT})
    ids: dict[int, Any] = {}
    shown = []
    for written_at, ordinal, frame_ids, valid_to, era, position, run_id, message in await cursor.fetchall():
        if ordinal == 0:
            ids[written_at] = frame_ids
        if valid_to > version:
            client_id = _nth(ids[written_at], ordinal)
            shown.append(ShownMessage(era, position, run_id, client_id, loads(message)))
    return shown


def _nth(ids: Any, ordinal: int) -> str | None:
    id_ = ids[ordinal] if isinstance(ids, list) and ordinal < len(ids) else None
    return id_ if isinstance(id_, str) else None


# With the rows of messages that were rewritten since: the ids of a frame are those of all messages that it wrote. They
# are read only with its first message, since a frame may have written thousands. PostgreSQL's operators cannot read
# JSON with an escape that is not valid text; messages of such a frame have no ids.
_MESSAGES = r"""
    SELECT valid_from, ordinal,
        CASE WHEN ordinal <> 0 THEN NULL WHEN payload::text !~ '\\u(0000|[dD][89a-fA-F])'
            THEN payload #> ARRAY['metadata', %(client)s, 'message_ids'] END,
        valid_to, era, position, run_id,
        CASE WHEN valid_to > %(version)s THEN message::text END
    FROM (
        SELECT said.*, frame.payload,
            row_number() OVER (PARTITION BY said.valid_from ORDER BY said.position) - 1 AS ordinal
        FROM messages AS said
        LEFT JOIN frames AS frame
            ON frame.context_id = said.context_id AND frame.version = said.valid_from
            AND frame.type IN ('LLMMessagesAppendFrame', 'LLMMessagesUpdateFrame', 'LLMContextFrame')
        WHERE said.context_id = %(id)s AND said.era = era_at(%(id)s, %(version)s)
            AND said.valid_from <= %(version)s
    ) AS written
    ORDER BY position, valid_from
"""

_WRITTEN = """
    SELECT DISTINCT ON (era, position)
        valid_from, era, position, role, run_id, json_text(message, 'tool_calls') IS NOT NULL
    FROM messages
    WHERE context_id = %(id)s AND (era, position) > (%(era)s, %(position)s) AND valid_from <= %(version)s
    ORDER BY era, position, valid_from
"""
