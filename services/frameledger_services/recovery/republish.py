"""Republishing: stored frames that the log lost are published again.

Each copy has the stored id, so it is counted as a duplicate and changes nothing, and the log again has everything that
the tables were folded from. Dead letters are not republished: `rejected_frames` keeps them. If the copies meet an
erasure, or one is an erasure, `since_loss` decides what is omitted, and what is published again after it.

A copy may be larger than its original, which may have had the largest size that the topic accepts. It then gets fewer
headers. If the topic accepts none of its forms, the others are republished without it, and its partition is not
recorded as complete: once the topic accepts more, the next recovery republishes it, after later frames.

If the process dies in between, or before it recorded that it had finished, the next recovery republishes everything:
some copies are then on Kafka twice, under one id.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial

from frameledger.record import LogPosition
from frameledger_services import failpoints
from frameledger_services.database_types import Connection
from frameledger_services.failpoints import Failpoint
from frameledger_services.recovery.copies import (
    Publish,
    Published,
    RepublishedErasure,
    TooLarge,
    publish_copies,
)
from frameledger_services.recovery.diagnosis import PartitionFinding, gaps, generation_at, spans
from frameledger_services.recovery.since_loss import Reads, erased_since, to_publish_again
from frameledger_services.store import lost_frames, recovery
from frameledger_services.store.lost_frames import LostFrame, LostRange
from frameledger_services.store.recovery import RecoveryReceipt, Republication

COPIES_AT_ONCE = 500
BYTES_AT_ONCE = 4 * 1024 * 1024

NAMED = 100
"""The maximum number of listed frames that were too large. There may be millions, if the topic's limit was lowered."""


@dataclass(frozen=True, slots=True)
class Republished:
    """The result of `republish`. `undecodable` frames have bytes that this release cannot decode, nor can a projector.

    `too_large` frames are still to be republished: the topic accepts no copy. The first of them are `named`.
    """

    frames: int
    undecodable: int = 0
    too_large: int = 0
    named: tuple[TooLarge, ...] = ()


def gaps_to_fill(
    receipts: Sequence[RecoveryReceipt], generation: int, findings: Sequence[PartitionFinding]
) -> list[LostRange]:
    """Returns what is to be republished: for partitions that lost their tail now, and for unfinished recoveries."""
    ranges = []
    due = _due(receipts)
    for finding in findings:
        partition = finding.stored.partition
        chain = [receipt for receipt in receipts if receipt.partition == partition]
        if finding.happened == "lost_tail":
            ranges += [LostRange(partition, *where) for where in gaps(chain, generation, finding.begins_at)]
        elif partition in due and finding.happened != "another_log":
            ranges += _lost_before(receipts, due[partition])
    return ranges


async def republish(
    connection: Connection,
    topic: str,
    publish: Publish,
    reads: Reads,
    report: Callable[[int], None] = lambda _: None,
    failpoint: Failpoint = failpoints.none,
) -> Republished:
    """Publish what the log lost and what was not republished yet. `reads` reads the topic. Calls `report` with the
    number of frames so far.

    A second call republishes nothing again, unless the first one died, or for partitions with a frame that was too
    large. Raises `PublishError` and `BrokerError`; the rest is then still to be republished.
    """
    receipts = await recovery.receipts(connection, topic)
    due = _due(receipts)
    progress = _Progress(dict.fromkeys(due, 0))
    gaps_due = [one for receipt in due.values() for one in _lost_before(receipts, receipt)]
    since = {partition: min(gap.since for gap in gaps_due if gap.partition == partition) for partition in due}
    erased: set[str] = set()
    for partition, first in since.items():
        erased |= await erased_since(connection, reads, partition, first)
    await failpoint("before republishing")
    async with connection.transaction(), aclosing(lost_frames.lost_frames(connection, gaps_due)) as rows:
        async for frames in _parts(rows):
            left = [one for one in frames if one.context_id not in erased]
            progress.add(await publish_copies(topic, left, publish))
            await failpoint("after some were republished")
            report(progress.frames)
    for partition, erasures in progress.erasures.items():
        of_it = [one for one in receipts if one.partition == partition]
        generations = spans(of_it, max(one.generation for one in of_it))
        generation = partial(generation_at, generations)
        again = await to_publish_again(reads, partition, since[partition], erasures, generation)
        progress.add_again(await publish(again))
    await failpoint("before noting")
    if republished := [one for one in due if one not in progress.unfinished]:
        await recovery.note_republished(
            connection,
            topic,
            [
                Republication(
                    partition,
                    due[partition].generation,
                    progress.count[partition],
                    progress.through.get(partition),
                )
                for partition in republished
            ],
        )
    await failpoint("after noting")
    return Republished(progress.frames, progress.undecodable, progress.too_large, tuple(progress.named))


@dataclass(slots=True)
class _Progress:
    """Progress: by partition, the number of frames and the highest offset of a copy."""

    count: dict[int, int]
    through: dict[int, int] = field(default_factory=dict)
    unfinished: set[int] = field(default_factory=set)
    erasures: dict[int, list[RepublishedErasure]] = field(default_factory=dict)
    undecodable: int = 0
    too_large: int = 0
    named: list[TooLarge] = field(default_factory=list)

    @property
    def frames(self) -> int:
        return sum(self.count.values())

    def add(self, published: Published) -> None:
        for place in published.places:
            self.count[place.partition] += 1
        self.add_again(published.places)
        for erasure in published.erasures:
            self.erasures.setdefault(erasure.place.partition, []).append(erasure)
        self.undecodable += published.undecodable
        self.too_large += len(published.too_large)
        self.unfinished |= {one.partition for one in published.too_large}
        self.named += published.too_large[: NAMED - len(self.named)]

    def add_again(self, places: Sequence[LogPosition]) -> None:
        for place in places:
            self.through[place.partition] = max(self.through.get(place.partition, 0), place.offset)


def _due(receipts: Sequence[RecoveryReceipt]) -> dict[int, RecoveryReceipt]:
    """Returns the newest receipt of each partition that still has something to republish."""
    newest: dict[int, RecoveryReceipt] = {}
    for receipt in sorted(receipts, key=lambda receipt: receipt.generation):
        if receipt.happened == "another_log":
            # A new log does not lack the frames of the old one.
            newest.pop(receipt.partition, None)
        elif receipt.happened == "lost_tail" and not receipt.is_put_back:
            newest[receipt.partition] = receipt
    return newest


def _lost_before(receipts: Sequence[RecoveryReceipt], began: RecoveryReceipt) -> list[LostRange]:
    """Returns what the log had lost when this generation of a partition began."""
    chain = [one for one in receipts if one.partition == began.partition]
    return [
        LostRange(began.partition, *where) for where in gaps(chain, began.generation - 1, began.begins_at)
    ]


async def _parts(rows: AsyncIterator[LostFrame]) -> AsyncIterator[list[LostFrame]]:
    """Yields rows in lists of bounded size."""
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
