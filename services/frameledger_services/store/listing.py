"""Lists of conversations, a page at a time, the newest first. One statement."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Literal

from psycopg.rows import class_row

from frameledger_services.database_types import Connection
from frameledger_services.store.conversations import literally
from frameledger_services.store.valid_to import FOR_EVER

NEWEST = 1_000
"""Among so many conversations, those that began last, the recently active ones are looked for: an index on what every
batch changes would cost every batch."""

Status = Literal["parked", "ended", "recording", "answering", "calling", "quiet"]


@dataclass(frozen=True, slots=True)
class ListedContext:
    """A conversation in a list."""

    context_id: str
    version: int
    started_at: datetime
    last_at: datetime
    status: Status
    experiment: bool
    message_count: int
    run_count: int
    call_count: int
    open_call_count: int
    interruption_count: int
    input_tokens: int | None
    output_tokens: int | None
    model: str | None
    """Of its newest run."""

    last_words: str | None
    """What the user or the assistant said last, up to 200 characters."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which conversations: those of every condition that is given."""

    prefix: str = ""
    text: str | None = None
    """Its id or a message of its present history contains it, in whatever case."""

    status: Status | None = None
    model: str | None = None
    """A run of it had this model."""

    since: datetime | None = None
    until: datetime | None = None
    """It began within these."""

    experiments: bool = False


async def page(
    connection: Connection,
    selection: Selection,
    limit: int,
    *,
    behind: tuple[datetime, str] | None = None,
    last_active: bool = False,
) -> list[ListedContext]:
    """Returns conversations, those that began last first; `behind` is the beginning and the id of the last one of the
    page before. With `last_active` the last active ones first, among the `NEWEST` that began last."""
    parameters = asdict(selection) | {
        "pattern": None if selection.text is None else f"%{literally(selection.text)}%",
        "limit": limit,
        "behind_at": None if behind is None else behind[0],
        "behind_id": None if behind is None else behind[1],
    }
    async with connection.cursor(row_factory=class_row(ListedContext)) as cursor:
        await cursor.execute(_LAST_ACTIVE if last_active else _NEWEST_FIRST, parameters)
        return await cursor.fetchall()


_STATUS = """CASE
            WHEN head.parked_version IS NOT NULL THEN 'parked'
            WHEN head.ended THEN 'ended'
            WHEN head.recording THEN 'recording'
            WHEN head.open_run_id IS NOT NULL THEN 'answering'
            WHEN head.open_call_count > 0 THEN 'calling'
            ELSE 'quiet'
        END"""

_SELECTED = f"""
        (%(experiments)s OR NOT head.experiment)
        AND starts_with(head.context_id, %(prefix)s)
        AND (%(status)s::text IS NULL OR {_STATUS} = %(status)s)
        AND (%(since)s::timestamptz IS NULL OR head.started_at >= %(since)s)
        AND (%(until)s::timestamptz IS NULL OR head.started_at < %(until)s)
        AND (%(model)s::text IS NULL OR EXISTS (
            SELECT FROM runs WHERE runs.context_id = head.context_id AND runs.model = %(model)s
        ))
        AND (%(pattern)s::text IS NULL OR head.context_id ILIKE %(pattern)s OR EXISTS (
            SELECT FROM messages
            WHERE messages.context_id = head.context_id AND messages.era = head.era
                AND messages.valid_to = {FOR_EVER} AND messages.text ILIKE %(pattern)s
        ))"""

_LISTED = f"""
    SELECT head.context_id, head.version, head.started_at, head.last_at, {_STATUS} AS status, head.experiment,
        head.message_count, head.run_count, head.call_count, head.open_call_count, head.interruption_count,
        used.input_tokens, used.output_tokens, used.model, words.text AS last_words
    FROM selected AS head
    LEFT JOIN LATERAL (
        SELECT sum(runs.input_tokens)::bigint AS input_tokens, sum(runs.output_tokens)::bigint AS output_tokens,
            (array_agg(runs.model ORDER BY runs.requested_version DESC))[1] AS model
        FROM runs
        WHERE runs.context_id = head.context_id
    ) AS used ON true
    LEFT JOIN LATERAL (
        SELECT left(messages.text, 200) AS text
        FROM messages
        WHERE messages.context_id = head.context_id AND messages.era = head.era
            AND messages.valid_to = {FOR_EVER}
            AND messages.role IN ('user', 'assistant') AND messages.text IS NOT NULL
        ORDER BY messages.position DESC
        LIMIT 1
    ) AS words ON true
"""

_NEWEST_FIRST = f"""
    WITH selected AS (
        SELECT * FROM contexts AS head
        WHERE {_SELECTED}
            AND (%(behind_at)s::timestamptz IS NULL OR (head.started_at, head.context_id)
                < (%(behind_at)s::timestamptz, %(behind_id)s::text))
        ORDER BY head.started_at DESC, head.context_id DESC
        LIMIT %(limit)s
    )
    {_LISTED}
    ORDER BY head.started_at DESC, head.context_id DESC
"""

_LAST_ACTIVE = f"""
    WITH newest AS (
        SELECT * FROM contexts AS head
        WHERE starts_with(head.context_id, %(prefix)s) AND (%(experiments)s OR NOT head.experiment)
        ORDER BY head.started_at DESC
        LIMIT {NEWEST}
    ),
    selected AS (
        SELECT * FROM newest AS head
        WHERE {_SELECTED}
        ORDER BY head.last_at DESC, head.context_id
        LIMIT %(limit)s
    )
    {_LISTED}
    ORDER BY head.last_at DESC, head.context_id
"""
