"""What a replay reads: frames in order, the valid attempt of their run, and calls that started with them without a
frame of their own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from frameledger_services.database_types import Connection
from frameledger_services.store import client_calls
from frameledger_services.store.client_calls import BegunCall
from frameledger_services.store.frame_pages import PAGE_BYTES


@dataclass(frozen=True, slots=True)
class WrittenMessage:
    """A message, with the frame that first wrote it."""

    version: int
    """The version of the frame."""

    number: int
    """Its index among the messages that the frame wrote, from 0."""

    position: int
    """Its position in the history."""


@dataclass(frozen=True, slots=True)
class RecordedFrame:
    """A stored frame with its times. `attempt` and `claim` are those of the latest attempt of its run; None if it names
    no known run."""

    version: int
    frame_id: UUID
    type: str
    outcome: str
    logged_at: datetime
    produced_at: datetime | None
    causation_id: UUID | None
    payload: bytes
    attempt: int | None
    claim: str | None
    rewrites: WrittenMessage | None = None
    """The message that it rewrites, if it is a rewrite."""

    keeps: Mapping[str, Any] | None = None
    """A message that it wrote and a client rewrote, if its attempt is not the valid one of the run: that message was
    not retracted with the others."""

    begins: tuple[BegunCall, ...] = ()
    """The calls of a client that started with it, in order: no frame starts them."""


async def frames(
    connection: Connection, context_id: str, after: int, until: int, limit: int
) -> list[RecordedFrame]:
    """Returns the frames of a conversation after a version and up to another one, in order: at most `limit`, and none
    after the frame that brings their payloads above `PAGE_BYTES`. Empty only if there are no more frames."""
    cursor = await connection.execute(_FRAMES, (context_id, after, until, limit, PAGE_BYTES))
    recorded = [
        RecordedFrame(
            *(*frame, None if written is None else WrittenMessage(written, number, position), keeps)
        )
        async for *frame, written, number, position, keeps in cursor
    ]
    if not recorded:
        return []
    begun_calls: defaultdict[int, list[BegunCall]] = defaultdict(list)
    for call in await client_calls.begun(connection, context_id, recorded[0].version, recorded[-1].version):
        begun_calls[call.version].append(call)
    return [
        replace(frame, begins=tuple(begun_calls[frame.version])) if frame.version in begun_calls else frame
        for frame in recorded
    ]


@dataclass(frozen=True, slots=True)
class Opened:
    """The effect of a frame that opens the conversation of copies."""

    logged_at: datetime
    """When that frame was logged."""

    is_recording: bool
    """Whether the conversation is a recording now."""


async def opened(connection: Connection, context_id: str, version: int) -> Opened | None:
    """Returns the effect of the opening frame at this version on a conversation; None if it does not exist, for
    instance after an erasure."""
    cursor = await connection.execute(
        """
        SELECT opening.logged_at, head.recording
        FROM contexts AS head
        JOIN frames AS opening USING (context_id)
        WHERE head.context_id = %s AND opening.version = %s
        """,
        (context_id, version),
    )
    row = await cursor.fetchone()
    return None if row is None else Opened(*row)


# A position is assigned once, and those of one frame are consecutive: after the last one of the earlier frames. A
# payload may have any JSON in its fields, and text that PostgreSQL cannot represent: `json_text` reads it.
_FRAMES = """
    SELECT frames.version, frames.frame_id, frames.type, frames.outcome, frames.logged_at, frames.produced_at,
        frames.causation_id, convert_to(frames.payload::text, 'UTF8') AS payload, runs.attempt, runs.claim,
        written.version AS written_version, written.position - 1 - before.position AS written_number, written.position,
        kept.message
    FROM (
        SELECT *, sum(octet_length(payload::text)) OVER (ORDER BY version) - octet_length(payload::text) AS bytes_before
        FROM (
            SELECT * FROM frames WHERE context_id = %s AND version > %s AND version <= %s ORDER BY version LIMIT %s
        ) AS next
    ) AS frames
    LEFT JOIN runs ON runs.context_id = frames.context_id AND runs.run_id = frames.run_id
    LEFT JOIN LATERAL (
        SELECT messages.era, messages.position, messages.valid_from AS version
        FROM messages
        WHERE frames.type = 'LLMMessageRewriteFrame' AND frames.outcome = 'applied'
            AND messages.context_id = frames.context_id
            AND messages.era = era_at(frames.context_id, frames.version)
            AND messages.position = substring(json_text(frames.payload, 'position') FROM '^[0-9]{1,18}$')::bigint
        ORDER BY messages.valid_from
        LIMIT 1
    ) AS written ON true
    LEFT JOIN LATERAL (
        SELECT coalesce(max(messages.position), 0) AS position
        FROM messages
        WHERE messages.context_id = frames.context_id AND messages.era = written.era
            AND messages.position < written.position AND messages.valid_from < written.version
    ) AS before ON true
    -- Only searched for if the attempt is not the valid one, which is rare.
    LEFT JOIN LATERAL (
        SELECT said.message
        FROM messages AS said
        JOIN frames AS rewriting ON rewriting.context_id = said.context_id AND rewriting.version = said.valid_to
        JOIN messages AS now
            ON now.context_id = said.context_id AND now.era = said.era AND now.position = said.position
                AND now.valid_from = said.valid_to
        WHERE frames.outcome = 'applied' AND frames.run_id IS NOT NULL
            AND (
                coalesce(substring(json_text(frames.payload, 'attempt') FROM '^[0-9]{1,18}$')::bigint, 1)
                <> runs.attempt
                OR json_text(frames.payload, 'claim') IS DISTINCT FROM runs.claim
            )
            AND said.context_id = frames.context_id AND said.era = era_at(frames.context_id, frames.version)
            AND said.valid_from = frames.version AND said.run_id = frames.run_id
            AND rewriting.type = 'LLMMessageRewriteFrame'
        LIMIT 1
    ) AS kept ON true
    WHERE frames.bytes_before <= %s
    ORDER BY frames.version
"""
