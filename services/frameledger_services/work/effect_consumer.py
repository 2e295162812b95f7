"""Effects off their topic, in a consumer group: handed out in order, committed once they were dealt with.

What was fetched and not dealt with is pending. While something is, the partitions are paused and polling goes on, so
that the group does not take a busy member for a dead one. When the group deals the partitions out anew, what is
pending is dropped: the next owner, maybe this one, reads it again.

If the process dies before the offsets were committed, the effects come again, and their claims say who has them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from frameledger_services import logs, transient
from frameledger_services.event_log.closing import closed
from frameledger_services.event_log.consumer import (
    ConsumerRebalanceListener,
    KafkaError,
    TopicPartition,
    consumer,
)
from frameledger_services.settings import Settings
from frameledger_services.work.effect_decoding import NoEffectError

AT_ONCE = 500
"""How many effects are pending at most, but for what a rebalance brings."""

QUIET_MS = 500
COMMIT_SECONDS = 5.0
STOP_SECONDS = 5.0
PAUSE_SECONDS = 0.5

E = TypeVar("E")

_log = logs.get_logger("worker")


@dataclass(frozen=True, slots=True)
class _Pending(Generic[E]):
    place: Any
    offset: int
    effect: E | None
    """None for bytes that are no effect: they are passed over when their turn comes."""


class EffectConsumer(ConsumerRebalanceListener, Generic[E]):  # type: ignore[misc]  # aiokafka is untyped, so it is Any
    """One membership in the group of a service."""

    def __init__(
        self, settings: Settings, *, topic: str, group: str, read: Callable[[bytes | None], E], **options: Any
    ) -> None:
        """`options` are aiokafka's."""
        self._topic = topic
        self._read = read
        # A new service begins with the earliest effects; most are over, and found so.
        self._client = consumer(
            settings, group=group, name=f"frameledger-{group}", auto_offset_reset="earliest", **options
        )
        self._pending: list[_Pending[E]] = []
        self._next: dict[Any, int] = {}
        self._paused = False
        self.assigned = asyncio.Event()
        """Set once the group has given us partitions, or said that there are none for us."""

    async def start(self) -> None:
        """Join the group. Raises `KafkaError` when no broker answers."""
        self._client.subscribe([self._topic], listener=self)
        try:
            await self._client.start()
        except BaseException:
            await closed(self._client.stop())
            raise

    async def stop(self) -> None:
        """Leave the group. Called twice it does nothing more; a broker that is away is not waited for for long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                await closed(self._client.stop())

    @property
    def pending(self) -> list[E]:
        """What was fetched and not dealt with, each partition in order."""
        return [one.effect for one in self._pending if one.effect is not None]

    async def fetch(self) -> None:
        """Wait a moment for effects, if none is pending. A broker that is away is waited for, and said."""
        if self._pending:
            return
        if self._paused:
            self._client.resume(*self._client.paused())
            self._paused = False
        self._take(await self._poll(QUIET_MS, AT_ONCE))
        self.ack([], 0)

    async def keep_membership(self) -> None:
        """Show the group that we live while there is no room for more. Never blocks for long."""
        # Those that a rebalance brought too, which are not paused.
        self._client.pause(*self._client.assignment())
        self._paused = True
        self._take(await self._poll(0, 1))

    def ack(self, effects: list[E], left: int) -> None:
        """Of what `pending` said all but the last `left` are durable, or nothing for us. What was dropped meanwhile
        is left alone."""
        done = set(map(id, effects[: len(effects) - left]))
        keep: list[_Pending[E]] = []
        waiting: set[Any] = set()
        for one in self._pending:
            if one.place not in waiting and (one.effect is None or id(one.effect) in done):
                self._next[one.place] = one.offset + 1
            else:
                waiting.add(one.place)
                keep.append(one)
        self._pending = keep

    async def commit(self) -> None:
        """Commit what was dealt with. What fails is committed with the next: committing is a convenience, not a
        promise."""
        due, self._next = self._next, {}
        due = {place: offset for place, offset in due.items() if place in self._client.assignment()}
        if not due:
            return
        try:
            async with asyncio.timeout(COMMIT_SECONDS):
                await self._client.commit(due)
        except transient.BROKER as error:
            _log.info("worker.offsets_not_committed", topic=self._topic, reason=repr(error))
            self._next = due | self._next

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
            _log.warning("worker.waiting_for_broker", topic=self._topic, reason=repr(error))
            await asyncio.sleep(PAUSE_SECONDS)
            return []
        return [one for some in received.values() for one in some]

    def _take(self, received: list[Any]) -> None:
        for one in received:
            place = TopicPartition(one.topic, one.partition)
            try:
                effect = self._read(one.value)
            except NoEffectError as error:
                effect = None
                _log.warning(
                    "worker.unreadable_effect",
                    topic=one.topic,
                    partition=one.partition,
                    offset=one.offset,
                    reason=str(error),
                )
            self._pending.append(_Pending(place, one.offset, effect))
