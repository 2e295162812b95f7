"""The fold of a rebuild: checks the stored frames of a conversation against their chain, and writes their rows.

The rows replace the stored ones, which the caller has deleted, or they are staged in other tables and replace them at
the end. With staged rows a long conversation need not be locked while it is folded, but only while the rows are
compared and the frames that arrived in the meantime are folded.
"""

from __future__ import annotations

from collections.abc import Iterable

from frameledger.chain import next_link
from frameledger.errors import RefusedError
from frameledger.ids import ContextId
from frameledger_services import failpoints
from frameledger_services.database_types import Connection
from frameledger_services.failpoints import Failpoint
from frameledger_services.projector import stored_heads
from frameledger_services.projector.head import Head
from frameledger_services.projector.refold import FoldedPiece, Refold, UnfoldableFrameError
from frameledger_services.projector.rows import Rows
from frameledger_services.projector.watchdog import TimeLimit
from frameledger_services.projector.writer import stage, write
from frameledger_services.store import erasures, parked, staged_rows, stored_rows
from frameledger_services.store import rebuild as statements
from frameledger_services.store.parked import Settled
from frameledger_services.store.rebuild import HeldHead
from frameledger_services.store.stored_rows import StoredFrameRow

STAGED_ABOVE = 1_000
"""A conversation with more frames is staged, so that it is not locked for longer than a conversation of this size."""

MAX_ROUNDS = 10
"""How often newly arrived frames are folded without the lock. After that, a projector that writes faster than this
folds has to wait."""


class DamagedFramesError(RefusedError):
    """The stored frames of a conversation are not those of its head: a byte differs, or a frame is missing.

    Remedy: `frameledger rebuild --from kafka --apply` restores missing rows if Kafka still has them. Nothing was
    changed.
    """

    def __init__(self, context_id: str, version: int, problem: str) -> None:
        super().__init__(f"the frames of {context_id} are damaged at version {version}: {problem}")
        self.version = version


class RebuildFold:
    """One conversation, folded page by page. With `staged`, `staged_rows.create` was called in this transaction."""

    def __init__(self, connection: Connection, head: Head, *, staged: bool = False) -> None:
        """`head` is that of `stored_heads.beginning`, and is advanced in place."""
        self.began = head.version, head.chain
        """The beginning of the conversation's current life. If it changes, this fold is useless."""

        self._connection = connection
        self._refold = Refold(head, unknown_again=True)
        self._chain = head.chain
        self._staged = staged
        self._changed: list[Settled] = []

    @property
    def version(self) -> int:
        """The version up to which it is folded."""
        return self._refold.head.version

    @property
    def settled(self) -> int:
        """Number of frames whose outcome changed."""
        return len(self._changed)

    async def fold_to(self, version: int) -> None:
        """Fold up to this version, and write the rows. Raises `DamagedFramesError` and `UnfoldableFrameError`."""
        head = self._refold.head
        async for page in stored_rows.frames(
            self._connection, head.context_id, after=head.version, upto=version
        ):
            self._check(page)
            with TimeLimit():
                piece = self._refold.fold(page)
            if self._staged:
                await stage(self._connection, piece.rows)
            else:
                await write(self._connection, piece.rows, (), by_copy=False)
            self._changed += _settled(piece)
        if head.version != version:
            raise DamagedFramesError(head.context_id, head.version + 1, "it is missing")

    async def finish(self, held: HeldHead, why: str) -> None:
        """Replace rows, outcomes and the head, which the caller's transaction has locked. The fold has to be at the
        version of that head. Raises `DamagedFramesError` if the head is not that of these frames."""
        head = self._refold.head
        if held.parked_version is None and self._chain != held.chain:
            raise DamagedFramesError(head.context_id, head.version, "its chain is not that of the head")
        if self._staged:
            await staged_rows.replace_rows(self._connection, head.context_id)
        if self._changed:
            await parked.settle(self._connection, head.context_id, self._changed, why)
        if held.parked_version is not None:
            # Parked frames are stored, and have no effect on the rows.
            head.version, head.chain = held.version, held.chain
            if (times := await statements.times(self._connection, head.context_id)) is not None:
                head.started_at, head.last_at = times
        head.counters.duplicates = held.duplicate_count
        head.rebuilt, head.stored, head.saved_version = held.rebuilt, True, None
        await write(self._connection, Rows(), [head], by_copy=False)

    def _check(self, page: Iterable[StoredFrameRow]) -> None:
        chain = self._chain
        for frame in page:
            chain = next_link(chain, frame.version, frame.source, frame.payload)
            if chain != frame.chain:
                raise DamagedFramesError(
                    self._refold.head.context_id, frame.version, "its bytes are not those of its chain"
                )
        self._chain = chain


async def fold_aside(
    connection: Connection, context_id: ContextId, staged_above: int, failpoint: Failpoint = failpoints.none
) -> RebuildFold | None:
    """Returns the fold of a conversation with more versions than `staged_above`, nearly up to its newest frame, with
    its rows staged in the caller's transaction, and without a lock. Returns None for a shorter one, and if it has to be
    folded under its lock: because the database user may not create temporary tables, or because it was erased.

    Raises `DamagedFramesError` and `UnfoldableFrameError`.
    """
    seen = await statements.look(connection, context_id)
    if (
        seen is None
        or seen.folded_version <= staged_above
        or not await staged_rows.may_stage(connection)
        or await erasures.not_honoured(connection, context_id) is not None
    ):
        return None
    await staged_rows.create(connection)
    await failpoint("before fold")
    head = await stored_heads.beginning(connection, context_id)
    folding = RebuildFold(connection, head, staged=True)
    for _ in range(MAX_ROUNDS):
        # Read after the beginning: a version that was read before an erasure in between would belong to another life.
        seen = await statements.look(connection, context_id)
        if seen is None:
            return None
        if seen.folded_version - folding.version <= staged_above:
            break
        try:
            await folding.fold_to(seen.folded_version)
        except (DamagedFramesError, UnfoldableFrameError):
            if await began(connection, context_id) == folding.began:
                raise
            return None
    await staged_rows.analyze(connection)
    return folding


async def began(connection: Connection, context_id: ContextId) -> tuple[int, bytes]:
    """Returns the beginning of a conversation's current life, as in `RebuildFold.began`."""
    head = await stored_heads.beginning(connection, context_id)
    return head.version, head.chain


def _settled(piece: FoldedPiece) -> list[Settled]:
    """Returns the frames whose outcome differs in this release, with the new outcome."""
    return [
        Settled(one.version, derived.outcome, derived.reason)
        for one, derived in zip(piece.frames, piece.derived, strict=True)
        if (derived.outcome, derived.reason) != (one.outcome, one.reason)
    ]
