"""Effects from their topic, in a consumer group: returned in order, their offsets committed once they are handled.

Effects that were fetched and not acknowledged are pending. While any are pending, the partitions are paused and polling
continues, so that the member stays in the group. A rebalance drops pending effects: the next owner of their partition,
which may be this member, reads them again.

If the process dies before offsets are committed, the effects are read again, and their claims show which worker has
them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from frameledger import effects
from frameledger.headers import traceparent_of
from frameledger_services import logs, transient
from frameledger_services.event_log import broker
from frameledger_services.event_log.closing import closed
from frameledger_services.event_log.consumer import (
    ConsumerRebalanceListener,
    KafkaError,
    TopicPartition,
    consumer,
    join_group,
)
from frameledger_services.settings import Settings
from frameledger_services.work.effect_decoding import NoEffectError

AT_ONCE = 500
"""Maximum number of pending effects, except those that a rebalance adds."""

QUIET_MS = 500
COMMIT_SECONDS = 5.0
STOP_SECONDS = 5.0
PAUSE_SECONDS = 0.5

E = TypeVar("E", bound=effects.Effect)

_leaving: set[asyncio.Task[None]] = set()
"""Members that are leaving the group. The event loop alone does not keep a reference to a task."""

_log = logs.get_logger("worker")


@dataclass(frozen=True, slots=True)
class _Pending(Generic[E]):
    partition: Any
    offset: int
    effect: E | None
    """None for bytes that are not an effect; they are skipped in order."""

    traceparent: str | None
    """The span in which it was requested, if the record has one."""


class EffectConsumer(ConsumerRebalanceListener, Generic[E]):  # type: ignore[misc]  # aiokafka is untyped, so it is Any
    """One membership in a service's consumer group."""

    def __init__(
        self,
        settings: Settings,
        *,
        topic: str,
        group: str,
        decode: Callable[[bytes | None], E],
        **options: Any,
    ) -> None:
        """`options` are passed to aiokafka's consumer."""
        self._settings = settings
        self._topic = topic
        self._decode = decode
        # A new service begins with the earliest effects. Most of their work has ended; the claim statement skips it.
        self._client = consumer(
            settings, group=group, name=f"frameledger-{group}", auto_offset_reset="earliest", **options
        )
        self._pending: list[_Pending[E]] = []
        self._next: dict[Any, int] = {}
        self._paused = False
        self._ending: asyncio.Task[None] | None = None
        self.assigned = asyncio.Event()
        """Set once the group has assigned partitions, or none."""

    async def start(self, stopping: asyncio.Event) -> bool:
        """Join the group. Returns False without joining if `stopping` was set first.

        Raises `BrokerError` if there is no such topic, and that or `KafkaError` if no broker answers.
        """
        try:
            # aiokafka would search for it for 40 s without naming it, or create it if the brokers allow that.
            async with broker.connect(self._settings) as brokers:
                await brokers.topic(self._topic)
            self._client.subscribe([self._topic], listener=self)
            has_joined = await join_group(self._client, stopping)
        except BaseException:
            await closed(self._client.stop())
            raise
        if not has_joined:
            await self.stop()
        return has_joined

    async def stop(self) -> None:
        """Leave the group, without waiting long for an unreachable broker. A second call does nothing."""
        if self._ending is None:
            self._ending = asyncio.create_task(closed(self._client.stop()))
            _leaving.add(self._ending)
            self._ending.add_done_callback(_leaving.discard)
            # Not cancelled: parts of the client that it has not closed yet would stay open.
            done, _ = await asyncio.wait([self._ending], timeout=STOP_SECONDS)
            for task in done:
                task.result()

    @property
    def pending(self) -> list[E]:
        """The effects that were fetched and not acknowledged, those of each partition in order."""
        return [one.effect for one in self._pending if one.effect is not None]

    def traceparents_of(self, effects: Sequence[E]) -> dict[str, str]:
        """Returns the `traceparent`s of these pending effects, by effect id. Effects without one are omitted."""
        wanted_ids = set(map(id, effects))
        return {
            one.effect.id: one.traceparent
            for one in self._pending
            if one.traceparent is not None and one.effect is not None and id(one.effect) in wanted_ids
        }

    async def fetch(self) -> None:
        """Poll for effects if none is pending. Waits during an outage of the broker, and logs it."""
        if self._pending:
            return
        if self._paused:
            self._client.resume(*self._client.paused())
            self._paused = False
        self._add(await self._poll(QUIET_MS, AT_ONCE))
        self.ack([], 0)

    async def keep_membership(self) -> None:
        """Poll without fetching more, to keep the membership of a worker without a free slot. It does not block."""
        # Including those that a rebalance added, which are not paused yet.
        self._client.pause(*self._client.assignment())
        self._paused = True
        self._add(await self._poll(0, 1))

    def ack(self, effects: list[E], unexamined: int) -> None:
        """Acknowledge effects that `pending` returned, except the last `unexamined`: they are claimed or not ours.
        Effects that were dropped meanwhile are ignored."""
        acknowledged = set(map(id, effects[: len(effects) - unexamined]))
        keep: list[_Pending[E]] = []
        blocked: set[Any] = set()
        for pending in self._pending:
            if pending.partition not in blocked and (
                pending.effect is None or id(pending.effect) in acknowledged
            ):
                self._next[pending.partition] = pending.offset + 1
            else:
                blocked.add(pending.partition)
                keep.append(pending)
        self._pending = keep

    async def commit(self) -> None:
        """Commit the offsets of acknowledged effects. After a failure they are committed the next time: offsets only
        determine how much is read again."""
        due, self._next = self._next, {}
        due = {
            partition: offset for partition, offset in due.items() if partition in self._client.assignment()
        }
        if not due:
            return
        try:
            async with asyncio.timeout(COMMIT_SECONDS):
                await self._client.commit(due)
        except transient.BROKER as error:
            _log.info("worker.offsets_not_committed", topic=self._topic, reason=repr(error))
            self._next = due | self._next

    async def reaches_broker(self) -> bool:
        """Returns whether a broker answers now."""
        try:
            async with asyncio.timeout(COMMIT_SECONDS):
                await self._client.topics()
        except transient.BROKER:
            return False
        return True

    async def on_partitions_revoked(self, revoked: Any) -> None:
        self._pending.clear()
        with suppress(KafkaError):
            await self.commit()
        self._next.clear()

    async def on_partitions_assigned(self, assigned: Any) -> None:
        self._paused = False
        self.assigned.set()

    async def _poll(self, timeout_ms: int, at_most: int) -> list[Any]:
        try:
            received = await self._client.getmany(timeout_ms=timeout_ms, max_records=at_most)
        except KafkaError as error:
            _log.warning("worker.retrying_broker", topic=self._topic, reason=repr(error))
            await asyncio.sleep(PAUSE_SECONDS)
            return []
        return [one for some in received.values() for one in some]

    def _add(self, received: list[Any]) -> None:
        for record in received:
            partition = TopicPartition(record.topic, record.partition)
            try:
                effect = self._decode(record.value)
            except NoEffectError as error:
                effect = None
                _log.warning(
                    "worker.unreadable_effect",
                    topic=record.topic,
                    partition=record.partition,
                    offset=record.offset,
                    reason=str(error),
                )
            traceparent = traceparent_of(dict(record.headers)) if record.headers else None
            self._pending.append(_Pending(partition, record.offset, effect, traceparent))
