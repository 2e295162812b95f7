"""The table `topics`: the topics from which the database was filled."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from psycopg.rows import class_row

from frameledger.errors import ConfigurationError
from frameledger_services.database_types import Connection
from frameledger_services.store.projections import PROJECTION
from frameledger_services.store.server import THIS_DATABASE

_FIRST_OWNER = 716023651
"""The key of the advisory lock under which the partitions of a topic that was never read get their owners."""


class TopicChangedError(ConfigurationError):
    """The topic is not the one that this database was filled from, or it has another number of partitions.

    Remedy: Set the database or the topic prefix that belongs to the topic. If the topic was recreated or lost its
    records, run `frameledger recover`.
    """


@dataclass(frozen=True, slots=True)
class StoredTopic:
    """A topic as stored in the database, in its newest generation."""

    generation: int
    partitions: int
    topic_id: UUID | None


async def insert(connection: Connection, topic: str, partitions: int, topic_id: UUID | None) -> None:
    """Store the first generation of a topic. Does nothing if it is stored already."""
    await connection.execute(
        "INSERT INTO topics (topic, partitions, topic_id) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
        (topic, partitions, topic_id),
    )


async def newest(connection: Connection, topic: str) -> StoredTopic | None:
    """Returns the stored topic; None if it is unknown."""
    async with connection.cursor(row_factory=class_row(StoredTopic)) as cursor:
        await cursor.execute(
            "SELECT generation, partitions, topic_id FROM topics WHERE topic = %s ORDER BY generation DESC LIMIT 1",
            (topic,),
        )
        return await cursor.fetchone()


async def refuse_other(connection: Connection, topic: str) -> None:
    """Raise `TopicChangedError` if the database was filled from a topic of another name: conversations, claims and
    timeouts are not distinguished by topic."""
    problem = await other_topic(connection, topic)
    if problem is not None:
        raise TopicChangedError(problem)


async def reserve(connection: Connection, topic: str) -> None:
    """Raise `TopicChangedError` if the database was filled from another topic, or if a connected projector owns
    partitions of one. In the caller's transaction, which then assigns an owner to a partition: until its end, no
    projector of another topic can do so. Does nothing for a topic from which records were already read.

    May wait for other projectors that do the same, as long as the session's `lock_timeout` allows (`LockNotAvailable`).
    If the process dies before the commit, neither its lock nor its ownership remain. If it dies later, before it stored
    a record, it is no longer connected, and the topic does not count.
    """
    cursor = await connection.execute(_IS_FILLED, (PROJECTION, topic))
    if await cursor.fetchone() is not None:
        # Without the lock: nobody waits for a process that is frozen while it holds the lock.
        return
    await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_FIRST_OWNER,))
    # In this order: a session that ended before the first statement has nothing left to commit after the second one's
    # snapshot.
    cursor = await connection.execute(_CONNECTED_OWNER, (PROJECTION, topic))
    owner = await cursor.fetchone()
    if owner is not None:
        raise TopicChangedError(
            f"A connected projector fills this database from the topic {owner[0]} (process {owner[1]} of the "
            f"database), and the topic of these settings is {topic}. Give each topic prefix "
            "(FRAMELEDGER_TOPIC_PREFIX) its own database (FRAMELEDGER_DATABASE_URL); if that projector has the wrong "
            "prefix, stop it first."
        )
    await refuse_other(connection, topic)


_IS_FILLED = (
    "SELECT FROM projections WHERE projection = %s AND topic = %s AND last_offset IS NOT NULL LIMIT 1"
)

# The start of another user's session is not visible.
_CONNECTED_OWNER = f"""
    SELECT p.topic, p.owner_pid FROM projections AS p
    JOIN LATERAL pg_stat_get_activity(p.owner_pid) AS session
        ON coalesce(session.backend_start = p.owner_started_at, true) AND session.datid = {THIS_DATABASE}
    WHERE p.projection = %s AND p.topic <> %s AND p.sealed_at IS NULL AND p.owner_pid IS NOT NULL
    LIMIT 1
"""


async def other_topic(connection: Connection, topic: str) -> str | None:
    """Returns a sentence that names the other topic from which the database was filled; None if there is none.

    A topic that was never read does not count, so that a wrong prefix can be corrected without a new database.
    """
    cursor = await connection.execute(
        """
        SELECT topic FROM projections WHERE projection = %s AND topic <> %s AND last_offset IS NOT NULL
        ORDER BY topic LIMIT 1
        """,
        (PROJECTION, topic),
    )
    row = await cursor.fetchone()
    if row is None:
        return None
    return (
        f"This database was filled from the topic {row[0]}, and the topic of these settings is {topic}. Give each "
        "topic prefix (FRAMELEDGER_TOPIC_PREFIX) its own database (FRAMELEDGER_DATABASE_URL)."
    )
