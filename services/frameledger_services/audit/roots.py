"""Roots on the log: the topic `llm.roots` keeps them forever, outside of the database.

A record's value is the JSON object of `Root.to_json`, a `PublishedRoot`. A user who can write both to the database and
to the topic can publish another root, but cannot take back one that somebody has read.
"""

from __future__ import annotations

import json
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime

from pydantic import ValidationError

from frameledger.published_root import PublishedRoot
from frameledger.record import LogPosition, Outgoing
from frameledger_services.audit import heads
from frameledger_services.audit.heads import Root
from frameledger_services.event_log.producer import Producer
from frameledger_services.event_log.reader import last_records
from frameledger_services.event_log.topics import TopicNames
from frameledger_services.settings import Settings
from frameledger_services.store import leaves

KEY = b"root"
"""The key of every record, so that all are in one partition and in order, however many the topic has."""


@dataclass(frozen=True, slots=True)
class RootTurn:
    """The result of one turn of periodic publishing."""

    published: Root | None
    again_in: float
    """Seconds until the next root is due, by the database's clock."""


async def publish(producer: Producer, settings: Settings, root: Root) -> LogPosition:
    """Publish a root. Returns its place. Raises the errors of `Producer.publish`. A second call publishes it twice."""
    record = Outgoing(KEY, json.dumps(root.to_json()).encode(), ())
    [place] = await producer.publish(TopicNames(settings.topic_prefix).roots, [record])
    return place


async def newest(settings: Settings) -> PublishedRoot | None:
    """Returns the newest published root; None if there is none, or the newest record is not a root. Raises
    `BrokerError`, also if the topic does not exist."""
    topic = TopicNames(settings.topic_prefix).roots
    async with aclosing(last_records(settings, topic, 1)) as records:
        record = await anext(records, None)
    if record is None or record.value is None:
        return None
    try:
        return PublishedRoot.model_validate_json(record.value)
    except ValidationError:
        return None


async def publish_if_due(settings: Settings, producer: Producer, every: float) -> RootTurn:
    """Publish a root if the newest one is older than `every` seconds.

    Several processes may call this: one holds an advisory lock while it reads the newest root and until its own root is
    acknowledged, and the next process finds that root. If a process dies in between, either the root is published, or
    another process publishes it in its next turn.
    """
    async with heads.snapshot(settings, "frameledger timekeeper roots") as connection:
        if not await leaves.try_to_hold_roots(connection):
            return RootTurn(None, every / 2)
        last = await newest(settings)
        now = await leaves.moment(connection)
        if last is not None and (left := every - _distance(last.at, now)) > 0:
            return RootTurn(None, left)
        root = await heads.compute(connection)
        await publish(producer, settings, root)
    return RootTurn(root, every)


def _distance(at: datetime, now: datetime) -> float:
    """Returns the seconds between two times in either order. If the time of a root is in the future, the clock was set
    back since, and the next root does not wait until that time."""
    return abs((now - at).total_seconds())
