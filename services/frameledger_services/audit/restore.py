"""Restores missing rows of frames from the log, but only frames that the hash chain proves to be the original ones.

The chain of the frames around a gap, or of the head, determines its content: the conversation's records at that place
of the log are read in order, and nothing is written unless the chain closes. Dead letters are skipped, and after an
erasure also records that the projector skipped, by the same rule (`late_frames`). A frame is restored with the outcome
`unknown`; the rebuild after it sets the right one, and `outcome_changes` records that. Parked frames are parked again.
If the process dies, each gap is closed or not; the next call closes the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from uuid import UUID

from frameledger.chain import next_link
from frameledger.ids import ContextId
from frameledger.record import LoggedFrame, Record
from frameledger.values import replace
from frameledger_services import failpoints
from frameledger_services.audit.erased_lives import Life
from frameledger_services.database_types import Connection
from frameledger_services.event_log.log_probe import LogProbe
from frameledger_services.event_log.reader import partition_records
from frameledger_services.event_log.topics import home_partition
from frameledger_services.failpoints import Failpoint
from frameledger_services.projector.decoded import decode_record
from frameledger_services.projector.frame_row import frame_row, logged_at_of
from frameledger_services.projector.head import Head
from frameledger_services.projector.rebuild_fold import DamagedFramesError
from frameledger_services.projector.rows import FrameRow
from frameledger_services.recovery.diagnosis import NO_END, generation_at, spans
from frameledger_services.settings import Settings
from frameledger_services.store import dead_letters, frame_ids, missing_frames, recovery, tables, topics
from frameledger_services.store import rebuild as statements
from frameledger_services.store.batch import Insert, insert_values
from frameledger_services.store.frame_ids import frame_uuid
from frameledger_services.store.missing_frames import Neighbor, VersionGap
from frameledger_services.store.recovery import RecoveryReceipt


@dataclass(frozen=True, slots=True)
class _Gap:
    """Missing frames of a life, and the stored frames at both ends; None at the beginning of the life and after its
    newest frame."""

    life: Life
    versions: VersionGap
    before: Neighbor | None
    behind: Neighbor | None

    @property
    def missing(self) -> int:
        return self.versions.behind - self.versions.before - 1

    def is_closed_by(self, rows: Sequence[FrameRow], behind: Neighbor | None, newest_chain: bytes) -> bool:
        """Returns whether these rows fill the gap: the chain continues from the last one. `behind` is the frame that is
        behind the gap by now."""
        if len(rows) < self.missing:
            return False
        chain = rows[-1].chain
        if behind is None:
            return chain == newest_chain
        return next_link(chain, behind.version, behind.source, behind.payload) == behind.chain


class Restoring:
    """Restores frames from one topic."""

    def __init__(
        self, settings: Settings, topic: str, probe: LogProbe, failpoint: Failpoint = failpoints.none
    ) -> None:
        self._settings = settings
        self._topic = topic
        self._probe = probe
        self._probing = asyncio.Lock()
        self._failpoint = failpoint

    async def restore(self, connection: Connection, context_id: ContextId) -> int:
        """Restore the missing frames of a conversation, gap by gap, each gap in its own transaction. Returns the number
        of restored frames. The frames of one gap are in memory together.

        Raises `DamagedFramesError` if the log no longer has them, `BrokerError`, TimeoutError and psycopg's errors.
        """
        life = await Life.load(connection, context_id)
        restored = 0
        for versions in await missing_frames.gaps(connection, context_id, life.first_version):
            await life.advance(versions.before)
            before = await missing_frames.neighbor(connection, context_id, versions.before)
            behind = await missing_frames.neighbor(connection, context_id, versions.behind)
            restored += await self._close(connection, _Gap(life, versions, before, behind))
        return restored

    async def _close(self, connection: Connection, gap: _Gap) -> int:
        context_id = gap.life.context_id
        rows = [row async for row in self._rows(connection, gap)]
        await self._failpoint("before hold")
        async with connection.transaction():
            held = await statements.hold(connection, context_id)
            if held is None or await gap.life.is_over():
                return 0  # erased meanwhile; in the second case another life has begun
            if await missing_frames.neighbor(connection, context_id, gap.versions.before + 1) is not None:
                return 0  # another process has restored them
            # Behind the newest frames another one may have been stored since.
            behind = await missing_frames.neighbor(connection, context_id, gap.versions.behind)
            if not gap.is_closed_by(rows, behind, held.chain):
                problem = f"{gap.missing} frames are missing, and the log does not have the original ones"
                raise DamagedFramesError(context_id, gap.versions.before + 1, problem)
            restored = [_as_parked(row, held.parked_version) for row in rows]
            await insert_values(connection, Insert(tables.frames, FrameRow._fields, restored))
        return len(rows)

    async def _rows(self, connection: Connection, gap: _Gap) -> AsyncIterator[FrameRow]:
        """Yields the rows of the gap's frames, from the records between those of its neighbors."""
        life, head = gap.life, Head.new(gap.life.context_id)
        head.version, head.chain, head.last_at = gap.versions.before, life.first_chain, life.not_before
        if gap.before is not None:
            head.chain, head.last_at = gap.before.chain, gap.before.logged_at
        async with aclosing(self._candidates(connection, gap)) as candidates:
            async for record, logged in candidates:
                if head.version + 1 == gap.versions.behind:
                    return
                if life.is_left_out(head.version + 1, logged):
                    continue
                logged_at = logged_at_of(record, head)
                if gap.behind is not None:
                    # A republished copy of a lost record is younger than the frame.
                    logged_at = min(logged_at, gap.behind.logged_at)
                head.version += 1
                head.chain = next_link(head.chain, head.version, logged.source, record.value or b"")
                head.last_at = logged_at
                life.fold(head.version, logged, logged_at)
                yield frame_row(
                    record,
                    logged,
                    head,
                    frame_uuid(logged.frame_id),
                    logged_at,
                    outcome="unknown",
                    reason=None,
                )

    async def _candidates(
        self, connection: Connection, gap: _Gap
    ) -> AsyncGenerator[tuple[Record, LoggedFrame], None]:
        """Yields the conversation's records in a gap that are frames and not stored."""
        context_id = gap.life.context_id
        topic = await topics.newest(connection, self._topic)
        if topic is None:
            return
        key = context_id.encode()
        partition = home_partition(key, topic.partitions)
        receipts = await recovery.receipts(connection, self._topic)
        on_log = _OnLog([one for one in receipts if one.partition == partition], topic.generation)
        first, end = await self._offsets(gap, partition, on_log)
        rejected = await dead_letters.places_within(
            connection, self._topic, context_id, partition, first, end
        )
        seen: set[object] = set()
        async with aclosing(partition_records(self._settings, self._topic, partition, first, end)) as records:
            async for record in records:
                if record.key != key:
                    continue
                record = replace(record, generation=on_log.generation(record.offset))
                if (record.generation, record.offset) in rejected:
                    continue
                _, logged = decode_record(record)
                if not isinstance(logged, LoggedFrame):
                    continue
                pair = context_id, frame_uuid(logged.frame_id)
                if pair in seen or await _is_stored(connection, pair):
                    continue
                seen.add(pair)
                yield record, logged

    async def _offsets(self, gap: _Gap, partition: int, on_log: _OnLog) -> tuple[int, int]:
        """Returns the first offset at which a record of the gap may lie, and the end of these offsets."""
        async with self._probing:
            first, end = await self._probe.offsets(partition)
        place = gap.before or await gap.life.place_before(self._topic, partition)
        if place is not None:
            first = max(first, on_log.first_behind(place.generation, place.offset))
        if gap.behind is not None:
            end = min(end, on_log.end_before(gap.behind))
        return first, end


def _as_parked(row: FrameRow, parked_version: int | None) -> FrameRow:
    """Returns a row as the projector stores frames of a parked conversation, which only `unpark` folds."""
    return row if parked_version is None or row.version < parked_version else row._replace(outcome="parked")


async def _is_stored(connection: Connection, pair: tuple[str, UUID]) -> bool:
    """Returns whether the frame of this conversation with this id has a row or, if it erased a life, a receipt."""
    return bool(
        await frame_ids.payloads(connection, [pair])
        or await frame_ids.payloads(connection, [pair], "erasures")
    )


class _OnLog:
    """The generations of a partition whose records the log still has at their stored offsets. A frame of another
    generation, or of an import, has no record there, and neither have the frames before it.
    """

    def __init__(self, receipts: Sequence[RecoveryReceipt], newest: int) -> None:
        self._below = dict(spans(receipts, newest))

    def first_behind(self, generation: int, offset: int) -> int:
        """Returns the offset from which records may be of frames after the one of this place."""
        below = self._below.get(generation)
        # A record from `below` on was lost; its copy is there.
        return 0 if below is None else min(offset + 1, below)

    def end_before(self, frame: Neighbor) -> int:
        """Returns the offset below which records may be of frames before this one."""
        below = self._below.get(frame.generation)
        if below is None:
            return 0
        return frame.offset if frame.offset < below else NO_END

    def generation(self, offset: int) -> int:
        """Returns the generation in which a record was first stored."""
        return generation_at(self._below.items(), offset)
