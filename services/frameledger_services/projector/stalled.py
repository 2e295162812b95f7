"""Rows of partitions that do not acknowledge, such as one without a leader. They stay in the outbox in order, and no
row of another partition waits for them.

A partition of a topic stalls when a broker does not acknowledge a row for it in time. From then on `destination` leaves
its rows here, as pages of outbox positions, until all of them are sent. A pass over the pages sends each page without
the rows of partitions that stalled again on an earlier page of the pass. So a pass waits for each partition at most
once, does not even read a page that has only such rows, and has one page in memory. The rest of a page is tried in the
next pass.

| the process dies | what the next owner finds |
| --- | --- |
| before a row is acknowledged, or deleted | the row in the outbox, and publishes it, perhaps again (`relay`) |
| between two pages of a pass | all rows that are left, in the order of the outbox |
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from frameledger.errors import TransientError
from frameledger_services import logs, transient
from frameledger_services.event_log.topics import home_partition
from frameledger_services.store.outbox import OutboxPage, OutboxPages, OutboxRow
from frameledger_services.supervision import Backoff
from frameledger_services.transient import EventLogError

_log = logs.get_logger("projector")


class PartlySentError(EventLogError, TransientError):
    """Some outbox rows of one topic were not acknowledged; the others are acknowledged, or too large for the topic.

    `partitions` is the topic's number of partitions if those of `unsent` did not acknowledge in time, and None if the
    topic refuses rows for another reason.

    Remedy: Wait; the projector publishes them again.
    """

    def __init__(
        self,
        sentence: str,
        unsent: Sequence[OutboxRow],
        too_large: Sequence[OutboxRow],
        partitions: int | None,
    ) -> None:
        super().__init__(sentence)
        self.unsent = unsent
        self.too_large = too_large
        self.partitions = partitions


class StalledPartitions:
    """The rows of one topic whose partitions stall. Those of each partition are sent in the order of `add`."""

    def __init__(
        self,
        topic: str,
        send: Callable[[Sequence[OutboxRow]], Awaitable[None]],
        read: Callable[[OutboxPage], Awaitable[list[OutboxRow]]],
    ) -> None:
        self._topic = topic
        self._send = send
        self._read = read
        self._pages = OutboxPages()
        # The partitions of all pages, and possibly others until a pass ends.
        self._stalled: frozenset[int] = frozenset()
        self._wake = asyncio.Event()
        self.partitions = 1
        """The topic's number of partitions, known once the first row is added."""

    def has_partition_of(self, row: OutboxRow) -> bool:
        """Whether the row has to be added here because earlier ones of its partition may be here."""
        return bool(self._stalled) and self._partition(row) in self._stalled

    def add(self, row: OutboxRow) -> None:
        """Send this row after the earlier rows of its partition."""
        page = self._pages.add(row)
        if (partition := self._partition(row)) not in page.partitions:
            page.partitions |= {partition}
            self._stalled |= {partition}
        self._wake.set()

    async def run(self) -> None:
        """Send added rows until cancelled. Raises errors of the database, and bugs."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            backoff = Backoff()
            while self._pages:
                await asyncio.sleep(backoff.next())
                await self._pass()
                self._stalled = frozenset().union(*(page.partitions for page in self._pages))

    async def _pass(self) -> None:
        """Try each row once, unless its partition has not acknowledged an earlier one."""
        again: frozenset[int] = frozenset()
        index = 0
        while index < len(self._pages):
            # Closed even if it is skipped: a row that is added to it now would be sent after later ones.
            page = self._pages.closed(index)
            if not page.partitions <= again:
                again |= await self._send_page(page, again)
            if page.partitions:
                index += 1
            else:
                self._pages.done(index)

    async def _send_page(self, page: OutboxPage, without: frozenset[int]) -> frozenset[int]:
        """Send the rows of a page, except those of the partitions in `without`. Returns the partitions that do not
        acknowledge. The page keeps all partitions that have rows left."""
        # The page's range of places includes rows of partitions that do not stall: `Destination` sends those.
        rows = [row for row in await self._read(page) if self._partition(row) in page.partitions]
        again: frozenset[int] = frozenset()
        if some := [row for row in rows if self._partition(row) not in without]:
            try:
                await self._send(some)
            except transient.BROKER as error:
                if isinstance(error, PartlySentError) and error.partitions is not None:
                    again = frozenset(map(self._partition, error.unsent))
                else:
                    # The topic refuses all rows, or there is no broker.
                    again = self._stalled
                _log.warning(
                    "projector.outbox_held_back",
                    to=self._topic,
                    rows=sum(page.rows for page in self._pages),
                    reason=transient.reason(error),
                )
        page.partitions = frozenset(map(self._partition, rows)) & (without | again)
        return again

    def _partition(self, row: OutboxRow) -> int:
        return home_partition(row.key or b"", self.partitions)
