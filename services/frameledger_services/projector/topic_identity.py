"""Checks that a topic is still the one from which the database was filled.

The partition of a key depends on the number of partitions, and offsets are comparable only until a topic is deleted.
"""

from __future__ import annotations

from frameledger_services.database_types import Connection
from frameledger_services.event_log import broker
from frameledger_services.event_log.topics import TopicDescription, unreadable
from frameledger_services.settings import Settings
from frameledger_services.store import topics
from frameledger_services.store.topics import StoredTopic, TopicChangedError


async def describe(settings: Settings, topic: str) -> TopicDescription:
    """Returns the topic's description. Raises `BrokerError` if it does not exist, is compacted, or has timestamps of
    publishers, which may be in any order and out of the database's range."""
    async with broker.connect(settings) as brokers:
        description = await brokers.topic(topic)
    problem = unreadable(description)
    if problem is not None:
        raise broker.BrokerError(problem)
    return description


async def pin(connection: Connection, topic: TopicDescription) -> None:
    """Store the topic's id and number of partitions, unless they are already stored. Raises `TopicChangedError` if they
    differ, or if the database was filled from a topic with another name.

    Runs in the caller's transaction. With a broker without topic ids, only the number of partitions is compared.
    """
    await topics.insert(connection, topic.name, topic.partitions, topic.topic_id)
    problem = await difference(connection, topic)
    if problem is not None:
        raise TopicChangedError(problem)


async def difference(connection: Connection, topic: TopicDescription) -> str | None:
    """Returns a sentence that describes how the topic differs from the one that filled the database, or None if it does
    not differ."""
    other = await topics.other_topic(connection, topic.name)
    if other is not None:
        return other
    before = await topics.newest(connection, topic.name)
    if before is None:
        return None
    if before.partitions != topic.partitions:
        return other_partitions(before, topic)
    if is_same(before, topic) is False:
        return (
            f"The topic {topic.name} was deleted and recreated since this database was filled from it (its id was "
            f"{before.topic_id} and is {topic.topic_id}), so the stored offsets no longer apply. `frameledger "
            "recover --apply` continues with the new one and keeps what is stored; or restore the broker that has "
            "the old one."
        )
    return None


def is_same(before: StoredTopic, topic: TopicDescription) -> bool | None:
    """Returns whether it is the same topic, or None if the broker has no topic ids."""
    if before.topic_id is None or topic.topic_id is None:
        return None
    return before.topic_id == topic.topic_id


def other_partitions(before: StoredTopic, topic: TopicDescription) -> str:
    """Returns the message for a topic with another number of partitions."""
    return (
        f"The topic {topic.name} had {before.partitions} partitions when this database was filled from it and has "
        f"{topic.partitions} now, so later frames of a conversation would be in another partition than the "
        "earlier ones, and their order would be lost. Partitions cannot be removed: publish to a new "
        "topic (FRAMELEDGER_TOPIC_PREFIX) and fill an empty database from it."
    )
