"""Folds many conversations again, compares each with its tables, and rebuilds those that differ, one at a time.

The comparison takes no locks. Each rebuild is a separate transaction (`projector.rebuild`), so the process may die at
any point: rebuilt conversations stay rebuilt, and are at most compared again. The table `rebuilds` has the progress;
another call continues from there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from frameledger import stored
from frameledger.errors import RefusedError
from frameledger.ids import ContextId
from frameledger_services import exception_groups, failpoints
from frameledger_services.audit.differences import Differences
from frameledger_services.audit.restore import Restoring
from frameledger_services.audit.verify import verify
from frameledger_services.database_types import Connection
from frameledger_services.event_log.topics import TopicNames
from frameledger_services.failpoints import Failpoint
from frameledger_services.projector.destination import Send
from frameledger_services.projector.outbox_rows import effect_topics
from frameledger_services.projector.rebuild import Rebuilt, rebuild
from frameledger_services.projector.rebuild_fold import STAGED_ABOVE, DamagedFramesError
from frameledger_services.projector.refold import UnfoldableFrameError
from frameledger_services.projector.row_sender import publish_committed
from frameledger_services.projector.stored_heads import NewerHeadError
from frameledger_services.store import rebuilds
from frameledger_services.store.rebuilds import Candidate, RebuildKind, RebuildProgress, Selection, Source

PAGE = 64
"""The number of conversations after which progress is saved. At most as many are compared twice if the process dies."""


@dataclass(frozen=True, slots=True)
class RebuildOutcome:
    """The findings in one conversation, and what was done about them."""

    context_id: str
    version: int
    fold_version: int
    differences: Differences
    problem: str | None = None
    """Why it cannot be folded again, or the difference that a rebuild does not replace."""

    rebuilt: Rebuilt | None = None
    unsent: str | None = None
    """Why its effects are not published: they are in the outbox, for the partition's next owner."""

    restored: int = 0
    """Number of frames whose missing rows were restored."""


Report = Callable[[RebuildOutcome], None]


class AlreadyRunningError(RefusedError):
    """Another process is running the same rebuild.

    Remedy: Wait for it; the table `rebuilds` has its progress.
    """

    def __init__(self, number: int) -> None:
        super().__init__(f"another process is running rebuild {number}")


@dataclass(frozen=True, slots=True)
class Pair:
    """The two connections of a job, both in autocommit: one with REPEATABLE READ transactions for the comparison, and
    one for changes."""

    reader: Connection
    writer: Connection


@dataclass(frozen=True, slots=True)
class RebuildOptions:
    """The options of a rebuild."""

    names: TopicNames
    apply: bool
    why: str
    source: Source = "frames"
    restoring: Restoring | None = None
    """With the source `kafka`: restores missing frames from the log."""

    downgrade: bool = False
    staged_above: int = STAGED_ABOVE
    """A conversation with more frames is folded before it is locked."""

    failpoint: Failpoint = failpoints.none


async def rebuild_some(
    pairs: Sequence[Pair], options: RebuildOptions, context_ids: Sequence[str], send: Send, report: Report
) -> RebuildProgress:
    """Fold these conversations again. Skips unknown ids."""
    progress = RebuildProgress(0)
    candidates = await rebuilds.named(pairs[0].reader, context_ids)
    await _Page(pairs, options, send, report, progress).run(candidates)
    return progress


async def rebuild_many(
    pairs: Sequence[Pair],
    options: RebuildOptions,
    selection: Selection,
    send: Send,
    report: Report,
    on_begin: Callable[[RebuildProgress, int], None],
    *,
    again: bool = False,
) -> RebuildProgress:
    """Fold all conversations of a selection again, in the order of their ids, as many at once as there are `pairs`.

    Continues the newest interrupted rebuild of the same kind, unless `again`. Calls `on_begin` with it and the number
    of conversations that are left. Returns the totals of the whole rebuild. Raises `AlreadyRunningError` and psycopg's
    errors; conversations rebuilt before stay rebuilt.
    """
    connection = pairs[0].writer
    progress = await _begin(connection, options, selection, again=again)
    on_begin(progress, await rebuilds.count(connection, selection, progress.reached))
    page = _Page(pairs, options, send, report, progress)
    while candidates := await rebuilds.candidates(connection, selection, progress.reached, PAGE):
        await page.run(candidates)
        progress.reached = candidates[-1].context_id
        await options.failpoint("before progress")
        await rebuilds.save(connection, progress, ended=False)
        await options.failpoint("after progress")
    await rebuilds.save(connection, progress, ended=True)
    return progress


async def _begin(
    connection: Connection, options: RebuildOptions, selection: Selection, *, again: bool
) -> RebuildProgress:
    kind = RebuildKind(selection, options.source, stored.FOLD_VERSION, options.apply)
    while True:
        progress = None if again else await rebuilds.interrupted(connection, kind)
        if progress is None:
            progress = await rebuilds.begin(connection, kind)
        if not await rebuilds.hold(connection, progress.number):
            raise AlreadyRunningError(progress.number)
        # The process that held it until now may have continued or ended it since it was read.
        held = await rebuilds.unended(connection, progress.number)
        if held is not None:
            return held


class _Page:
    """The rebuild of some conversations, each once, several at a time."""

    def __init__(
        self,
        pairs: Sequence[Pair],
        options: RebuildOptions,
        send: Send,
        report: Report,
        progress: RebuildProgress,
    ) -> None:
        self._pairs = pairs
        self._options = options
        self._send = send
        self._report = report
        self._progress = progress

    async def run(self, candidates: Sequence[Candidate]) -> None:
        left = iter(candidates)
        try:
            async with asyncio.TaskGroup() as tasks:
                for pair in self._pairs:
                    tasks.create_task(self._work(pair, left))
        except BaseExceptionGroup as failed:
            # The first error is enough: the others come from the same server, or from the cancellation.
            raise exception_groups.first(failed) from None

    async def _work(self, pair: Pair, left: Iterator[Candidate]) -> None:
        for candidate in left:
            outcome = await self._rebuild_one(pair, candidate)
            if outcome is None:
                continue
            progress = self._progress
            progress.read_count += 1
            progress.differ_count += bool(outcome.differences.count)
            progress.failed_count += outcome.problem is not None
            progress.rebuilt_count += outcome.rebuilt is not None
            self._report(outcome)

    async def _rebuild_one(self, pair: Pair, candidate: Candidate) -> RebuildOutcome | None:
        """Returns the outcome; None for a conversation that was erased since it was listed."""
        context_id, fold = candidate.context_id, candidate.fold_version
        outcome = RebuildOutcome(context_id, candidate.version, fold, Differences())
        if fold > stored.FOLD_VERSION and not self._options.downgrade:
            return replace(outcome, problem=str(NewerHeadError(ContextId(context_id), fold)))
        try:
            restored = await self._restore(pair.writer, context_id)
        except DamagedFramesError as error:
            return replace(outcome, problem=str(error))
        there = await verify(pair.reader, [context_id], again=True, any_fold=True, unknown_again=True)
        if not there:
            return None
        [compared] = there
        differences = compared.differences
        outcome = replace(outcome, version=compared.version, differences=differences, restored=restored)
        damage = _damage(differences)
        is_to_replace = differences.count > sum(one.is_of_a_frame for one in differences.kept)
        is_due = restored or is_to_replace or candidate.is_mixed or fold != stored.FOLD_VERSION
        if not self._options.apply or not is_due:
            return replace(outcome, problem=damage)
        try:
            rebuilt = await self._rebuild(pair.writer, context_id)
        except (DamagedFramesError, UnfoldableFrameError, NewerHeadError) as error:
            return replace(outcome, problem=str(error))
        if rebuilt is None:
            return None
        unsent = await publish_committed(pair.writer, rebuilt.outbox, self._send) if rebuilt.outbox else None
        return replace(outcome, problem=damage, rebuilt=rebuilt, unsent=unsent)

    async def _restore(self, connection: Connection, context_id: str) -> int:
        restoring = self._options.restoring
        if restoring is None or not self._options.apply:
            return 0
        return await restoring.restore(connection, ContextId(context_id))

    async def _rebuild(self, connection: Connection, context_id: str) -> Rebuilt | None:
        options = self._options
        return await rebuild(
            connection,
            options.names.frames,
            effect_topics(options.names),
            ContextId(context_id),
            options.why,
            downgrade=options.downgrade,
            staged_above=options.staged_above,
            failpoint=options.failpoint,
        )


def _damage(differences: Differences) -> str | None:
    """Returns a difference in frames, which no rebuild replaces; None if there is none."""
    for one in differences.in_order():
        if not one.is_of_a_frame:
            continue
        if one.field in ("chain", "payload", "row"):
            return f"its frames are damaged at version {one.version}: the column {one.field} differs"
        return f"its frame of version {one.version} has a different {one.field}, which no rebuild replaces"
    return None
