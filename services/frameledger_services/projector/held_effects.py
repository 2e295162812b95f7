"""Holds effects back while a partition catches up with the end that its log had when it was taken over.

After a restart, after restoring a dump, or when the tables are filled again from the log, a request in these records
may be answered later on the log. So nothing is requested before that end is reached, and then only work that is still
open and unclaimed. Work that was requested longer ago than `MAX_AGE` is closed by a frame, and the partition is held
until that frame is folded. Rows that the former owner left in the outbox are published unchanged. A held cancellation
is dropped: workers learn of it from their heartbeat.

`projections.effects_held_until` has the offset. The statement that takes a partition over holds its effects. Before the
new owner reads a record, it sets the offset to the log's end, or clears it if that is `next_offset`. The transaction
that writes the open work into the outbox also clears it. Work is read and written in pages, so memory does not grow
with the number of open runs and calls.

| the process dies | what the next owner finds |
| --- | --- |
| before the end is reached, or before the transaction | the partition held: it catches up, and releases it |
| between two pages | the same: the transaction wrote nothing |
| after the commit | a partition that is not held, and all of its open work in the outbox, which it publishes |

Until then nothing else touches the work of such a partition (`claims.rules.ACTIVE_CONTEXT`,
`store.projections.next_offsets`, `unpark`, `rebuild`). While it has no live owner, work that is open only according to
the tables is not touched either (`claims.rules.ACTIVE_OWNED_CONTEXT`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from datetime import datetime

from frameledger_services.database_types import Connection
from frameledger_services.projector.ownership import OwnedPartition, ProjectorFencedError, ProjectorTopics
from frameledger_services.projector.rows import Rows
from frameledger_services.projector.stale_work import MAX_AGE, Closing, closing_id, open_work_rows
from frameledger_services.projector.writer import write
from frameledger_services.store import frame_ids
from frameledger_services.store import held_effects as statements
from frameledger_services.store.held_effects import UnclaimedWork
from frameledger_services.store.outbox import OutboxPage, OutboxPages, OutboxRow

TOO_LATE = Closing(
    "frameledger/projector",
    "asked_too_long_ago",
    "This run was asked for more than five minutes before its frame was projected, so it was not begun.",
)


async def release(connection: Connection, topics: ProjectorTopics, owned: OwnedPartition) -> list[OutboxPage]:
    """Request the open work of a partition that has caught up, and stop holding its effects.

    Returns the outbox pages that it wrote: none for a partition that has not caught up, or is not held. Raises
    `ProjectorFencedError` if another projector owns it by now, and psycopg's errors; nothing was changed then.
    """
    if owned.held_until is None or owned.next_offset < owned.held_until:
        return []
    topic, partition, epoch = topics.frames, owned.partition, owned.epoch
    async with connection.transaction():
        now = await statements.reach(connection, topic, partition, epoch, owned.next_offset)
        if now is None:
            raise ProjectorFencedError({partition})
        writing = _Writing(connection, topics, partition)
        closed = await writing.close_old(now - MAX_AGE)
        if not closed:
            await writing.request_young(now - MAX_AGE)
        # Each closing frame becomes another record of this partition.
        until = owned.next_offset + closed if closed else None
        await statements.hold(connection, topic, partition, epoch, until)
    owned.held_until = until
    return list(writing.pages)


class _Writing:
    """Writes open work of a partition into the outbox page by page. Only one page is in memory; of the others, only
    their places."""

    def __init__(self, connection: Connection, topics: ProjectorTopics, partition: int) -> None:
        self._connection = connection
        self._topics = topics
        self._partition = partition
        self._last: OutboxRow | None = None
        self.pages = OutboxPages()

    async def close_old(self, opened_before: datetime) -> int:
        """Write frames that close work requested before this time: the work of one page, and whatever else the last
        frame of that page requested. Returns the number of closing frames that will be on the log, including those that
        are already in the outbox."""
        closed, place = 0, None
        async with aclosing(self._open(opened_before, old=True)) as pages:
            async for page in pages:
                if place is not None:
                    # The outbox identifies a closing frame by the place of the requesting one. Later it could not tell
                    # which of these are closed.
                    page = [one for one in page if _place(one) == place]
                    if not page:
                        break
                if work := await _not_closed(self._connection, page):
                    await self._write(work, TOO_LATE)
                    closed, place = closed + len(work), _place(page[-1])
        return closed

    async def request_young(self, opened_before: datetime) -> None:
        async with aclosing(self._open(opened_before, old=False)) as pages:
            async for page in pages:
                await self._write(page, None)

    def _open(self, opened_before: datetime, *, old: bool) -> AsyncGenerator[list[UnclaimedWork], None]:
        return statements.open_work(
            self._connection, self._topics.frames, self._partition, opened_before, old=old
        )

    async def _write(self, work: Iterable[UnclaimedWork], closing: Closing | None) -> None:
        unsent = (one for one in work if not one.is_sent)
        topics = self._topics
        rows = list(
            open_work_rows(topics.frames, self._partition, topics.effects, unsent, closing, self._last)
        )
        await write(self._connection, Rows(outbox=rows), ())
        for row in rows:
            self._last = row
            self.pages.add(row)


def _place(work: UnclaimedWork) -> tuple[int, int]:
    """Returns the place of the frame that requested this work, within its partition."""
    return work.generation, work.offset


async def _not_closed(connection: Connection, work: Sequence[UnclaimedWork]) -> list[UnclaimedWork]:
    """Returns the work that a frame may close: without work that the outbox requests, and without work that already has
    a stored closing frame, since publishing that again would change nothing."""
    ids = {(one.effect.context_id, closing_id(one.effect)): one for one in work if not one.is_requested}
    stored = await frame_ids.payloads(connection, ids)
    return [one for key, one in ids.items() if key not in stored]
