"""One topic to which outbox rows are published. Rows that it refuses stay in the outbox, and nothing else waits.

A topic that does not exist, or that we may not write, needs an operator, but stops neither folding nor publishing to
other topics. Rows of a batch are sent from memory. Three kinds of rows are kept as pages of outbox positions, and read
from the outbox when their turn comes: those that were in the outbox before, those that a topic refuses, and those that
are committed faster than the broker acknowledges them. If a partition does not acknowledge rows in time, they and later
rows of that partition are left to `stalled`; those of other partitions are sent.

| the process dies | what the next owner finds |
| --- | --- |
| before a page is read, or sent | its rows in the outbox, and publishes them |
| after a page was sent, before it is deleted | the same, and publishes them again, which changes nothing (`relay`) |
| between two pages | only the rows of the later ones |
| while rows of a partition are kept back | these rows, and publishes them in the same order |
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from frameledger_services import logs, transient
from frameledger_services.projector.stalled import PartlySentError, StalledPartitions
from frameledger_services.store.outbox import PAGE_BYTES, OutboxPage, OutboxPages, OutboxRow
from frameledger_services.supervision import Backoff

Send = Callable[[Sequence[OutboxRow]], Awaitable[list[OutboxRow]]]
"""Publishes rows in order and waits for acknowledgement. Returns the rows that are too large. Raises `PartlySentError`
if the broker acknowledged only some, and the errors in `transient.BROKER` if it accepted none."""

_log = logs.get_logger("projector")


class Destination:
    """Sends the rows of one topic, those of each partition in the order in which they were added.

    If a partition stalls, its unsent rows are handed over to `stalled` in order, and its later rows follow them there
    until `stalled` has none of them left.
    """

    def __init__(
        self,
        topic: str,
        send: Callable[[Sequence[OutboxRow]], Awaitable[None]],
        read: Callable[[OutboxPage], Awaitable[list[OutboxRow]]],
    ) -> None:
        self._topic = topic
        self._send = send
        self._read = read
        self._waiting: list[OutboxRow] = []
        self._waiting_bytes = 0
        # After those that already wait.
        self._pages = OutboxPages()
        self._is_sending = False
        self._is_refused = False
        self._wake = asyncio.Event()
        self.stalled = StalledPartitions(topic, send, read)

    def add(self, row: OutboxRow) -> None:
        """Send this row after the earlier rows of its partition. It stays in memory if there is room."""
        size = row.size
        if not self._pages and self.stalled.has_partition_of(row):
            self.stalled.add(row)
            return
        if self._pages or (self._waiting and self._waiting_bytes + size > PAGE_BYTES):
            self._pages.add(row)
        else:
            self._waiting.append(row)
            self._waiting_bytes += size
        self._wake.set()

    def add_page(self, page: OutboxPage) -> None:
        """Send the rows of this page, each after the earlier rows of its partition."""
        self._pages.append(page)
        self._wake.set()

    @property
    def is_idle(self) -> bool:
        """Whether nothing can be sent now, because there are no rows, or the topic or their partitions refuse them."""
        return not self._is_sending and (self._is_refused or not (self._waiting or self._pages))

    async def run(self) -> None:
        """Send added rows until cancelled. Raises errors of the database, and bugs."""
        backoff = Backoff()
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting or self._pages:
                if self._is_refused:
                    await asyncio.sleep(backoff.next())
                else:
                    backoff.reset()
                await self._send_next()

    async def _send_next(self) -> None:
        """Send the rows in memory, or else the first page. If the topic refuses them, they become the first page, which
        is tried next."""
        if self._waiting:
            rows, self._waiting, self._waiting_bytes = self._waiting, [], 0
            unsent = await self._try(rows)
            if self._is_refused:
                self._requeue(unsent)
            else:
                self._leave_to_stalled(unsent)
        else:
            rows = await self._read(self._pages.first())
            behind = {row.place for row in rows if self.stalled.has_partition_of(row)}
            unsent = await self._try([row for row in rows if row.place not in behind])
            if not self._is_refused:
                late = behind.union(row.place for row in unsent)
                # In order, so that they make few pages.
                self._leave_to_stalled([row for row in rows if row.place in late])
                self._pages.done()

    def _requeue(self, rows: Sequence[OutboxRow]) -> None:
        """Keep refused rows as pages, before those that were added since."""
        pages = OutboxPages()
        for row in (*rows, *self._waiting):
            pages.add(row)
        for page in self._pages:
            pages.append(page)
        self._pages, self._waiting, self._waiting_bytes = pages, [], 0

    def _leave_to_stalled(self, rows: Sequence[OutboxRow]) -> None:
        """Hand over these rows, and the rows in memory after them. Those on later pages follow when their page is
        read."""
        if not rows:
            return
        for row in rows:
            self.stalled.add(row)
        waiting, self._waiting = self._waiting, []
        for row in waiting:
            if self.stalled.has_partition_of(row):
                self.stalled.add(row)
                self._waiting_bytes -= row.size
            else:
                self._waiting.append(row)

    async def _try(self, rows: Sequence[OutboxRow]) -> Sequence[OutboxRow]:
        """Send rows. Returns the unsent ones: `_is_refused` is true if the topic refuses them; otherwise their
        partitions stall."""
        if not rows:
            self._is_refused = False
            return ()
        unsent: Sequence[OutboxRow] = rows
        self._is_sending = True
        try:
            await self._send(rows)
        except transient.BROKER as error:
            self._is_refused = True
            held_back = sum(page.rows for page in self._pages)
            if isinstance(error, PartlySentError):
                unsent = error.unsent
                if error.partitions is not None:
                    self._is_refused, held_back = False, 0
                    self.stalled.partitions = error.partitions
            _log.warning(
                "projector.outbox_held_back",
                to=self._topic,
                rows=held_back or len(unsent),
                reason=transient.reason(error),
            )
            return unsent
        finally:
            self._is_sending = False
        self._is_refused = False
        return ()
