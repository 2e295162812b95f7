"""Putting back: frames that the log lost and the tables have are published again.

Each copy has the id that is stored, so it is counted as a repetition and changes nothing; the log has again what the
tables were folded from. What was no frame is not put back: it is kept where it is.

A copy may be larger than its original, which may have been as large as the topic takes. It is put back with fewer
headers then. If the topic takes none, the others are put back without it, and its partition is not noted as done:
once the topic takes more, whoever recovers next puts it back, behind what came after it.

If the process dies in between, the receipts still say that all of it is to be put back, and whoever recovers next does
that: what was on Kafka already is there twice then, under one id. If it dies after the last copy and before that is
noted, the same.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from psycopg import AsyncConnection

from frameledger_services import failpoints
from frameledger_services.failpoints import Failpoint
from frameledger_services.recovery.copies import Publish, Published, TooLarge, publish_copies
from frameledger_services.recovery.diagnosis import Finding, gaps
from frameledger_services.store import recovery
from frameledger_services.store.recovery import Gap, LostFrame, Receipt

Connection = AsyncConnection[Any]

COPIES_AT_ONCE = 500
BYTES_AT_ONCE = 4 * 1024 * 1024

NAMED = 100
"""How many frames are named that were too large. There may be millions, if the topic was set to take less."""


@dataclass(frozen=True, slots=True)
class Republished:
    """What came of putting back. `left` frames have bytes that this release cannot read, so no projector would.

    Of `too_large` frames the topic takes no copy: they are still to be put back. The first of them are `named`.
    """

    frames: int
    left: int = 0
    too_large: int = 0
    named: tuple[TooLarge, ...] = ()


def gaps_to_fill(receipts: Sequence[Receipt], generation: int, findings: Sequence[Finding]) -> list[Gap]:
    """What would be put back: of partitions that lost their tail now, and of those that were not finished."""
    found = []
    due = _due(receipts)
    for one in findings:
        partition = one.stored.partition
        chain = [receipt for receipt in receipts if receipt.partition == partition]
        if one.happened == "lost_tail":
            found += [Gap(partition, *where) for where in gaps(chain, generation, one.begins_at)]
        elif partition in due and one.happened != "another_log":
            found += _lost_before(receipts, due[partition])
    return found


async def republish(
    connection: Connection,
    topic: str,
    publish: Publish,
    told: Callable[[int], None] = lambda _: None,
    failpoint: Failpoint = failpoints.none,
) -> Republished:
    """Publish what the log lost and was not put back yet; `told` hears how many frames are done.

    Called twice it puts nothing back twice; called again after it died it begins anew, and so it does with partitions
    of which a frame was too large. Raises `PublishError` and `BrokerError`: then the rest is still to be put back.
    """
    receipts = await recovery.receipts(connection, topic)
    due = _due(receipts)
    so_far = _SoFar(dict.fromkeys(due, 0))
    lost_ones = [one for receipt in due.values() for one in _lost_before(receipts, receipt)]
    await failpoint("before putting back")
    async with connection.transaction(), aclosing(recovery.lost_frames(connection, lost_ones)) as rows:
        async for frames in _parts(rows):
            so_far.add(await publish_copies(topic, frames, publish))
            await failpoint("after some were put back")
            told(so_far.frames)
    await failpoint("before noting")
    if done := [one for one in due if one not in so_far.unfinished]:
        await recovery.note_republished(
            connection,
            topic,
            [
                (partition, due[partition].generation, so_far.count[partition], so_far.through.get(partition))
                for partition in done
            ],
        )
    await failpoint("after noting")
    return Republished(so_far.frames, so_far.left, so_far.too_large, tuple(so_far.named))


@dataclass(slots=True)
class _SoFar:
    """What is done by now: of each partition how many frames, and up to which offset of the log."""

    count: dict[int, int]
    through: dict[int, int] = field(default_factory=dict)
    unfinished: set[int] = field(default_factory=set)
    left: int = 0
    too_large: int = 0
    named: list[TooLarge] = field(default_factory=list)

    @property
    def frames(self) -> int:
        return sum(self.count.values())

    def add(self, published: Published) -> None:
        for place in published.places:
            self.count[place.partition] += 1
            self.through[place.partition] = max(self.through.get(place.partition, 0), place.offset)
        self.left += published.left
        self.too_large += len(published.too_large)
        self.unfinished |= {one.partition for one in published.too_large}
        self.named += published.too_large[: NAMED - len(self.named)]


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


def _lost_before(receipts: Sequence[Receipt], began: Receipt) -> list[Gap]:
    """What the log had lost when this generation of a partition began."""
    chain = [one for one in receipts if one.partition == began.partition]
    return [Gap(began.partition, *where) for where in gaps(chain, began.generation - 1, began.begins_at)]


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
