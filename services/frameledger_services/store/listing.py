"""Lists of conversations, a page at a time, the newest first.

A condition that few conversations may meet is checked for a limited number of them per page. Without that limit a page
with few matches would search all conversations, and a few such pages would occupy every connection of a gateway.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Literal

from psycopg.rows import class_row

from frameledger_services.database_types import Connection
from frameledger_services.store.conversations import literally
from frameledger_services.store.valid_to import FOR_EVER

NEWEST = 1_000
"""The recently active conversations are searched among this number of the newest ones. An index on a column that every
batch changes would slow down every batch."""

SEARCHED = 1_000
"""Number of conversations that are searched for one page with a condition on text or model."""

SEARCHED_BY_STATUS = 5_000
"""The same with a condition on the status, which is in the row of the conversation itself."""

Place = tuple[datetime, str]
"""The position of a conversation in a list: its beginning and its id."""

_BEFORE_ALL = ("-infinity", "")

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
    """The model of its newest run."""

    last_words: str | None
    """The latest words of the user or the assistant, up to 200 characters."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The conditions of a list, all of which have to hold."""

    prefix: str = ""
    text: str | None = None
    """Its id, or a message of its current history, contains this text in any case."""

    status: Status | None = None
    model: str | None = None
    """It has a run of this model."""

    since: datetime | None = None
    until: datetime | None = None
    """It began within these times."""

    experiments: bool = False


@dataclass(frozen=True, slots=True)
class ContextPage:
    """Conversations, and whether there may be more."""

    contexts: list[ListedContext]
    """May have fewer than the limit, or none, although another page follows."""

    last: Place | None
    """The value of `behind` for the next page, or None if there is none."""


async def page(
    connection: Connection,
    selection: Selection,
    limit: int,
    *,
    behind: Place | None = None,
    last_active: bool = False,
) -> ContextPage:
    """Returns conversations, the latest to begin first; `behind` is the `last` of the previous page. With `last_active`
    the most recently active come first, among the `NEWEST` newest, and there is no next page."""
    parameters = asdict(selection) | {
        "pattern": None if selection.text is None else f"%{literally(selection.text)}%",
        "limit": limit + 1,
        "behind_at": None if behind is None else behind[0],
        "behind_id": None if behind is None else behind[1],
    }
    async with connection.cursor(row_factory=class_row(ListedContext)) as cursor:
        if last_active:
            await cursor.execute(_LAST_ACTIVE, parameters)
            return ContextPage((await cursor.fetchall())[:limit], None)
        searched_to: Place | None = None
        is_expensive = selection.text is not None or selection.model is not None
        if is_expensive or selection.status is not None:
            skipped = (SEARCHED if is_expensive else SEARCHED_BY_STATUS) - 1
            # Conversations that begin between the two statements come before all of these.
            last = await connection.execute(_SEARCHED_TO, parameters | {"skipped": skipped})
            searched_to = await last.fetchone()
        to_at, to_id = searched_to or _BEFORE_ALL
        await cursor.execute(_NEWEST_FIRST, parameters | {"to_at": to_at, "to_id": to_id})
        found = await cursor.fetchall()
    if len(found) > limit:
        shown = found[limit - 1]
        return ContextPage(found[:limit], (shown.started_at, shown.context_id))
    return ContextPage(found, searched_to)


_STATUS = """CASE
            WHEN head.parked_version IS NOT NULL THEN 'parked'
            WHEN head.ended THEN 'ended'
            WHEN head.recording THEN 'recording'
            WHEN head.open_run_id IS NOT NULL THEN 'answering'
            WHEN head.open_call_count > 0 THEN 'calling'
            ELSE 'quiet'
        END"""

_IN_RANGE = """
        (%(experiments)s OR NOT head.experiment)
        AND starts_with(head.context_id, %(prefix)s)
        AND (%(since)s::timestamptz IS NULL OR head.started_at >= %(since)s)
        AND (%(until)s::timestamptz IS NULL OR head.started_at < %(until)s)"""

_BEHIND = """
        AND (%(behind_at)s::timestamptz IS NULL OR (head.started_at, head.context_id)
            < (%(behind_at)s::timestamptz, %(behind_id)s::text))"""

# With `OFFSET 0` the rows of each conversation are found by an index. Otherwise the planner would read a whole table,
# because it does not know how few conversations the parameters leave.
_SELECTED = f"""{_IN_RANGE}
        AND (%(status)s::text IS NULL OR {_STATUS} = %(status)s)
        AND (%(model)s::text IS NULL OR EXISTS (
            SELECT FROM runs WHERE runs.context_id = head.context_id AND runs.model = %(model)s OFFSET 0
        ))
        AND (%(pattern)s::text IS NULL OR head.context_id ILIKE %(pattern)s OR EXISTS (
            SELECT FROM messages
            WHERE messages.context_id = head.context_id AND messages.era = head.era
                AND messages.valid_to = {FOR_EVER} AND messages.text ILIKE %(pattern)s
            OFFSET 0
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

_SEARCHED_TO = f"""
    SELECT head.started_at, head.context_id
    FROM contexts AS head
    WHERE {_IN_RANGE}
        {_BEHIND}
    ORDER BY head.started_at DESC, head.context_id DESC
    OFFSET %(skipped)s LIMIT 1
"""

_NEWEST_FIRST = f"""
    WITH selected AS (
        SELECT * FROM contexts AS head
        WHERE {_SELECTED}
        {_BEHIND}
        AND (head.started_at, head.context_id) >= (%(to_at)s::timestamptz, %(to_id)s::text)
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
