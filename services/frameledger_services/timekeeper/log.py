"""The log, as the timekeeper uses it: it publishes what settles something, and asks where the log ends."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from contextlib import AsyncExitStack

from frameledger.ids import ContextId
from frameledger.record import Outgoing, outgoing
from frameledger_services import logs
from frameledger_services.event_log.log_probe import LogProbe, open_probe
from frameledger_services.event_log.producer import Producer, TooLargeError
from frameledger_services.event_log.topics import TopicNames
from frameledger_services.settings import Settings
from frameledger_services.timekeeper.settling import Settlement

SOURCE = "frameledger/timekeeper"

ANSWERED_WITHIN = 5.0
"""What a broker has for one thing. Longer, and we would seem dead."""

_log = logs.get_logger("timekeeper")


class Log:
    """Publishes, and says where partitions end. Connected when first used."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._producer = Producer(settings, name="frameledger-timekeeper")
        self._stack = AsyncExitStack()
        self._looking: LogProbe | None = None
        self.topic = TopicNames(settings.topic_prefix).frames

    async def __aenter__(self) -> Log:
        await self._stack.enter_async_context(self._producer)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def publish(self, settlements: Sequence[Settlement]) -> None:
        """Publish them, in their order. One that the log does not take is left out, and said: it must not keep the
        others back. A call among these ends at its deadline."""
        records = [(one, record) for one in settlements if (record := _record(one)) is not None]
        if not records:
            return
        try:
            await self._send(*(record for _, record in records))
        except TooLargeError:
            # Which one is not said. Those that were sent already are repetitions now, and count once.
            records = [(one, record) for one, record in records if await self._is_taken(one, record)]
        for one, _ in records:
            _log.info("timekeeper.settled", rule=one.rule, context_id=one.context_id, frame=one.frame.name)

    async def _send(self, *records: Outgoing) -> None:
        await self._producer.publish(self.topic, records, within=ANSWERED_WITHIN)

    async def _is_taken(self, settlement: Settlement, record: Outgoing) -> bool:
        try:
            await self._send(record)
        except TooLargeError as error:
            _cannot_be_settled(settlement, error)
            return False
        return True

    async def ends(self, partitions: Collection[int]) -> dict[int, int]:
        """Where these partitions end now."""
        if not partitions:
            return {}
        async with asyncio.timeout(ANSWERED_WITHIN):
            if self._looking is None:
                self._looking = await self._stack.enter_async_context(open_probe(self._settings, self.topic))
            return await self._looking.ends(partitions)


def _record(settlement: Settlement) -> Outgoing | None:
    try:
        return outgoing(settlement.frame, ContextId(settlement.context_id), source=SOURCE)
    except ValueError as error:
        _cannot_be_settled(settlement, error)
        return None


def _cannot_be_settled(settlement: Settlement, error: Exception) -> None:
    _log.error(
        "timekeeper.settlement_refused",
        rule=settlement.rule,
        context_id=settlement.context_id,
        reason=str(error),
    )
