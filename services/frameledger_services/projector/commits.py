"""The commit of a batch: folds records of owned partitions and stores them in one transaction, each exactly once.

If the process dies before the commit, nothing was stored: the next owner of the partitions reads from the old
`next_offset`. If it dies after the commit, everything was stored, and the next owner publishes the rows of the outbox.
There is no third case, because rows, heads, outbox and `next_offset` are one commit: a transaction, or the single
statement of a small batch. If the process dies while it waits for the reply, one of the two cases holds, and the next
owner's first statement shows which.

If the database crashes, it may lose its latest commits, newest first and each completely: the log is read again from
the remaining `next_offset` and yields the same rows. So a batch may be visible before it is on disk, as long as nothing
acts on it that would not follow from the log again. A batch in which a call starts is on disk when its commit returns,
because whoever runs the call begins when that is visible; so is every large batch. Any other is on disk before its
effects are published (`relay`), and when its notification is sent, directly afterwards (`notifier`). If a power failure
also takes the latest records from Kafka, the conversation ends before them in both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from frameledger.frames import LLMContextEraseFrame
from frameledger.ids import ContextId
from frameledger.record import LoggedFrame, Record
from frameledger.stored import FOLD_VERSION
from frameledger_services import failpoints, logs
from frameledger_services.database_types import Connection
from frameledger_services.failpoints import Failpoint
from frameledger_services.projector.batch_fold import BatchFold, StoredIds, is_at_home
from frameledger_services.projector.batch_span import note_outcomes
from frameledger_services.projector.decoded import DecodedRecord
from frameledger_services.projector.head import Head
from frameledger_services.projector.head_cache import HeadCache
from frameledger_services.projector.log_check import record_hash
from frameledger_services.projector.metrics import ProjectorMetrics, clock
from frameledger_services.projector.ownership import (
    OwnedPartition,
    OwnedPartitions,
    ProjectorFencedError,
    ProjectorTopics,
)
from frameledger_services.projector.rebuild import rebuild
from frameledger_services.projector.rebuild_fold import DamagedFramesError
from frameledger_services.projector.refold import UnfoldableFrameError
from frameledger_services.projector.refused_values import is_of_the_values
from frameledger_services.projector.row_values import at
from frameledger_services.projector.rows import Rows
from frameledger_services.projector.stored_heads import load, park
from frameledger_services.projector.watchdog import TimeLimit
from frameledger_services.projector.writer import write_parts, write_single_statement
from frameledger_services.store import checkpoints, frame_ids, single_statement
from frameledger_services.store import heads as head_statements
from frameledger_services.store.batch import StaleHeadError
from frameledger_services.store.outbox import OutboxRow
from frameledger_services.store.projections import Progress
from frameledger_services.telemetry.tracing import NO_SPAN, Span

SMALL_RECORDS = 64
SMALL_BYTES = 256 * 1024
"""A batch within both limits is written by one statement. COPY is faster for more rows."""

REBUILT_FOR = f"folded by fold version {FOLD_VERSION}, when its next frame arrived"
"""The reason in `outcome_changes` for outcomes that changed."""

_log = logs.get_logger("projector")


class Commits:
    """Folds batches and stores each in one commit, on a connection that nothing else uses for transactions."""

    def __init__(
        self,
        connection: Connection,
        topics: ProjectorTopics,
        cache: HeadCache,
        failpoint: Failpoint | None = None,
        *,
        rebuild_frames: int = 0,
        refuse_erased: bool = False,
        metrics: ProjectorMetrics | None = None,
    ) -> None:
        """`rebuild_frames` is the setting of that name. With `refuse_erased` a frame with the id of an erased
        conversation becomes a dead letter and does not begin a new life."""
        self.connection = connection
        self._refuse_erased = refuse_erased
        self.topics = topics
        self.cache = cache
        self._failpoint = failpoint or failpoints.none
        self._rebuild_frames = rebuild_frames
        self._of_rebuilds: list[OutboxRow] = []
        self._metrics = metrics or ProjectorMetrics()
        self.span: Span = NO_SPAN
        """The span of the batch, on which its outcomes are recorded."""

    async def commit(
        self,
        batch: Sequence[DecodedRecord],
        owned: OwnedPartitions,
        next_offsets: Mapping[int, int],
        stored_ids: StoredIds | None,
        *,
        parked_for: str | None = None,
    ) -> list[OutboxRow]:
        """Store a batch in one commit. Returns the rows of the outbox.

        `parked_for` is the reason for which its conversations are parked first. Raises the error of a record that
        cannot be stored (see `unstorable_records`); nothing of the batch is stored then.
        """
        last = {record.partition: record for record, _ in batch}
        progress = [
            _progress(owned[partition], last.get(partition), end) for partition, end in next_offsets.items()
        ]
        context_ids = {logged.context_id for _, logged in self.at_home(batch)}
        try:
            await self._failpoint("before load")
            began = clock()
            # Before the lock: no other projector changes these rows since the takeover, like everything in memory.
            heads = await self._heads(context_ids, may_rebuild=parked_for is None)
            loaded = clock()
            await self._failpoint("after load")
            folding = self._folding(heads, stored_ids, owned)
            if parked_for is not None:
                for head in heads.values():
                    park(head, parked_for)
            with TimeLimit():
                parts = folding.fold(batch)
            folded = clock()
            if _is_small(batch) and len(parts) == 1 and not parts[0].late:
                await self._write_statement(progress, parts[0], folding.touched.values())
            else:
                await self._write_transaction(progress, parts, folding.touched.values())
        except StaleHeadError:
            self.cache.drop(context_ids)
            known = {head.context_id for head in folding.touched.values() if head.stored}
            if (await head_statements.rebuilt(self.connection, known)).keys() < known:
                # A head was erased without a fence: nothing else in memory can be trusted either.
                raise ProjectorFencedError(set(next_offsets)) from None
            # A conversation was rebuilt: nothing of the batch was stored, and it is folded again on the current heads.
            return await self.commit(batch, owned, next_offsets, stored_ids, parked_for=parked_for)
        except BaseException:
            self.cache.drop(context_ids)
            raise
        await self._failpoint("after commit")
        for head in folding.touched.values():
            head.stored = True
        self.cache.put(heads.values())
        for position in progress:
            owned[position.partition].next_offset = position.next_offset
        self._metrics.load.observe(loaded - began)
        self._metrics.fold.observe(folded - loaded)
        self._metrics.stored(parts)
        if folding.duplicates:
            self._metrics.duplicates.inc(folding.duplicates)
        note_outcomes(self.span, parts)
        return [row for part in parts for row in part.outbox]

    @cached_property
    def _cursor(self) -> single_statement.Cursor:
        return single_statement.cursor_of(self.connection)

    async def _write_statement(self, progress: Sequence[Progress], rows: Rows, heads: Iterable[Head]) -> None:
        await self._failpoint("before lock")
        began = clock()
        held = await write_single_statement(self._cursor, self.topics.frames, progress, rows, heads)
        _check_held(progress, held)
        self._metrics.write.observe(clock() - began)

    async def _write_transaction(
        self, progress: Sequence[Progress], parts: Sequence[Rows], heads: Iterable[Head]
    ) -> None:
        async with self.connection.transaction():
            await self._failpoint("before lock")
            began = clock()
            _check_held(progress, await checkpoints.advance(self.connection, self.topics.frames, progress))
            await self._failpoint("after lock")
            await write_parts(self.connection, parts, heads)
            written = clock()
            await self._failpoint("before commit")
        self._metrics.write.observe(written - began)
        self._metrics.commit.observe(clock() - written)

    async def stored_ids(self, batch: Sequence[DecodedRecord]) -> StoredIds:
        """Returns the frames of the batch that are stored already."""
        frames = [logged for _, logged in self.at_home(batch)]
        pairs = [(logged.context_id, frame_ids.frame_uuid(logged.frame_id)) for logged in frames]
        erasing = [
            pair
            for pair, logged in zip(pairs, frames, strict=True)
            if isinstance(logged.frame, LLMContextEraseFrame)
        ]
        async with self.connection.transaction():
            return StoredIds(
                await frame_ids.payloads(self.connection, pairs),
                await frame_ids.payloads(self.connection, erasing, "erasures"),
            )

    def at_home(self, batch: Sequence[DecodedRecord]) -> Iterator[tuple[Record, LoggedFrame]]:
        """Yields the records that are frames of a conversation in its own partition."""
        for record, logged in batch:
            if isinstance(logged, LoggedFrame) and is_at_home(record, self.topics.partitions):
                yield record, logged

    def _folding(
        self, heads: dict[str, Head], stored_ids: StoredIds | None, owned: OwnedPartitions
    ) -> BatchFold:
        held = {one.partition for one in owned.values() if one.held_until is not None}
        return BatchFold(heads, self.topics, stored_ids, held, refuse_erased=self._refuse_erased)

    async def _heads(self, context_ids: set[ContextId], *, may_rebuild: bool) -> dict[str, Head]:
        """Returns the heads of these conversations, from the cache or in one query for the others."""
        heads: dict[str, Head] = {}
        missing = []
        for context_id in context_ids:
            head = self.cache.get(context_id)
            if head is None:
                missing.append(context_id)
            else:
                heads[context_id] = head
        if not missing:
            return heads
        self._metrics.head_loads.inc(len(missing))
        rebuild = self._rebuild if may_rebuild and self._rebuild_frames else None
        return heads | await load(self.connection, missing, rebuild, max_frames=self._rebuild_frames)

    async def _rebuild(self, context_id: ContextId) -> None:
        """Rebuild a conversation that an older release folded. If that fails, it continues from its old state."""
        topics = self.topics
        try:
            rebuilt = await rebuild(self.connection, topics.frames, topics.effects, context_id, REBUILT_FOR)
        except Exception as error:
            if not isinstance(error, DamagedFramesError | UnfoldableFrameError) and not is_of_the_values(
                error
            ):
                raise
            _log.warning("projector.not_rebuilt", context_id=context_id, reason=str(error))
            return
        if rebuilt is not None:
            self._of_rebuilds += rebuilt.outbox

    def rows_of_rebuilds(self) -> list[OutboxRow]:
        """Returns the rows that rebuilds added to the outbox since the last call."""
        rows, self._of_rebuilds = self._of_rebuilds, []
        return rows


def _is_small(batch: Sequence[DecodedRecord]) -> bool:
    return len(batch) <= SMALL_RECORDS and sum(len(one.value or b"") for one, _ in batch) <= SMALL_BYTES


def _check_held(progress: Sequence[Progress], held: set[int]) -> None:
    lost = {one.partition for one in progress} - held
    if lost:
        raise ProjectorFencedError(lost)


def _progress(owned: OwnedPartition, last: Record | None, next_offset: int) -> Progress:
    return Progress(
        partition=owned.partition,
        epoch=owned.epoch,
        expected=owned.next_offset,
        next_offset=next_offset,
        end_offset=owned.end_offset,
        last_offset=None if last is None else last.offset,
        last_hash=None if last is None else record_hash(last),
        last_logged_at=None if last is None or last.timestamp_ms is None else at(last.timestamp_ms),
        generation=owned.generation,
    )
