"""How every consumer of ours is made, and what it hands on: records of `frameledger.record`.

The three names of aiokafka that whoever follows a topic in a group needs are handed on too.
"""

from __future__ import annotations

from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.consumer.fetcher import Fetcher
from aiokafka.errors import KafkaError

from frameledger.record import Record
from frameledger_services import access
from frameledger_services.event_log.failover import with_failover
from frameledger_services.event_log.fetch_protocol import QuickFetch
from frameledger_services.event_log.lenient_records import records
from frameledger_services.event_log.log_rate_limit import rate_limited, rate_limited_connections
from frameledger_services.event_log.rebound import rebound
from frameledger_services.event_log.topics import MAX_DEAD_LETTER_BYTES
from frameledger_services.settings import Settings

__all__ = [
    "ConsumerRebalanceListener",
    "KafkaError",
    "TopicPartition",
    "consumer",
    "to_record",
]

PARTITION_BYTES = 1024 * 1024
"""What one fetch takes of one partition, unless its next batch is larger."""

FETCH_BYTES = 2 * MAX_DEAD_LETTER_BYTES
"""What one fetch takes in all."""

# What a rebalance takes is a few heartbeats; at aiokafka's default of 3 s it is up to three seconds.
HEARTBEAT_MS = 300
SESSION_MS = 10_000


def consumer(
    settings: Settings, *, group: str | None = None, name: str = "frameledger", **options: Any
) -> Any:
    """An `AIOKafkaConsumer`, not started yet, whose topics or partitions the caller chooses.

    It gives only what was committed, keeps no offsets by itself, and never goes elsewhere when the log does not have
    its offset: `getmany` raises `OffsetOutOfRangeError` then. A record of any size arrives: the broker always gives
    at least one batch of the first partition that a fetch names and that has something, and aiokafka names them in
    random order. So a fetch can be small for each partition, and what waits in memory is about a megabyte for each.
    A name of a header that is no UTF-8 comes with replacement characters. `options` are aiokafka's.
    """
    return _Consumer(
        **access.kafka_options(settings),
        **{
            "client_id": name,
            "group_id": group,
            "isolation_level": "read_committed",
            "enable_auto_commit": False,
            "auto_offset_reset": "none",
            "max_partition_fetch_bytes": PARTITION_BYTES,
            "fetch_max_bytes": FETCH_BYTES,
            "heartbeat_interval_ms": HEARTBEAT_MS,
            "session_timeout_ms": SESSION_MS,
            **options,
        },
    )


class _Fetcher(Fetcher):  # type: ignore[misc]  # aiokafka is untyped, so it is Any
    """One that encodes and decodes fetches quickly, and reads every record."""

    _get_actions_per_node = rebound(Fetcher._get_actions_per_node, FetchRequest=QuickFetch)
    _proc_fetch_request = rebound(Fetcher._proc_fetch_request, MemoryRecords=records)


class _Consumer(AIOKafkaConsumer):  # type: ignore[misc]  # as above
    """One whose log lines are ours, and that goes on though a broker is frozen."""

    _start = rebound(AIOKafkaConsumer.start, Fetcher=_Fetcher)

    async def start(self) -> None:
        rate_limited_connections(with_failover(self._client))
        with rate_limited():
            await self._start()


def to_record(received: Any) -> Record:
    """A `ConsumerRecord` of aiokafka as a record of ours."""
    return Record(
        topic=received.topic,
        partition=received.partition,
        offset=received.offset,
        key=received.key,
        value=received.value,
        headers=received.headers,
        timestamp_ms=received.timestamp,
    )
