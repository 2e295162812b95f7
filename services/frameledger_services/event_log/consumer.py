"""Creates our consumers, and converts their records to values of `frameledger.record`.

The three names of aiokafka that a member of a consumer group needs are exported too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.consumer.fetcher import Fetcher
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.errors import KafkaError

from frameledger.record import Record
from frameledger_services import access
from frameledger_services.event_log.fetch_protocol import QuickFetch
from frameledger_services.event_log.lenient_records import records
from frameledger_services.event_log.log_rate_limit import rate_limited
from frameledger_services.event_log.prepared_client import prepare
from frameledger_services.event_log.rebound import rebound
from frameledger_services.event_log.topics import MAX_DEAD_LETTER_BYTES
from frameledger_services.settings import Settings

__all__ = [
    "ConsumerRebalanceListener",
    "KafkaError",
    "TopicPartition",
    "consumer",
    "join_group",
    "to_record",
]

PARTITION_BYTES = 1024 * 1024
"""max_partition_fetch_bytes. A larger batch arrives alone."""

FETCH_BYTES = 2 * MAX_DEAD_LETTER_BYTES
"""fetch_max_bytes."""

# A rebalance takes a few heartbeats, which at aiokafka's default of 3 s are seconds.
HEARTBEAT_MS = 300
SESSION_MS = 10_000

CANCEL_AGAIN_SECONDS = 0.1


def consumer(
    settings: Settings, *, group: str | None = None, name: str = "frameledger", **options: Any
) -> Any:
    """Returns an `AIOKafkaConsumer` that is not started, whose topics or partitions the caller chooses.

    It reads committed records, commits no offsets on its own, and never resets its offset: `getmany` raises
    `OffsetOutOfRangeError` if the log does not have it. A record of any size arrives: the broker returns at least one
    batch of the first non-empty partition of a fetch, and aiokafka lists partitions in random order. So a fetch can be
    small, and about a megabyte of each partition is kept in memory. A header name that is not UTF-8 has replacement
    characters. `options` are aiokafka's.
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


def _task(routine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Begins in the next turn of the event loop, also in a program with asyncio's eager task factory: aiokafka notes
    what a routine needs after it has created its task."""
    return asyncio.Task(routine, loop=asyncio.get_running_loop())


class _Fetcher(Fetcher):  # type: ignore[misc]  # aiokafka is untyped, so it is Any
    """A consumer that encodes and decodes fetches quickly, and can read every record."""

    _fetch_requests_routine = rebound(Fetcher._fetch_requests_routine, create_task=_task)
    _get_actions_per_node = rebound(Fetcher._get_actions_per_node, FetchRequest=QuickFetch)
    _proc_fetch_request = rebound(Fetcher._proc_fetch_request, MemoryRecords=records)

    async def close(self) -> None:
        # aiokafka awaits the fetches that it cancels. A fetch that pauses after an error of the broker then raises
        # CancelledError, which would count as a cancellation of the closing task, and end its process. The task that
        # starts fetches mistakes its own cancellation for that of a fetch that it awaits, so it is cancelled last.
        while ending := [one for one in (*self._pending_tasks, self._fetch_task) if not one.done()]:
            ending[0].cancel()
            await asyncio.wait(ending[:1], timeout=CANCEL_AGAIN_SECONDS)
        self._pending_tasks.clear()
        await super().close()


class _GroupCoordinator(GroupCoordinator):  # type: ignore[misc]  # as above
    """A member of a group whose routine begins when it is whole."""

    __init__ = rebound(GroupCoordinator.__init__, create_task=_task)


class _Consumer(AIOKafkaConsumer):  # type: ignore[misc]  # as above
    """A consumer that fails over from a frozen broker, and whose log lines are limited and name a quota's delays."""

    _start = rebound(AIOKafkaConsumer.start, Fetcher=_Fetcher, GroupCoordinator=_GroupCoordinator)

    async def start(self) -> None:
        prepare(self._client)
        with rate_limited():
            await self._start()


async def join_group(client: Any, stopping: asyncio.Event) -> bool:
    """Start a consumer that has subscribed. Returns whether it has joined its group: False if `stopping` was set first.
    The caller stops it in any case.

    Until the group has a coordinator, aiokafka repeats its request for one. That may last as long as an outage in which
    brokers answer, but none of them leads the partition of `__consumer_offsets` that has the group.
    """
    if stopping.is_set():
        return False
    starting, stop = asyncio.create_task(client.start()), asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait((starting, stop), return_when=asyncio.FIRST_COMPLETED)
    finally:
        starting.cancel()
        stop.cancel()
        # It has to end before the client is stopped, even if this task is cancelled.
        await asyncio.wait((starting, stop))
    if starting.cancelled():
        return False
    starting.result()
    return True


def to_record(received: Any) -> Record:
    """Returns a `ConsumerRecord` of aiokafka as a record of ours."""
    return Record(
        topic=received.topic,
        partition=received.partition,
        offset=received.offset,
        key=received.key,
        value=received.value,
        headers=received.headers,
        timestamp_ms=received.timestamp,
    )
