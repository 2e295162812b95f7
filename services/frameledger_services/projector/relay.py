"""The outbox relay: publishes rows of the outbox, right after the commit that wrote them, and deletes them.

The commit of a row does not wait for the disk, so the relay does before it publishes the row: an effect that may happen
only once has to rest on what a crash of the database does not undo. The batches after it need not wait.

If the process dies before a row is published, or between that and the deletion, the row is still in the outbox, and the
partition's next owner publishes it, perhaps a second time. That does no harm: the id of an effect is derived from its
cause, so it is claimed once; a forwarded copy has the id of its original, so it is folded once. So rows need not be
deleted one by one: those of a short interval are deleted together.

No row waits for a row of another topic, since the order between topics does not matter: a cancellation is not delayed
by earlier effects, and a topic that is missing or forbidden delays only its own rows (`destination`). Nor does a row
wait for another partition that has no leader: the order between keys does not matter, so only the rows of that
partition are kept back (`stalled`). Rows that a broker has acknowledged are not published again, even if others of the
same request failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress

from frameledger_services import logs
from frameledger_services.database_types import Connection
from frameledger_services.failpoints import Failpoint
from frameledger_services.projector.destination import Destination, Send
from frameledger_services.projector.metrics import ProjectorMetrics
from frameledger_services.projector.stalled import PartlySentError
from frameledger_services.store import dead_letters, durability, outbox
from frameledger_services.store.outbox import OutboxPage, OutboxPlace, OutboxRow

DELETE_AFTER_SECONDS = 0.05
DELETE_AT_ROWS = 500
"""Published rows are deleted after this time or at this number, instead of in one transaction per batch."""

_log = logs.get_logger("projector")


class Relay:
    """Publishes rows in the background, those of each key in the order in which they were enqueued, and then deletes
    them.

    Its connection is used for nothing else.
    """

    def __init__(
        self,
        connection: Connection,
        send: Send,
        failpoint: Failpoint,
        metrics: ProjectorMetrics | None = None,
    ) -> None:
        self._connection = connection
        self._metrics = metrics or ProjectorMetrics()
        self._send = send
        self._failpoint = failpoint
        self._destinations: dict[str, Destination] = {}
        self._new: list[Destination] = []
        self._sent: list[OutboxPlace] = []
        self._being_deleted: list[OutboxPlace] = []
        self._sent_since = 0.0
        self._hurry = False
        self._flushes = self._flushed = 0
        """The numbers of the flush that began last and of the one that ended last, from 1."""

        self._flushing = asyncio.Lock()
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def enqueue(self, rows: Collection[OutboxRow]) -> None:
        """Publish the rows that a batch committed. Never blocks."""
        if not rows:
            return
        self._idle.clear()
        for row in rows:
            self._destination(row.to_topic).add(row)
        # Perhaps all rows wait for a leader; `until_drained` does not wait for those.
        self._wake.set()

    def enqueue_pages(self, pages: Iterable[OutboxPage]) -> None:
        """Publish rows that are only in the outbox and not in memory. Never blocks."""
        for page in pages:
            self._idle.clear()
            self._destination(page.to_topic).add_page(page)

    def _destination(self, topic: str) -> Destination:
        destination = self._destinations.get(topic)
        if destination is None:
            destination = self._destinations[topic] = Destination(topic, self._send_some, self._read)
            self._new.append(destination)
            self._wake.set()
        return destination

    async def until_drained(self) -> None:
        """Publish and delete all rows without further delay; return when that is done. Rows that their topic refuses,
        and those of partitions without a leader, stay in the outbox for the next owner."""
        self._hurry = True
        self._wake.set()
        await self._idle.wait()

    async def run(self) -> None:
        """Run until cancelled. Raises psycopg's errors; nothing is lost then."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._until_woken()
                while self._new:
                    destination = self._new.pop()
                    tasks.create_task(destination.run())
                    tasks.create_task(destination.stalled.run())
                if self._sent and self._seconds_until_deletion() <= 0:
                    self._being_deleted, self._sent = self._sent, []
                    await outbox.delete(self._connection, self._being_deleted)
                    self._being_deleted = []
                    await self._failpoint("after removal")
                if not self._sent and all(one.is_idle for one in self._destinations.values()):
                    self._idle.set()

    async def _until_woken(self) -> None:
        """Wait until there is a new destination, or rows are to be deleted."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._seconds_until_deletion() if self._sent else None):
                await self._wake.wait()
        self._wake.clear()

    def _seconds_until_deletion(self) -> float:
        """Returns the seconds until published rows are deleted."""
        if self._hurry or len(self._sent) >= DELETE_AT_ROWS:
            return 0.0
        return self._sent_since + DELETE_AFTER_SECONDS - asyncio.get_running_loop().time()

    async def _send_some(self, rows: Sequence[OutboxRow]) -> None:
        """Publish rows of one topic. Acknowledged rows are deleted a little later, even if this raises
        `PartlySentError`; if we die before that, the next owner publishes them again."""
        try:
            await self._until_on_disk()
            await self._failpoint("before send")
            try:
                too_large = await self._send(rows)
            except PartlySentError as error:
                unsent = {row.place for row in error.unsent}
                await self._settle([row for row in rows if row.place not in unsent], error.too_large)
                raise
            await self._failpoint("after send")
            await self._settle(rows, too_large)
        finally:
            self._wake.set()

    async def _until_on_disk(self) -> None:
        """Return when all rows that were enqueued before this call are on disk. One flush serves all topics that wait
        when it begins."""
        begun = self._flushes
        async with self._flushing:
            if self._flushed <= begun:
                number = self._flushes = self._flushes + 1
                await durability.flush(self._connection)
                self._flushed = number

    async def _settle(self, rows: Sequence[OutboxRow], too_large: Sequence[OutboxRow]) -> None:
        """Schedule these rows, which are acknowledged or too large, for deletion."""
        if too_large:
            await self._keep_as_dead_letters(too_large)
            refused = {one.place for one in too_large}
            self._metrics.sent(row for row in rows if row.place not in refused)
        else:
            self._metrics.sent(rows)
        if not self._sent:
            self._sent_since = asyncio.get_running_loop().time()
        self._sent += (row.place for row in rows)

    def _not_deleted_yet(self) -> set[OutboxPlace]:
        """Returns the rows that need not be sent any more and may not be deleted yet."""
        return {*self._being_deleted, *self._sent}

    async def _read(self, page: OutboxPage) -> list[OutboxRow]:
        """Returns the rows of a page that are still to be sent. Unreadable rows stay in the outbox until somebody
        corrects them; no other row waits for them."""
        before = self._not_deleted_yet()
        found, unreadable = await outbox.read(self._connection, page)
        # The range of a page may include rows of a stalled partition, and these may have been sent while it was read.
        sent = before | self._not_deleted_yet()
        rows = [row for row in found if row.place not in sent]
        # Perhaps none of them is sent now, and `until_drained` waits only for this page.
        self._wake.set()
        for one in unreadable:
            _log.error(
                "projector.unreadable_headers",
                kind=one.kind,
                to=one.to_topic,
                of=one.place[1:],
                reason=one.reason,
            )
        return rows

    async def _keep_as_dead_letters(self, too_large: Sequence[OutboxRow]) -> None:
        """Keep rows that are too large for their topic in `rejected_frames`. They are deleted with the published ones;
        if the process dies before that, the next owner keeps them again, which changes nothing."""
        for row in too_large:
            _log.error(
                "projector.too_large_to_publish",
                kind=row.kind,
                to=row.to_topic,
                of=(row.partition, row.offset),
            )
        await dead_letters.keep_unsendable(self._connection, too_large)
