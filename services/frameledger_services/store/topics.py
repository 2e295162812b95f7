"""The table `topics`: the topics from which the database was filled."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from psycopg.rows import class_row

from frameledger_services.database_types import Connection


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
