"""Effects are held back while a partition is read up to the end that it had when it was taken over.

What lies there may have been answered further on: after a restart, in a dump of last night, or in all of the log when
the tables are made anew from it. So nothing of it is asked for until that end is reached, and then only what is still
open and nobody has. What was asked for longer ago than `MAX_AGE` is closed by a frame, and its partition is held until
that is folded. A cancel that was held back is dropped: whoever works on something hears with its heartbeat that it is
over.

Until which offset it holds stands in `projections`, so it outlives us. Taking a partition over holds it, in the same
statement, and before a record of it is read the new owner sets until where, or lets go: `log end > next_offset`. It is
taken away in the transaction that writes what is still open into the outbox. If the process dies before that commit,
the next owner finds the partition held, and does it; if it dies after it, the next owner sends what the outbox has.
Meanwhile others leave the work of such a partition alone (`claims.rules.ACTIVE_CONTEXT`, `unpark`,
`store.projections.next_offsets`), and while a partition has no live owner, also what is open by the tables only
(`claims.rules.ACTIVE_OWNED_CONTEXT`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

from psycopg import AsyncConnection

from frameledger.record import Place
from frameledger_services.projector.batches import OwnedPartition, ProjectorFencedError, ProjectorTopics
from frameledger_services.projector.outbox_rows import effect_row
from frameledger_services.projector.rows import Rows
from frameledger_services.projector.stale_work import MAX_AGE, closing_id, closing_row
from frameledger_services.projector.writer import write
from frameledger_services.store import heads as head_statements
from frameledger_services.store import held_effects as statements
from frameledger_services.store.held_effects import OpenCall, OpenRun
from frameledger_services.store.outbox import OutboxRow

Connection = AsyncConnection[Any]
OpenWork = OpenRun | OpenCall

SOURCE = "frameledger/projector"

TOO_LATE_CODE = "asked_too_long_ago"
TOO_LATE_MESSAGE = (
    "This run was asked for more than five minutes before its frame was projected, so it was not begun."
)


async def release(connection: Connection, topics: ProjectorTopics, owned: OwnedPartition) -> list[OutboxRow]:
    """Ask for what is still open in a partition that has come to the end until which its effects are held back.

    Returns what is to be published, which is nothing for a partition that has not come there, or is not held. Raises
    `ProjectorFencedError` if it is somebody else's by now, and psycopg's errors; then nothing was done.
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
        outbox = list(
            _rows(topics, partition, [one for one in old or young if not one.is_sent], is_old=bool(old))
        )
        # Each frame that closes something will be another record of this partition.
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
    """Without that whose closing frame was stored, and closed nothing: it would not another time."""
    ids = {(one.context_id, closing_id(one.effect)): one for one in work}
    stored = await head_statements.recent_ids(connection, list(ids))
    return [one for key, one in ids.items() if key not in stored]


def _rows(
    topics: ProjectorTopics, partition: int, work: Iterable[OpenWork], *, is_old: bool
) -> Iterator[OutboxRow]:
    ordinals: Counter[Place] = Counter()
    for one in work:
        place = Place(topics.frames, partition, one.offset, one.generation)
        ordinal, effect = ordinals[place], one.effect
        ordinals[place] += 1
        if is_old:
            yield closing_row(
                effect, place, ordinal, source=SOURCE, code=TOO_LATE_CODE, message=TOO_LATE_MESSAGE
            )
        else:
            yield effect_row(effect, place, ordinal, topics.effects[effect.effect])
