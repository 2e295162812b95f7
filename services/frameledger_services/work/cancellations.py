"""Reads `llm.cancellations`, the fast way to stop work. Every worker reads it from its end, without a group.

Correctness does not depend on it: a heartbeat reports a missed cancellation a moment later. A cancellation may also
arrive while its work is being claimed, so the newest ones are kept, and checked when a job begins.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from frameledger.effects import Cancel
from frameledger_services import logs, transient
from frameledger_services.event_log import broker
from frameledger_services.event_log.closing import closed
from frameledger_services.event_log.consumer import TopicPartition, consumer
from frameledger_services.settings import Settings
from frameledger_services.work.effect_decoding import NoEffectError, decode_effect

REMEMBERED = 10_000
POLL_MS = 1_000
PAUSE_SECONDS = 1.0
"""Seconds between two attempts to read the topic."""

_log = logs.get_logger("worker")


class Cancelled:
    """The newest cancellations: for each run or call, the version of its context that cancelled it."""

    def __init__(self) -> None:
        self._newest: OrderedDict[tuple[str, str], int] = OrderedDict()

    def add(self, cancel: Cancel) -> None:
        key = cancel.context_id, cancel.run_id or cancel.tool_call_id or ""
        self._newest[key] = max(cancel.version, self._newest.pop(key, 0))
        if len(self._newest) > REMEMBERED:
            self._newest.popitem(last=False)

    def has(self, context_id: str, subject: str, version: int) -> bool:
        """Returns whether the work that this version requested was cancelled. A call's id may be used again later: a
        cancellation applies only to work that was requested before it."""
        return self._newest.get((context_id, subject), 0) > version


async def follow(
    settings: Settings, topic: str, on_cancel: Callable[[Cancel], None], following: asyncio.Event
) -> None:
    """Call `on_cancel` with each cancellation, until this task is cancelled. `following` is set while it reads them."""
    warned = False
    while True:
        try:
            await _follow(settings, topic, on_cancel, following)
        except transient.BROKER as error:
            if not warned or following.is_set():
                warned = True
                _log.warning(
                    "worker.cancellations_by_heartbeat_only", topic=topic, reason=transient.reason(error)
                )
        finally:
            following.clear()
        await asyncio.sleep(PAUSE_SECONDS)


async def _follow(
    settings: Settings, topic: str, on_cancel: Callable[[Cancel], None], following: asyncio.Event
) -> None:
    client = consumer(settings, name="frameledger-cancellations")
    try:
        await client.start()
        async with broker.connect(settings) as connection:
            description = await connection.topic(topic)
        partitions = [TopicPartition(topic, number) for number in range(description.partitions)]
        client.assign(partitions)
        await client.seek_to_end(*partitions)
        for partition in partitions:
            # Requests the end offset now instead of at the first fetch.
            await client.position(partition)
        following.set()
        while True:
            received = await client.getmany(timeout_ms=POLL_MS)
            for records in received.values():
                for record in records:
                    _decode(record, on_cancel)
    finally:
        await closed(client.stop())


def _decode(record: Any, on_cancel: Callable[[Cancel], None]) -> None:
    try:
        cancel = decode_effect(Cancel, record.value)
    except NoEffectError as error:
        _log.warning(
            "worker.unreadable_cancellation",
            topic=record.topic,
            offset=record.offset,
            reason=transient.reason(error),
        )
    else:
        on_cancel(cancel)
