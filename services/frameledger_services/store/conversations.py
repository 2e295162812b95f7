"""Lists of conversations: the most recently active ones, those that contain a text, and those whose latest run was
refused."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from psycopg.rows import class_row

from frameledger_services.database_types import Connection
from frameledger_services.store.valid_to import FOR_EVER


@dataclass(frozen=True, slots=True)
class Listed:
    """A conversation in a list. `last_words` is the latest text of the user or the assistant, up to 200 characters."""

    context_id: str
    started_at: datetime
    last_at: datetime
    version: int
    status: str
    last_words: str | None


@dataclass(frozen=True, slots=True)
class Match:
    """A message that contains the text. `current`: whether the context still has it; otherwise it was replaced or
    removed."""

    context_id: str
    version: int
    logged_at: datetime
    who: str | None
    text: str
    current: bool


async def last_active(
    connection: Connection, limit: int, skip: int, *, experiments: bool = False
) -> list[Listed]:
    """Returns conversations ordered by their newest frame, the most recently active first. `experiments` includes
    experiments."""
    async with connection.cursor(row_factory=class_row(Listed)) as cursor:
        await cursor.execute(
            f"""
            SELECT newest.*,
                -- The view has no experiments, and an order of its own: a join would first read all of it.
                coalesce(
                    (SELECT status FROM conversations WHERE conversations.context_id = newest.context_id), 'experiment'
                ) AS status,
                words.text AS last_words
            FROM (
                SELECT context_id, started_at, last_at, version FROM contexts
                WHERE %(experiments)s OR NOT experiment
                ORDER BY last_at DESC, context_id LIMIT %(limit)s OFFSET %(skip)s
            ) AS newest
            LEFT JOIN LATERAL (
                SELECT left(messages.text, 200) AS text
                FROM contexts AS head
                INNER JOIN messages ON messages.context_id = head.context_id AND messages.era = head.era
                WHERE head.context_id = newest.context_id AND messages.valid_to = {FOR_EVER}
                    AND messages.role IN ('user', 'assistant') AND messages.text IS NOT NULL
                ORDER BY messages.position DESC
                LIMIT 1
            ) AS words ON true
            ORDER BY newest.last_at DESC, newest.context_id
            """,
            {"limit": limit, "skip": skip, "experiments": experiments},
        )
        return await cursor.fetchall()


async def search(
    connection: Connection, text: str, limit: int, *, replaced: bool = False, experiments: bool = False
) -> list[Match]:
    """Returns messages that contain the text, in any case, the newest first. Reads every message.

    `replaced` includes messages that their context no longer has, `experiments` those of experiments.
    """
    async with connection.cursor(row_factory=class_row(Match)) as cursor:
        await cursor.execute(
            f"""
            SELECT found.*, frames.logged_at
            FROM (
                SELECT messages.context_id, messages.valid_from AS version, messages.role AS who, messages.text,
                    messages.valid_to = {FOR_EVER} AND messages.era = head.era AS current
                FROM messages
                INNER JOIN contexts AS head ON head.context_id = messages.context_id
                WHERE messages.text ILIKE %(pattern)s AND (%(experiments)s OR NOT head.experiment)
            ) AS found
            INNER JOIN frames ON frames.context_id = found.context_id AND frames.version = found.version
            WHERE found.current OR %(replaced)s
            ORDER BY frames.logged_at DESC, found.context_id, found.version DESC
            LIMIT %(limit)s
            """,
            {
                "pattern": f"%{literally(text)}%",
                "replaced": replaced,
                "limit": limit,
                "experiments": experiments,
            },
        )
        return await cursor.fetchall()


async def refused(connection: Connection) -> list[tuple[str, str | None]]:
    """Returns the conversations whose latest run a provider refused because of their content, and the error.

    The newest come first. Only the newest thousand such runs are read.
    """
    # A later run that was not refused shows that the context was corrected.
    cursor = await connection.execute(
        """
        SELECT refused.context_id, refused.error
        FROM (
            SELECT context_id, requested_version, closed_at, error FROM runs
            WHERE error_code IN ('context_refused', 'unmappable') ORDER BY closed_at DESC LIMIT 1000
        ) AS refused
        WHERE NOT EXISTS (
            SELECT FROM runs AS later
            WHERE later.context_id = refused.context_id AND later.requested_version > refused.requested_version
                AND later.status <> 'dropped'
        )
        ORDER BY refused.closed_at DESC
        """
    )
    return await cursor.fetchall()


def literally(text: str) -> str:
    """Returns the LIKE pattern that matches exactly this text."""
    return text.replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_")
