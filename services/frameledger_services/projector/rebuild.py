"""Rebuilds a conversation: replaces its rows by a new fold of its frames, in one transaction, while all services run.

The transaction locks the head: a batch with a frame of this conversation waits, and with it the frames of other
conversations in that batch and after it. So a long conversation is folded before it is locked, into temporary tables of
the same transaction; under the lock the rows are only compared and replaced (`rebuild_fold`).

At its end the transaction increments `contexts.rebuilt`: a projector that has the old head in memory is then refused,
loads the new one, and folds its batch again. If the process dies before the commit, nothing has changed. If it dies
after it, everything has, and the partition's next owner publishes the rows of the outbox.

Folding again causes no effects. Work that is open now and was not before is requested if it is recent, and closed by a
frame if it is old (`stale_work`). Work that is no longer open is stopped by its worker's next heartbeat.

While the partition's effects are held, because the log may have later answers to such work, nothing is requested: the
owner that releases the effects finds the open work (`held_effects`). If they were released during the rebuild, before
its rows were visible, a second transaction requests the work. If the process dies before that, a worker that serves the
work finds it unclaimed (`claims.unclaimed`), and without such a worker the timekeeper closes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256

from frameledger import stored
from frameledger.decoding import decode
from frameledger.effects import RunInference
from frameledger.frames import LLMContextEraseFrame
from frameledger.ids import ContextId
from frameledger_services import failpoints
from frameledger_services.database_types import Connection
from frameledger_services.failpoints import Failpoint
from frameledger_services.projector import stored_heads
from frameledger_services.projector.rebuild_fold import STAGED_ABOVE, RebuildFold, fold_aside
from frameledger_services.projector.rows import Rows, erasure_of
from frameledger_services.projector.stale_work import MAX_AGE, Closing, open_work_rows
from frameledger_services.projector.stored_heads import NewerHeadError
from frameledger_services.projector.writer import write
from frameledger_services.store import erasures, held_effects, parked
from frameledger_services.store import rebuild as statements
from frameledger_services.store.held_effects import UnclaimedWork
from frameledger_services.store.outbox import OutboxRow
from frameledger_services.store.rebuild import HeldHead, OpenWork
from frameledger_services.store.transfer import NO_LOG_GENERATION, NO_LOG_PARTITION

TOO_LATE = Closing(
    "frameledger/rebuild",
    "rebuilt_too_late",
    "Only a rebuild showed that this run was asked for, too late to begin it.",
)


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What a rebuild changed, apart from rows."""

    version: int
    settled: int = 0
    """Number of frames whose outcome changed."""

    newly_open: Sequence[OpenWork] = ()
    """Work that is open now and was not before."""

    over: Sequence[OpenWork] = ()
    """Work that was open before and is not now."""

    outbox: Sequence[OutboxRow] = field(default=(), repr=False)
    """Effects and closing frames to be published."""


async def rebuild(
    connection: Connection,
    frames_topic: str,
    effects: Mapping[str, str],
    context_id: ContextId,
    why: str,
    *,
    downgrade: bool = False,
    staged_above: int = STAGED_ABOVE,
    failpoint: Failpoint = failpoints.none,
) -> Rebuilt | None:
    """Fold a conversation again, replace its rows and its state, and commit. A parked conversation is folded up to its
    first parked frame, and stays parked.

    An erasure that an older release stored as a frame of an unknown type is honoured.

    Returns None for a conversation that does not exist. `effects` has the topic of each effect; `why` is stored with
    every frame whose outcome changes; a conversation of more frames than `staged_above` is folded before it is locked.
    The connection is the caller's, in autocommit. Raises `DamagedFramesError`, `UnfoldableFrameError`, `NewerHeadError`
    for a conversation of a newer fold unless `downgrade` is set, and psycopg's errors; nothing was changed then. A
    second call changes nothing except `rebuilt`.
    """
    async with connection.transaction():
        folding = await fold_aside(connection, context_id, staged_above, failpoint)
        await failpoint("before hold")
        held = await statements.hold(connection, context_id)
        if held is None:
            return None
        if held.fold_version > stored.FOLD_VERSION and not downgrade:
            raise NewerHeadError(context_id, held.fold_version)
        await failpoint("after hold")
        before = await statements.open_work(connection, context_id)
        if await _honour_erasure(connection, context_id):
            return Rebuilt(held.version, over=sorted(before))
        head = await stored_heads.beginning(connection, context_id)
        if folding is None or folding.began != (head.version, head.chain):
            await statements.delete_rows(connection, context_id)
            await failpoint("after delete")
            folding = RebuildFold(connection, head)
        # If it is parked before its beginning, which only a manual change can cause, it is folded up to its beginning.
        await folding.fold_to(max(folding.version, held.folded_version))
        await folding.finish(held, why)
        await failpoint("after rows")
        after = await statements.open_work(connection, context_id)
        newly_open = after - before
        requests = _WorkRequests(connection, frames_topic, effects, context_id, newly_open)
        is_held = await requests.is_held()
        outbox = [] if is_held else await requests.write_rows(held)
        # It must be on disk before anything acts on it. Otherwise the commit may be lost, and with it any record of the
        # rebuild.
        await statements.end(connection, context_id, on_disk=is_held or bool(outbox))
        await failpoint("before commit")
    await failpoint("after commit")
    if is_held:
        outbox = await requests.write_if_released()
    return Rebuilt(held.version, folding.settled, sorted(newly_open), sorted(before - after), outbox)


async def _honour_erasure(connection: Connection, context_id: ContextId) -> bool:
    """Honour the newest erasure that an older release stored as a frame of an unknown type, if there is one. Returns
    whether nothing is left of the conversation. Open work is stopped by its worker's next heartbeat."""
    erasure = await erasures.not_honoured(connection, context_id)
    if erasure is None:
        return False
    frame = decode(erasure.payload)
    if not isinstance(frame, LLMContextEraseFrame):
        return False
    erasing = erasure_of(context_id, erasure.version, frame, erasure.partition, erasure.offset)
    await erasures.erase(connection, [erasing])
    return erasure.is_last


@dataclass(frozen=True, slots=True)
class _WorkRequests:
    """Requests or closes work that is open since the rebuild."""

    connection: Connection
    topic: str
    effects: Mapping[str, str]
    context_id: ContextId
    newly_open: set[OpenWork]

    async def is_held(self, *, lock: bool = False) -> bool:
        """Whether there is such work and its partition's effects are held. An imported conversation without a frame on
        the log has no partition, so its effects are never held."""
        partition = await self._partition()
        return partition is not None and await held_effects.is_held(
            self.connection, self.topic, partition, lock=lock
        )

    async def write_rows(self, held: HeldHead) -> list[OutboxRow]:
        """Write the outbox rows in the caller's transaction, which has locked the conversation."""
        partition = await self._partition()
        if partition == NO_LOG_PARTITION:
            # The owner of any partition may publish them. Without an owner, a worker finds the work unclaimed.
            partition = await statements.any_partition(self.connection, self.topic)
        if partition is None:
            return []
        rows: list[OutboxRow] = []
        for old in (True, False):
            work = await held_effects.open_work_of(
                self.connection, self.topic, self.context_id, held.now - MAX_AGE, old=old
            )
            closing = TOO_LATE if old else None
            rows += open_work_rows(
                self.topic, partition, self.effects, _newly_open(self.newly_open, work), closing
            )
        rows = [
            _with_unique_offset(row, held.rebuilt) if row.generation == NO_LOG_GENERATION else row
            for row in rows
        ]
        if rows:
            await write(self.connection, Rows(outbox=rows), (), by_copy=False)
        return rows

    async def write_if_released(self) -> list[OutboxRow]:
        """Do the same in a separate transaction, unless the effects are still held."""
        async with self.connection.transaction():
            # Locked first, as by a batch. This waits for a release in progress, which may not see our commit.
            if await self.is_held(lock=True):
                return []
            held = await statements.hold(self.connection, self.context_id)
            return [] if held is None else await self.write_rows(held)

    async def _partition(self) -> int | None:
        """Returns the conversation's partition, or None if there is nothing to request."""
        return await parked.partition_of(self.connection, self.context_id) if self.newly_open else None


def _with_unique_offset(row: OutboxRow, rebuilt: int) -> OutboxRow:
    """Returns the row of an imported frame with a unique offset. Its own offset is its version, which rows of other
    conversations share, and perhaps an unpublished row of an earlier rebuild. Publishing a row twice does no harm
    (`relay`)."""
    name = f"{row.context_id}\n{rebuilt}\n{row.offset}\n{row.ordinal}"
    return replace(row, offset=int.from_bytes(sha256(name.encode()).digest()[:8]) >> 1)


def _newly_open(newly_open: set[OpenWork], work: Iterable[UnclaimedWork]) -> Iterator[UnclaimedWork]:
    for item in work:
        effect = item.effect
        kind, id_ = (
            ("run", effect.run_id) if isinstance(effect, RunInference) else ("call", effect.tool_call_id)
        )
        if OpenWork(kind, id_, effect.version) in newly_open and not item.is_sent:
            yield item
