"""The timekeeper's access to the log: publishing settlements, and the end offsets of partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack

from frameledger.ids import ContextId
from frameledger.record import Outgoing, outgoing
from frameledger_services import logs
from frameledger_services.event_log.log_probe import LogProbe, open_probe
from frameledger_services.event_log.producer import Producer
from frameledger_services.event_log.publish_errors import TooLargeError
from frameledger_services.event_log.topics import TopicNames
from frameledger_services.settings import Settings
from frameledger_services.timekeeper.metrics import TimekeeperMetrics
from frameledger_services.timekeeper.settling import Settlement

SOURCE = "frameledger/timekeeper"

TIMEOUT_SECONDS = 5.0
"""Timeout of one request to the brokers. A longer one would delay heartbeats beyond the lease."""

_log = logs.get_logger("timekeeper")


class SettlementLog:
    """Publishes settlements and returns end offsets. Connects when it is first used."""

    def __init__(self, settings: Settings, metrics: TimekeeperMetrics | None = None) -> None:
        self._metrics = metrics or TimekeeperMetrics()
        self._settings = settings
        self._producer = Producer(settings, name="frameledger-timekeeper")
        self._stack = AsyncExitStack()
        self._probes: tuple[LogProbe, LogProbe] | None = None
        self._ends: dict[int, int] = {}
        self.hidden: frozenset[int] = frozenset()
        """The partitions whose newest records an open transaction hid at the last check, and whose readable records
        ended at the same offset as at the check before."""

        self.topic = TopicNames(settings.topic_prefix).frames

    async def __aenter__(self) -> SettlementLog:
        await self._stack.enter_async_context(self._producer)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def publish(self, settlements: Sequence[Settlement]) -> None:
        """Publish them in order. A settlement that the log refuses is logged and skipped, so that it does not block the
        others. If it would settle a call, the call ends at its deadline."""
        records = [(one, record) for one in settlements if (record := _record(one)) is not None]
        if not records:
            return
        try:
            await self._send(*(record for _, record in records))
        except TooLargeError:
            # The error does not name the frame. Frames that were already sent are repetitions now, which count once.
            records = [(one, record) for one, record in records if await self._is_accepted(one, record)]
        self._metrics.settled(one.rule for one, _ in records)
        for settlement, _ in records:
            _log.info(
                "timekeeper.settled",
                rule=settlement.rule,
                context_id=settlement.context_id,
                frame=settlement.frame.name,
            )

    async def _send(self, *records: Outgoing) -> None:
        await self._producer.publish(self.topic, records, within=TIMEOUT_SECONDS)

    async def _is_accepted(self, settlement: Settlement, record: Outgoing) -> bool:
        try:
            await self._send(record)
        except TooLargeError as error:
            _log_refused(settlement, error)
            return False
        return True

    async def ends(self, partitions: Collection[int]) -> dict[int, int]:
        """Returns the end offsets of those of these partitions whose leader answers, and sets `hidden`. Raises an error
        if none answers."""
        if not partitions:
            return {}
        deadline = asyncio.get_running_loop().time() + TIMEOUT_SECONDS
        if self._probes is None:
            async with asyncio.timeout_at(deadline), AsyncExitStack() as opened:
                of_all = await opened.enter_async_context(self._probe(uncommitted=True))
                self._probes = of_all, await opened.enter_async_context(self._probe())
                # Both together: otherwise each check of a slow broker would leave one open.
                self._stack.push_async_callback(opened.pop_all().aclose)
        of_all, of_committed = self._probes
        # First, so that records that are written in between do not count as hidden.
        watermarks = await of_all.ends(partitions, deadline)
        ends = await of_committed.ends(partitions, deadline)
        self.hidden = frozenset(
            one
            for one, end in ends.items()
            if end < watermarks.get(one, end) and end == self._ends.get(one, end)
        )
        self._ends = ends
        return ends

    def _probe(self, *, uncommitted: bool = False) -> AbstractAsyncContextManager[LogProbe]:
        return open_probe(self._settings, self.topic, uncommitted=uncommitted)


def _record(settlement: Settlement) -> Outgoing | None:
    try:
        return outgoing(
            settlement.frame,
            ContextId(settlement.context_id),
            source=SOURCE,
            causation_id=settlement.causation_id,
        )
    except ValueError as error:
        _log_refused(settlement, error)
        return None


def _log_refused(settlement: Settlement, error: Exception) -> None:
    _log.error(
        "timekeeper.settlement_refused",
        rule=settlement.rule,
        context_id=settlement.context_id,
        reason=str(error),
    )
