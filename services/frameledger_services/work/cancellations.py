"""`llm.cancellations`, read by every worker from its end, without a group: the quick way to stop work.

Nothing depends on it: what is missed here a heartbeat says a moment later. A cancellation may also come while its work
is just being claimed, so the newest ones are remembered: whoever begins a job asks.
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
from frameledger_services.work.effect_decoding import NoEffectError, read

REMEMBERED = 10_000
LOOK_MS = 1_000
PAUSE_SECONDS = 1.0
"""Before the topic is looked for again."""

_log = logs.get_logger("worker")


class Cancelled:
    """The newest cancellations: of which run or call, and by which version of its context."""

    def __init__(self) -> None:
        self._newest: OrderedDict[tuple[str, str], int] = OrderedDict()

    def add(self, cancel: Cancel) -> None:
        key = cancel.context_id, cancel.run_id or cancel.tool_call_id or ""
        self._newest[key] = max(cancel.version, self._newest.pop(key, 0))
        if len(self._newest) > REMEMBERED:
            self._newest.popitem(last=False)

    def has(self, context_id: str, subject: str, version: int) -> bool:
        """Whether the work that this version asked for was cancelled. The id of a call may be used again later: a
        cancellation concerns what came before it."""
        return self._newest.get((context_id, subject), 0) > version


async def follow(
    settings: Settings, topic: str, tell: Callable[[Cancel], None], following: asyncio.Event
) -> None:
    """Tell of each cancellation that comes, until cancelled. `following` is set while it would hear of them."""
    said = False
    while True:
        try:
            await _follow(settings, topic, tell, following)
        except transient.BROKER as error:
            if not said or following.is_set():
                said = True
                _log.warning(
                    "worker.cancellations_by_heartbeat_only", topic=topic, reason=transient.reason(error)
                )
        finally:
            following.clear()
        await asyncio.sleep(PAUSE_SECONDS)


async def _follow(
    settings: Settings, topic: str, tell: Callable[[Cancel], None], following: asyncio.Event
) -> None:
    client = consumer(settings, name="frameledger-cancellations")
    try:
        await client.start()
        async with broker.connect(settings) as connection:
            found = await connection.describe([topic])
        if topic not in found:
            raise broker.BrokerError(
                f"There is no topic {topic}: make it with `frameledger topics --create`."
            )
        partitions = [TopicPartition(topic, number) for number in range(found[topic].partitions)]
        client.assign(partitions)
        await client.seek_to_end(*partitions)
        for partition in partitions:
            # The end is looked up now, and not when the first record is asked for.
            await client.position(partition)
        following.set()
        while True:
            received = await client.getmany(timeout_ms=LOOK_MS)
            for some in received.values():
                for one in some:
                    _tell(one, tell)
    finally:
        await closed(client.stop())


def _tell(received: Any, tell: Callable[[Cancel], None]) -> None:
    try:
        cancel = read(Cancel, received.value)
    except NoEffectError as error:
        _log.warning(
            "worker.unreadable_cancellation",
            topic=received.topic,
            offset=received.offset,
            reason=transient.reason(error),
        )
    else:
        tell(cancel)
