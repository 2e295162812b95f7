"""Putting back: frames that the log lost and the tables have are published again.

Each copy names where its original lay and has the id that is stored, so it is counted as a repetition and changes
nothing; the log is again what the tables were folded from. What was no frame is not put back: it is kept where it is.

If the process dies in between, the receipts still say that all of it is to be put back, and whoever recovers next does
that: what was on Kafka already is there twice then, under one id. If it dies after the last copy and before that is
noted, the same.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from psycopg import AsyncConnection

from frameledger.headers import FRAME_ID, TRACEPARENT, headers_for
from frameledger.ids import ContextId
from frameledger.record import DecodeError, Outgoing, Place, Record, forward, read
from frameledger_services.projector.batches import Step, nobody_listens
from frameledger_services.projector.changed_log import Finding, lost
from frameledger_services.projector.folding import frame_uuid
from frameledger_services.store import recovering
from frameledger_services.store.recovering import Lost, LostFrame, Receipt

Connection = AsyncConnection[Any]

COPIES_AT_ONCE = 500
BYTES_AT_ONCE = 4 * 1024 * 1024

Publish = Callable[[Sequence[Outgoing]], Awaitable[list[Place]]]
"""Publishes records to the topic of the frames, in their order; where each lies once the broker has it."""


@dataclass(frozen=True, slots=True)
class PutBack:
    """What came of putting back. `left` frames have bytes that this release cannot read, so no projector would."""

    frames: int
    left: int = 0


def losses(receipts: Sequence[Receipt], generation: int, findings: Sequence[Finding]) -> list[Lost]:
    """What would be put back: of partitions that lost their tail now, and of those that were not finished."""
    found = []
    due = _due(receipts)
    for one in findings:
        partition = one.stored.partition
        chain = [receipt for receipt in receipts if receipt.partition == partition]
        if one.happened == "lost_tail":
            found += [Lost(partition, *where) for where in lost(chain, generation, one.begins_at)]
        elif partition in due and one.happened != "another_log":
            found += _lost_before(receipts, due[partition])
    return found


async def put_back(
    connection: Connection,
    topic: str,
    publish: Publish,
    told: Callable[[int], None] = lambda _: None,
    passing: Step = nobody_listens,
) -> PutBack:
    """Publish what the log lost and was not put back yet; `told` hears how many frames are done.

    Called twice it puts nothing back twice; called again after it died it begins anew. Raises `PublishError` and
    `BrokerError`: then the rest is still to be put back.
    """
    receipts = await recovering.receipts(connection, topic)
    due = _due(receipts)
    done: dict[int, int] = dict.fromkeys(due, 0)
    through: dict[int, int] = {}
    unreadable = 0
    lost_ones = [one for receipt in due.values() for one in _lost_before(receipts, receipt)]
    await passing("before putting back")
    async with connection.transaction(), aclosing(recovering.lost_frames(connection, lost_ones)) as rows:
        async for frames in _parts(rows):
            copies = [copied for one in frames if (copied := copy(topic, one)) is not None]
            unreadable += len(frames) - len(copies)
            for place in await publish(copies):
                done[place.partition] += 1
                through[place.partition] = max(through.get(place.partition, 0), place.offset)
            await passing("after some were put back")
            told(sum(done.values()))
    await passing("before noting")
    if due:
        await recovering.note_put_back(
            connection,
            topic,
            [
                (partition, began.generation, done[partition], through.get(partition))
                for partition, began in due.items()
            ],
        )
    await passing("after noting")
    return PutBack(sum(done.values()), unreadable)


def copy(topic: str, stored: LostFrame) -> Outgoing | None:
    """The record by which a stored frame gets onto the log again: the same bytes, what is known of its headers, and
    one that names where it lay. None for bytes that cannot be read any more.

    Read again it is what is stored: its id, its bytes, its source.
    """
    record = Record(
        topic,
        stored.partition,
        stored.offset,
        stored.context_id.encode(),
        stored.payload,
        generation=stored.generation,
    )
    try:
        frame = read(record).frame
    except DecodeError:
        return None
    # Of the trace its id is stored; that of the span is not.
    trace = None if stored.trace_id is None else f"00-{stored.trace_id}-{stored.frame_id.hex[:16]}-00"
    if stored.source is not None:
        known = headers_for(frame, ContextId(stored.context_id), source=stored.source, traceparent=trace)
    else:
        known = () if trace is None else ((TRACEPARENT, trace.encode()),)
    made = forward(replace(record, headers=known))
    if frame.id is None and frame_uuid(read(record).frame_id) != stored.frame_id:
        # It was itself a copy of a record in another partition.
        return replace(made, headers=(*made.headers, (FRAME_ID, str(stored.frame_id).encode())))
    return made


def _due(receipts: Sequence[Receipt]) -> dict[int, Receipt]:
    """The newest receipt of each partition that says that something is still to be put back."""
    found: dict[int, Receipt] = {}
    for one in sorted(receipts, key=lambda one: one.generation):
        if one.happened == "another_log":
            # Nothing of the log before is missing in this one.
            found.pop(one.partition, None)
        elif one.happened == "lost_tail" and not one.is_put_back:
            found[one.partition] = one
    return found


def _lost_before(receipts: Sequence[Receipt], began: Receipt) -> list[Lost]:
    """What the log had lost when this generation of a partition began."""
    chain = [one for one in receipts if one.partition == began.partition]
    return [Lost(began.partition, *where) for where in lost(chain, began.generation - 1, began.begins_at)]


async def _parts(rows: AsyncIterator[LostFrame]) -> AsyncIterator[list[LostFrame]]:
    """Rows in parts of bounded size."""
    part: list[LostFrame] = []
    size = 0
    async for row in rows:
        part.append(row)
        size += len(row.payload)
        if len(part) >= COPIES_AT_ONCE or size >= BYTES_AT_ONCE:
            yield part
            part, size = [], 0
    if part:
        yield part
