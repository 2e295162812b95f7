"""Verifies conversations from their rows: the hash chain, the tables against the fold of the frames, and validity.

Each step adds to the differences of a conversation. A conversation is read in one snapshot, so concurrent writes of a
projector are not differences. Nothing is written here: the caller stores the result (`remembered`).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterable, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from frameledger import stored
from frameledger.ids import ContextId
from frameledger_services.audit import remembered
from frameledger_services.audit.chain_check import ChainCheck
from frameledger_services.audit.comparison import TableComparison
from frameledger_services.audit.differences import ROW, Differences
from frameledger_services.audit.head_comparison import check_fold_version, compare_head, state_differences
from frameledger_services.database_types import Connection
from frameledger_services.projector.head import Head
from frameledger_services.projector.refold import FoldedPiece, Refold, UnfoldableFrameError
from frameledger_services.projector.stored_heads import head_after
from frameledger_services.store import erasures, extreme_times, frame_pages, stored_rows, verified
from frameledger_services.store.stored_rows import WHATEVER_VERSION, Behind, StoredFrameRow, StoredRows
from frameledger_services.store.verified import VerifiedUpTo


@dataclass(slots=True)
class Verified:
    """The checks of a conversation and their findings."""

    context_id: str
    version: int
    """The newest version in the snapshot."""

    begins: int = 0
    """The version after which its current life begins: that of its erasure, or 0."""

    after: int = 0
    """The version up to which it was verified before and is not read again; if it was not, the same as `begins`."""

    parked_version: int | None = None
    """The version from which it is parked: from there on only its chain is checked."""

    is_older: bool = False
    """Whether an older fold wrote some of its rows: they are not compared, and `rebuild` shows what differs."""

    differences: Differences = field(default_factory=Differences)
    remembered: VerifiedUpTo | None = None
    """The result to store; None if the conversation differs or nothing is new."""

    @property
    def frames(self) -> int:
        """Number of frames that were read."""
        return self.version - self.after

    @property
    def frames_before(self) -> int:
        """Number of frames that were verified before."""
        return self.after - self.begins


async def verify(
    connection: Connection,
    context_ids: Sequence[str],
    *,
    again: bool = False,
    any_fold: bool = False,
    unknown_again: bool = False,
) -> list[Verified]:
    """Verify conversations from their rows, in one snapshot. Skips unknown ones.

    The caller's connection is in autocommit, with REPEATABLE READ transactions. Nothing is read up to the version in
    the table `verified`, except with `again`. With `any_fold` rows of an older fold are compared, too. `unknown_again`
    is that of `Refold`. Raises psycopg's errors.
    """
    return await extreme_times.read(connection, _verify, context_ids, again, any_fold, unknown_again)


async def _verify(
    connection: Connection, context_ids: Sequence[str], again: bool, any_fold: bool, unknown_again: bool
) -> list[Verified]:
    async with connection.transaction():
        heads = await stored_rows.heads(connection, context_ids)
        before = {} if again else await verified.load(connection, list(heads))
        beginnings = await erasures.beginnings(connection, list(heads))
        jobs = [
            _Job(
                connection,
                row,
                head_after(ContextId(context_id), beginnings.get(context_id)),
                before.get(context_id),
                any_fold=any_fold,
                unknown_again=unknown_again,
            )
            for context_id, row in heads.items()
        ]
        left: dict[str, _Job] = {job.context_id: job for job in jobs if not job.is_unchanged}
        few = {
            name: Behind(job.after, job.rows_after)
            for name, job in left.items()
            if job.result.frames <= frame_pages.PAGE_FRAMES
        }
        async for name, stored in stored_rows.short(connection, few):
            await left.pop(name).run(_single_page(stored.frames), stored.rows)
        for name, job in left.items():
            rows = stored_rows.rows(connection, name, after=job.rows_after)
            try:
                await job.run(stored_rows.frames(connection, name, after=job.after), rows)
            finally:
                await rows.close()
    return [job.result for job in jobs]


class _Job:
    """The verification of one conversation."""

    def __init__(
        self,
        connection: Connection,
        row: Mapping[str, Any],
        beginning: Head,
        before: VerifiedUpTo | None,
        *,
        any_fold: bool,
        unknown_again: bool,
    ) -> None:
        self._connection = connection
        self._row = row
        self.context_id = ContextId(row["context_id"])
        parked = row["parked_version"]
        self.result = Verified(self.context_id, int(row["version"]), parked_version=parked)
        self._folded_upto = self.result.version if parked is None else int(parked) - 1
        self._head = beginning
        self.result.begins = beginning.version
        # A verification of an erased life does not apply to this one.
        is_of_this_life = before is not None and before.version > beginning.version
        known = remembered.read(before, row) if before is not None and is_of_this_life else None
        if known is not None:
            if self._folded_upto < known.head.version:
                self._add_difference("version", f"{known.head.version} or more, as it was verified before")
            else:
                self._head = known.head
        self.is_unchanged = (
            known is not None and not self.result.differences.count and known.is_unchanged(row)
        )
        self.after = self.result.after = self._head.version
        # No row may be older than its beginning; all are read, so that such rows are reported.
        self.rows_after = WHATEVER_VERSION if known is None else self.after
        self._chain = ChainCheck(self._head, self.result.differences)
        folds = _folds(row)
        if folds is None:
            self._add_difference("folded_by", "null, or versions with their folds")
        self.result.is_older = not any_fold and not (folds or set()) <= {stored.FOLD_VERSION}
        self._unknown_again = unknown_again

    async def run(self, pages: AsyncIterable[Sequence[StoredFrameRow]], rows: StoredRows) -> None:
        head, state_version = self._head, int(self._row["state_version"])
        refold = Refold(head, unknown_again=self._unknown_again, watched={state_version})
        if state_version == self.after:
            refold.states[state_version] = head.state
        is_all = self.rows_after == WHATEVER_VERSION
        comparison = TableComparison(rows, self.result.differences, is_all=is_all)
        is_complete = not self.result.is_older
        async for page in pages:
            self._chain.check(page)
            self._check_unfolded(page)
            folded = self._foldable(page)
            if folded and is_complete:
                piece, is_complete = self._fold(refold, folded)
                await comparison.compare(piece, head)
        if is_complete:
            await comparison.finish(head, self.after)
            if state_version < self.after:
                await self._check_older_state(head, state_version)
            compare_head(self.result.differences, self._row, head, refold.states)
        self._check_head()
        if is_complete and not self.result.differences.count:
            self.result.remembered = remembered.remember(head, self._row)

    def _fold(self, refold: Refold, frames: Sequence[StoredFrameRow]) -> tuple[FoldedPiece, bool]:
        try:
            return refold.fold(frames), True
        except UnfoldableFrameError as error:
            self.result.differences.add(
                error.version, "frames", "payload", error.problem, "a frame that can be folded"
            )
            return error.piece, False

    def _foldable(self, page: Sequence[StoredFrameRow]) -> Sequence[StoredFrameRow]:
        upto = self._folded_upto
        return page if page[-1].version <= upto else [one for one in page if one.version <= upto]

    def _check_unfolded(self, page: Sequence[StoredFrameRow]) -> None:
        """Check that parked frames have that outcome, and that no frame comes after the newest one."""
        for frame in reversed(page):
            if frame.version <= self._folded_upto:
                return
            if frame.version > self.result.version:
                self.result.differences.add(frame.version, "frames", ROW, frame.type, None)
            elif frame.outcome != "parked":
                self.result.differences.add(frame.version, "frames", "outcome", frame.outcome, "parked")

    async def _check_older_state(self, head: Head, state_version: int) -> None:
        """Compare a stored state of an earlier verified version: folded further, it must become that of `head`."""
        try:
            state = stored.load(str(self._row["state"]).encode())
            refold = Refold(replace(Head.new(self.context_id), state=state, version=state_version))
            pages = stored_rows.frames(
                self._connection, self.context_id, after=state_version, upto=self._folded_upto
            )
            async for page in pages:
                refold.fold(page)
        except (stored.StoredStateError, UnfoldableFrameError) as error:
            self._add_difference("state", "a state", str(error))
            return
        for path, was, expected in state_differences(refold.head.state, head.state):
            self.result.differences.add(state_version, "contexts", path, was, expected)

    def _check_head(self) -> None:
        check_fold_version(self.result.differences, self._row)
        for name, expected in (
            ("version", self._chain.version),
            ("chain", self._chain.chain),
            ("started_at", self._chain.started_at),
            ("last_at", self._chain.last_at),
        ):
            if self._row[name] != expected:
                version = min(self.result.version, self._chain.version) + (name == "version")
                self.result.differences.add(version, "contexts", name, self._row[name], expected)

    def _add_difference(self, column: str, expected: object, stored_value: object = None) -> None:
        was = self._row[column] if stored_value is None else stored_value
        self.result.differences.add(self.result.version, "contexts", column, was, expected)


def _folds(row: Mapping[str, Any]) -> set[int] | None:
    """Returns the fold versions that wrote the rows of a conversation; None if they are unreadable."""
    if row["folded_by"] is None:
        return {row["fold_version"]}
    try:
        return {int(fold) for _, fold in json.loads(row["folded_by"])}
    except (TypeError, ValueError):
        return None


async def _single_page(frames: Sequence[StoredFrameRow]) -> AsyncIterator[Sequence[StoredFrameRow]]:
    if frames:
        yield frames
