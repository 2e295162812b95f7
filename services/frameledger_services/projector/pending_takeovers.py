"""Partitions that are assigned but not taken over yet. Those whose log does not answer wait, without delaying
others."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from frameledger_services import logs, transient

ANSWER_SECONDS = 2.0
ALONE_ANSWER_SECONDS = 15.0
"""How long to wait for the logs of partitions that are to be taken over: while other partitions are owned, which are
not stored meanwhile, and while none is."""

LEADER_AGAIN_SECONDS = 2.0
WAITED_AGAIN_TIMES = 5
"""The delay before the takeover of a partition whose log did not answer is tried again. If that answer was waited for,
the delay is up to this many times the wait, so that the other partitions get most of the time."""

_log = logs.get_logger("projector")


class PendingTakeovers:
    """The partitions, and the time at which each is tried."""

    def __init__(self) -> None:
        self._partitions: set[int] = set()
        self._not_before: dict[int, float] = {}
        """The times at which partitions whose log did not answer are tried again."""

    def __contains__(self, partition: int) -> bool:
        return partition in self._partitions

    def replace(self, partitions: Iterable[int]) -> None:
        """Replace all partitions with these, which are due now."""
        self._partitions = set(partitions)
        self._not_before.clear()

    def add(self, partition: int) -> None:
        self._partitions.add(partition)

    def discard(self, partition: int) -> None:
        """Remove a partition that is taken over or no longer assigned."""
        self._partitions.discard(partition)
        self._not_before.pop(partition, None)

    def due(self) -> list[int]:
        """Returns the partitions that are to be taken over now."""
        now = asyncio.get_running_loop().time()
        return sorted(one for one in self._partitions if self._not_before.get(one, now) <= now)

    @contextmanager
    def postponed_if_away(self, partitions: Sequence[int], failures: list[Exception]) -> Iterator[None]:
        """If the broker does not answer within the block, postpone these partitions and add the error to `failures`."""
        began = asyncio.get_running_loop().time()
        try:
            yield
        except transient.BROKER as error:
            if not (isinstance(error, TimeoutError) or transient.is_retriable(error)):
                raise
            failures.append(error)
            self.postpone(partitions, began, transient.reason(error))

    def postpone(self, partitions: Sequence[int], began: float, reason: str) -> None:
        """Try partitions again later whose logs have not answered since `began`."""
        now = asyncio.get_running_loop().time()
        waited = min((now - began) / ANSWER_SECONDS, 1.0)
        pause = LEADER_AGAIN_SECONDS * (1 + waited * (WAITED_AGAIN_TIMES - 1))
        for partition in partitions:
            if partition not in self._not_before:
                _log.warning("projector.partition_away", partition=partition, reason=reason)
            self._not_before[partition] = now + pause
