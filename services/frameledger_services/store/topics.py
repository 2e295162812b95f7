"""The table `topics`: the topics from which the database was filled."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from psycopg.rows import class_row

from frameledger.errors import ConfigurationError
from frameledger_services.database_types import Connection
from frameledger_services.store.projections import PROJECTION


class TopicChangedError(ConfigurationError):
    """The topic is not the one that this database was filled from, or it has another number of partitions.

    Remedy: Set the database or the topic prefix that belongs to the topic. If the topic was recreated or lost its
    records, run `frameledger recover`.
    """


@dataclass(frozen=True, slots=True)
class StoredTopic:
    """A topic as the database knows it, in its newest generation."""

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
    """Returns what is stored of a topic; None if it is unknown."""
    async with connection.cursor(row_factory=class_row(StoredTopic)) as cursor:
        await cursor.execute(
            "SELECT generation, partitions, topic_id FROM topics WHERE topic = %s ORDER BY generation DESC LIMIT 1",
            (topic,),
        )
        return await cursor.fetchone()


async def refuse_other(connection: Connection, topic: str) -> None:
    """Raise `TopicChangedError` if the database was filled from a topic of another name: conversations, claims and
    timeouts are not told apart by topic."""
    problem = await other_topic(connection, topic)
    if problem is not None:
        raise TopicChangedError(problem)


async def other_topic(connection: Connection, topic: str) -> str | None:
    """Returns from which other topic the database was filled, as text; None if it was not.

    A topic from which nothing was read does not count: whoever corrects a wrong prefix keeps the database.
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
