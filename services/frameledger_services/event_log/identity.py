"""Whether a topic is still the one that the database was filled from.

A key's partition follows from the number of partitions, and an offset means something only in one life of a topic.
"""

from __future__ import annotations

from typing import Any

from psycopg import AsyncConnection

from frameledger_services.event_log.topics import Found


class TopicChangedError(Exception):
    """The topic is not the one that this database was filled from: nothing may be read from it into this database."""


async def hold(connection: AsyncConnection[Any], found: Found) -> None:
    """Write down what the topic is if that has not been done, and raise `TopicChangedError` if it is another one now.

    In the caller's transaction; two who come first at once write the same. A broker that gives no ids is held to the
    number of partitions only.
    """
    await connection.execute(
        "INSERT INTO topics (topic, partitions, topic_id) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
        (found.name, found.partitions, found.topic_id),
    )
    problem = await difference(connection, found)
    if problem is not None:
        raise TopicChangedError(problem)


async def difference(connection: AsyncConnection[Any], found: Found) -> str | None:
    """How the topic differs from the one that the database was filled from, in sentences; None if it does not."""
    cursor = await connection.execute(
        "SELECT partitions, topic_id FROM topics WHERE topic = %s AND generation = 1", (found.name,)
    )
    row = await cursor.fetchone()
    if row is None:
        return None
    partitions, topic_id = row
    if topic_id is not None and found.topic_id is not None and topic_id != found.topic_id:
        return (
            f"The topic {found.name} was deleted and made again since this database was filled from it (its id was "
            f"{topic_id} and is {found.topic_id}), so the offsets that the database knows mean nothing any more. Use "
            "an empty database for the new topic, or the broker that has the old one."
        )
    if partitions != found.partitions:
        return (
            f"The topic {found.name} had {partitions} partitions when this database was filled from it and has "
            f"{found.partitions} now, so later frames of a conversation would lie in another partition than the "
            "earlier ones, and their order would be lost. Partitions cannot be taken away again: publish to a new "
            "topic (FRAMELEDGER_TOPIC_PREFIX) and fill an empty database from it."
        )
    return None
