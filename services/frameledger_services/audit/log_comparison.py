"""Compares stored frames with their records on the log, as far as it still has them, in both directions.

A stored frame must have its record, with the same key, bytes, id, source, cause, trace and time, after the record of
the previous frame. A record must have its frame, unless it is a repetition, was forwarded, is a dead letter, or belongs
to an erased life. Frames whose records have expired, or were in an older generation of the topic, cannot be compared;
they are not differences.

Each partition is read once, in parallel with one statement that reads the tables in the same order, in bounded memory.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from hashlib import sha256

from frameledger.record import LoggedFrame, Record
from frameledger.values import replace
from frameledger_services.audit.differences import ROW, Differences
from frameledger_services.database_types import Connection
from frameledger_services.event_log.log_probe import LogProbe, open_probe
from frameledger_services.event_log.reader import partition_records
from frameledger_services.event_log.topics import TopicNames, home_partition
from frameledger_services.projector import topic_identity
from frameledger_services.projector.batch_fold import is_at_home
from frameledger_services.projector.decoded import decode_record
from frameledger_services.projector.late_frames import may_be_late
from frameledger_services.projector.log_check import LogChangedError
from frameledger_services.projector.row_values import at, clean_or_none
from frameledger_services.recovery.by_partition import ByPartition
from frameledger_services.recovery.diagnosis import NO_END, generation_at, spans
from frameledger_services.settings import Settings
from frameledger_services.store import erasures, logged_frames, projections, recovery, topics
from frameledger_services.store.frame_ids import cause_uuid, frame_uuid
from frameledger_services.store.logged_frames import FrameOnLog
from frameledger_services.store.lost_frames import OffsetRange


@dataclass(slots=True)
class ComparedWithLog:
    """The result of the comparison."""

    frames: int = 0
    """Number of stored frames with equal records."""

    records: int = 0
    """Number of records that were read."""

    differences: dict[str, Differences] = field(default_factory=dict)
    """The differences by conversation; those without one have the key `""`."""

    def of(self, context_id: str) -> Differences:
        """Returns the differences of a conversation, to which callers add."""
        return self.differences.setdefault(context_id, Differences())


async def compare_with_log(
    settings: Settings,
    connection: Connection,
    context_ids: Collection[str] | None,
    progress: Callable[[], object] = lambda: None,
) -> ComparedWithLog:
    """Compare the frames of these conversations, or of all if None, with their records on Kafka.

    Runs in the caller's transaction, which is REPEATABLE READ: concurrent writes of a projector are not differences.
    Calls `progress` for each record. Raises `BrokerError`, TimeoutError, psycopg's errors, and `LogChangedError` if
    this database was filled from another log.
    """
    topic = TopicNames(settings.topic_prefix).frames
    described = await topic_identity.describe(settings, topic)
    problem = await topic_identity.difference(connection, described)
    if problem is not None:
        raise LogChangedError(problem)
    result = ComparedWithLog()
    stored_topic = await topics.newest(connection, topic)
    if stored_topic is None:
        return result
    ids = None if context_ids is None else list(context_ids)
    async with open_probe(settings, topic) as log:
        parts = await _parts(log, connection, topic, stored_topic.generation, ids, described.partitions)
        spans = [span for one in parts for span in one.spans]
        if not spans:
            return result
        async with aclosing(logged_frames.frames(connection, spans, ids)) as rows:
            by_partition = ByPartition(rows)
            for part in parts:
                comparing = _Partition(connection, log, topic, part, described.partitions, ids, result)
                async with (
                    aclosing(by_partition.of(part.partition)) as stored_frames,
                    aclosing(
                        partition_records(settings, topic, part.partition, part.first, part.end)
                    ) as records,
                ):
                    await comparing.run(stored_frames, records, progress)
    return result


@dataclass(frozen=True, slots=True)
class _Part:
    """The compared part of a partition: its offsets, and their generations."""

    partition: int
    first: int
    end: int
    generation: int
    spans: Sequence[OffsetRange]


async def _parts(
    log: LogProbe,
    connection: Connection,
    topic: str,
    generation: int,
    context_ids: Collection[str] | None,
    partitions: int,
) -> list[_Part]:
    receipts = await recovery.receipts(connection, topic)
    chosen_partitions = (
        None if context_ids is None else {home_partition(one.encode(), partitions) for one in context_ids}
    )
    parts = []
    for position in await projections.stored_positions(connection, topic):
        if chosen_partitions is not None and position.partition not in chosen_partitions:
            continue
        first, end = await log.offsets(position.partition)
        end = min(end, position.next_offset)
        if first >= end:
            continue
        of_it = [one for one in receipts if one.partition == position.partition]
        ranges = [
            # Includes frames after the end, which name records that do not exist.
            OffsetRange(position.partition, number, first, below)
            for number, below in spans(of_it, generation)
            if first < below
        ]
        parts.append(_Part(position.partition, first, end, generation, ranges))
    return parts


class _Partition:
    """The comparison of one partition."""

    def __init__(
        self,
        connection: Connection,
        log: LogProbe,
        topic: str,
        part: _Part,
        partitions: int,
        context_ids: Collection[str] | None,
        result: ComparedWithLog,
    ) -> None:
        self._connection = connection
        self._log = log
        self._topic = topic
        self._part = part
        self._partitions = partitions
        self._keys = None if context_ids is None else {one.encode() for one in context_ids}
        self._result = result

    async def run(
        self,
        stored_frames: AsyncIterator[FrameOnLog],
        records: AsyncIterator[Record],
        progress: Callable[[], object],
    ) -> None:
        row = await anext(stored_frames, None)
        async for record in records:
            self._result.records += 1
            progress()
            row = await self._without_records(row, stored_frames, record.offset)
            if row is not None and row.offset == record.offset:
                self._compare(row, record)
                row = await anext(stored_frames, None)
            elif self._keys is None or record.key in self._keys:
                await self._no_row(record)
        await self._without_records(row, stored_frames, NO_END)

    async def _without_records(
        self, row: FrameOnLog | None, rows: AsyncIterator[FrameOnLog], below: int
    ) -> FrameOnLog | None:
        """Report the frames below an offset, from `row` on, as without records, except those whose records may have
        expired since the comparison began. Returns the next frame."""
        first: int | None = None
        while row is not None and row.offset < below:
            if first is None:
                first, _ = await self._log.offsets(row.partition)
            if row.offset >= first:
                self._no_record(row)
            row = await anext(rows, None)
        return row

    def _no_record(self, row: FrameOnLog) -> None:
        place = f"{self._topic}/{row.partition} at {row.offset}"
        self._result.of(row.context_id).add(
            row.version, "log", ROW, f"the frame is stored, from {place}", None
        )

    def _compare(self, row: FrameOnLog, record: Record) -> None:
        differences = Differences()
        _, logged = decode_record(replace(record, generation=row.generation))
        if not isinstance(logged, LoggedFrame):
            differences.add(row.version, "log", "value", "a frame", logged.reason)
        else:
            for name, was, expected in (
                ("context_id", row.context_id, logged.context_id),
                ("payload", row.sha256, sha256(record.value or b"").digest()),
                ("frame_id", row.frame_id, frame_uuid(logged.frame_id)),
                ("source", row.source, clean_or_none(logged.source)),
                ("trace_id", row.trace_id, logged.trace_id),
                (
                    "causation_id",
                    row.causation_id,
                    None if logged.causation_id is None else cause_uuid(logged.causation_id),
                ),
            ):
                if was != expected:
                    differences.add(row.version, "log", name, was, expected)
            logged_at = at(record.timestamp_ms or 0)
            if row.logged_before is not None:
                logged_at = max(logged_at, row.logged_before)
            if row.logged_at != logged_at and row.generation == self._part.generation:
                differences.add(row.version, "log", "logged_at", row.logged_at, logged_at)
        if row.offset_before is not None and row.offset_before >= row.offset:
            differences.add(row.version, "log", "offset", row.offset, f"behind {row.offset_before}")
        if differences.count:
            self._result.of(row.context_id).extend(differences)
        else:
            self._result.frames += 1

    async def _no_row(self, record: Record) -> None:
        """Report a record without a frame, unless that is expected."""
        generation = generation_at(((span.generation, span.end) for span in self._part.spans), record.offset)
        _, logged = decode_record(replace(record, generation=generation))
        if isinstance(logged, LoggedFrame) and not is_at_home(record, self._partitions):
            return
        place = OffsetRange(record.partition, generation, record.offset, record.offset + 1)
        context_id = logged.context_id if isinstance(logged, LoggedFrame) else None
        frame_id = frame_uuid(logged.frame_id) if isinstance(logged, LoggedFrame) else None
        known = await logged_frames.unstored(self._connection, self._topic, place, context_id, frame_id)
        if known.is_stored or known.is_rejected or known.is_erased_behind:
            return
        if known.is_erased and isinstance(logged, LoggedFrame) and await self._may_be_late(logged):
            return
        where = f"{self._topic}/{record.partition} at {record.offset}"
        before = await logged_frames.version_before(self._connection, place, context_id)
        self._result.of(context_id or "").add(before + 1, "log", ROW, None, f"a frame is on the log, {where}")

    async def _may_be_late(self, logged: LoggedFrame) -> bool:
        """Returns whether the projector may have skipped a frame after the latest erasure of its conversation."""
        begins = await erasures.beginnings(self._connection, [logged.context_id])
        return any(may_be_late(one, logged) for one in begins.values())
