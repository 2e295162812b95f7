"""Reading ahead: what is on the log is fetched and decoded while the batch before is being stored.

Without it aiokafka asks the broker for more only when all that it has was taken from it, so that what comes during a
batch would wait for two. Nothing here is promised to anybody: what was read and not stored is read again by the
partition's next owner.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Any

from frameledger_services.event_log.consumer import NoOffsetForPartitionError, TopicPartition, to_record
from frameledger_services.projector.batches import Owned
from frameledger_services.projector.deadline import deadline
from frameledger_services.projector.folding import Found, decoded

AT_ONCE = 200
"""Records of one look; the decoding of more would keep the batch under way from going on when it is answered."""

AHEAD_BYTES = 8 * 1024 * 1024
"""What may wait here. A look begins only when there is less, and takes what the consumer has: some more megabytes."""

QUIET_MS = 500
"""How long one look takes when there is nothing new; the first record that comes ends it."""


@dataclass(slots=True)
class Look:
    """What was found, and where the partitions stand after it, also behind a transaction's marker."""

    found: list[Found] = field(default_factory=list)
    ends: dict[int, int] = field(default_factory=dict)
    size: int = 0


class Ahead:
    """The looks that were taken and not stored yet, of the partitions that are `owned` while each is taken.

    What lies in a partition that needs care is not decoded here: it may be what kills.
    """

    def __init__(self, client: Any, topic: str, owned: Mapping[int, Owned], careful: Container[int]) -> None:
        self._client = client
        self._topic = topic
        self._owned = owned
        self._careful = careful
        self._looks: deque[Look] = deque()
        self._size = 0
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Look until cancelled. Raises what the consumer raises."""
        while True:
            while self._size >= AHEAD_BYTES:
                self._changed.clear()
                await self._changed.wait()
            await self.look()

    async def look(self) -> None:
        """Take in what there is, or else what comes first within a while."""
        try:
            found = await self._client.getmany(timeout_ms=QUIET_MS, max_records=AT_ONCE)
        except NoOffsetForPartitionError:
            # Said of a partition that was assigned a moment ago; it gets its offset when it is taken over, by the one
            # who may be waiting here.
            self._changed.set()
            return
        # From here on nothing waits: what was found belongs to who owns the partitions now.
        records = [
            to_record(received)
            for place, some in found.items()
            if place.partition in self._owned
            for received in some
        ]
        with deadline():
            read: list[Found] = [
                (one, None) if one.partition in self._careful else decoded(one) for one in records
            ]
        look = Look(read, await self._positions(), sum(len(one.value or b"") for one in records))
        if look.found or look.ends:
            self._looks.append(look)
            self._size += look.size
        self._changed.set()

    async def some(self) -> None:
        """Return when something was read, when a look found nothing, or when this is woken."""
        if not self._looks:
            self._changed.clear()
            await self._changed.wait()

    def take(self, at_most: int) -> Look:
        """All that was read by now, in order, ended by the look that brings it to `at_most` records."""
        taken = Look()
        while self._looks and len(taken.found) < at_most:
            look = self._looks.popleft()
            taken.found += look.found
            taken.ends |= look.ends
            taken.size += look.size
        self._size -= taken.size
        self._changed.set()
        return taken

    def wake(self) -> None:
        """Have who waits for a look go on: there is something else to be done."""
        self._changed.set()

    def forget(self, partition: int) -> None:
        """Drop what was read of a partition: somebody else owns it, or it is read anew."""
        for look in self._looks:
            look.found = [one for one in look.found if one[0].partition != partition]
            look.ends.pop(partition, None)

    async def _positions(self) -> dict[int, int]:
        """Where the consumer stands on the partitions that moved. It knows, so this does not wait."""
        positions = {}
        # Asked for once: it is put together anew each time.
        assigned = self._client.assignment()
        for partition, owned in self._owned.items():
            place = TopicPartition(self._topic, partition)
            if place in assigned:
                position = await self._client.position(place)
                owned.end_offset = self._client.highwater(place) or owned.end_offset
                if position > owned.next_offset:
                    positions[partition] = position
        return positions
