"""Effects are held back while a partition catches up with the end that it had when it was taken over.

A request in these records may have been answered further on in the log: after a restart, after restoring a dump, or
when the tables are rebuilt from the log. So nothing is requested before that end is reached, and then only work that is
still open and unclaimed. Work that was requested longer ago than `MAX_AGE` is closed by a frame, and the partition is
held until that frame is folded. A held cancellation is dropped: workers learn of it with their heartbeat.

The offset stands in `projections.effects_held_until`. The statement that takes a partition over holds it. Before the
new owner reads a record it sets the offset, which is the log's end, or clears it if that is `next_offset`. The
transaction that writes the open work into the outbox clears it, too. If the process dies before that commit, the next
owner finds the partition held, and releases it; if it dies after it, the next owner publishes what the outbox has.
Meanwhile others do not touch the work of such a partition (`claims.rules.ACTIVE_CONTEXT`,
`store.projections.next_offsets`, `unpark`); and while it has no living owner, they do not touch work that only the
tables call open (`claims.rules.ACTIVE_OWNED_CONTEXT`).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from psycopg import AsyncConnection

from frameledger_services.projector.ownership import OwnedPartition, ProjectorFencedError, ProjectorTopics
from frameledger_services.projector.rows import Rows
from frameledger_services.projector.stale_work import MAX_AGE, Closing, closing_id, open_work_rows
from frameledger_services.projector.writer import write
from frameledger_services.store import frame_ids
from frameledger_services.store import held_effects as statements
from frameledger_services.store.held_effects import OpenCall, OpenRun
from frameledger_services.store.outbox import OutboxRow

Connection = AsyncConnection[Any]
OpenWork = OpenRun | OpenCall

TOO_LATE = Closing(
    "frameledger/projector",
    "asked_too_long_ago",
    "This run was asked for more than five minutes before its frame was projected, so it was not begun.",
)


async def release(connection: Connection, topics: ProjectorTopics, owned: OwnedPartition) -> list[OutboxRow]:
    """Request the open work of a partition that has caught up, and stop holding its effects.

    Returns the rows of the outbox: none for a partition that has not caught up, or is not held. Raises
    `ProjectorFencedError` if another projector owns it by now, and psycopg's errors; then nothing was done.
    """
    if owned.held_until is None or owned.next_offset < owned.held_until:
        return []
    topic, partition, epoch = topics.frames, owned.partition, owned.epoch
    async with connection.transaction():
        now = await statements.reach(connection, topic, partition, epoch, owned.next_offset)
        if now is None:
            raise ProjectorFencedError({partition})
        old = await _not_closed(connection, await _open(connection, topic, partition, now, old=True))
        young = [] if old else await _open(connection, topic, partition, now, old=False)
        unsent = [one for one in old or young if not one.is_sent]
        outbox = list(open_work_rows(topic, partition, topics.effects, unsent, TOO_LATE if old else None))
        # Each closing frame will be another record of this partition.
        until = owned.next_offset + len(old) if old else None
        await write(connection, Rows(outbox=outbox), ())
        await statements.hold(connection, topic, partition, epoch, until)
    owned.held_until = until
    return outbox


async def _open(
    connection: Connection, topic: str, partition: int, now: datetime, *, old: bool
) -> list[OpenWork]:
    than = now - MAX_AGE
    return [
        *await statements.open_runs(connection, topic, partition, than, old=old),
        *await statements.open_calls(connection, topic, partition, than, old=old),
    ]


async def _not_closed(connection: Connection, work: Sequence[OpenWork]) -> list[OpenWork]:
    """Returns the work without that whose closing frame is stored already and closed nothing: a second would not
    either."""
    ids = {(one.context_id, closing_id(one.effect)): one for one in work}
    stored = await frame_ids.payloads(connection, ids)
    return [one for key, one in ids.items() if key not in stored]
