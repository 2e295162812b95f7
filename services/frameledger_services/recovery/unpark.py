"""Unparking: after the cause is fixed, the parked frames of a conversation are folded in order.

This runs beside projectors, in transactions of bounded size. Each locks the partition, folds the next parked frames,
and fences the partition's owner, whose cached head is outdated by then. If the process dies in between, the
conversation is parked from a later version on.

Work that the folded frames request is requested now if it is recent, and closed by a frame if it is old
(`wanted_work`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from psycopg import errors

from frameledger.decoding import decode
from frameledger.errors import NotFoundError, RefusedError
from frameledger.evolve import evolve
from frameledger.evolve.state import State
from frameledger.frames import LLMContextEraseFrame
from frameledger.ids import ContextId, Version
from frameledger.react import react
from frameledger.values import replace as replaced
from frameledger_services import transient
from frameledger_services.database_types import Connection
from frameledger_services.event_log.topics import TopicNames
from frameledger_services.projector import stored_heads
from frameledger_services.projector.destination import Send
from frameledger_services.projector.head import Head
from frameledger_services.projector.row_sender import publish_committed
from frameledger_services.projector.row_values import clean
from frameledger_services.projector.rows import Rows, erasure_of
from frameledger_services.projector.step_rows import write_step
from frameledger_services.projector.stored_heads import RefoldError, loaded_head
from frameledger_services.projector.writer import write
from frameledger_services.recovery import wanted_work
from frameledger_services.recovery.wanted_work import Caused
from frameledger_services.store import erasures, parked, progress_channel
from frameledger_services.store import heads as head_statements
from frameledger_services.store.outbox import OutboxRow
from frameledger_services.store.parked import ParkedFrame, Settled

FRAMES_AT_ONCE = 2_000
BYTES_AT_ONCE = 8 * 1024 * 1024
"""Limits of one transaction, so that a projector waits for it no longer than about a second."""

MISSING = "its row is missing; `frameledger rebuild --from kafka --apply` restores it if Kafka still has it"
"""Why a frame that is missing cannot be folded, nor those after it."""


class NotParkedError(NotFoundError):
    """The conversation is not parked, or does not exist.

    Remedy: `frameledger parked` lists parked conversations.
    """


class ContradictoryHeadError(RefusedError):
    """The stored head of a conversation says that frames were folded after the one from which it is parked.

    Remedy: `frameledger rebuild --context ... --apply` computes the head again; all frames are stored.
    """

    def __init__(self, context_id: str, state_version: int, parked_version: int) -> None:
        super().__init__(
            f"The head of {context_id} contradicts itself: it is parked from version {parked_version} on, and its "
            f"state is that of version {state_version}. Frames would be folded twice. They are all stored: "
            "`frameledger rebuild --context ... --apply` computes the head again."
        )


@dataclass(frozen=True, slots=True)
class Unparked:
    """The result of `unpark`. With an `error` the conversation is still parked, from `parked_version` on."""

    folded: int
    parked_version: int | None = None
    error: str | None = None
    record_count: int = 0
    """Number of effects and closing frames that were written."""

    unsent: str | None = None
    """Why those are not published yet; they are in the outbox, for the partition's next owner."""


async def unpark(
    connection: Connection, names: TopicNames, context_id: str, why: str, send: Send
) -> Unparked:
    """Fold the parked frames of a conversation, up to the first that still cannot be folded.

    The connection is the caller's, in autocommit. `why` is stored with every frame whose outcome changes. If it is
    called twice at once, one call waits for the other. Raises `NotParkedError`, `ContradictoryHeadError`,
    `StoredStateError` for a state of a newer release, and psycopg's errors; what was folded by then remains folded.
    """
    unparked = Unparked(0)
    while True:
        part = _Part(connection, names, ContextId(context_id), why)
        is_over = await part.run(is_first=unparked.folded == 0)
        unsent = unparked.unsent
        if part.outbox and unsent is None:
            unsent = await publish_committed(connection, part.outbox, send)
        unparked = Unparked(
            unparked.folded + part.folded,
            part.parked_version,
            part.error,
            unparked.record_count + len(part.outbox),
            unsent,
        )
        if is_over:
            return unparked


class _UnfoldableError(Exception):
    """A frame makes the fold raise."""


class _StillParkedError(Exception):
    """This one frame cannot be folded, or its rows cannot be stored."""

    def __init__(self, version: int, error: str) -> None:
        super().__init__(error)
        self.version = version


class _Part:
    """The part of a conversation that one transaction folds."""

    def __init__(self, connection: Connection, names: TopicNames, context_id: ContextId, why: str) -> None:
        self._connection = connection
        self._names = names
        self._context_id = context_id
        self._why = why
        self._caused: list[Caused] = []
        self._head = Head.new(context_id)
        self.folded = 0
        self.parked_version: int | None = None
        self.error: str | None = None
        self.outbox: list[OutboxRow] = []

    async def run(self, *, is_first: bool) -> bool:
        """Fold and commit. Returns whether nothing is left to do."""
        connection, context_id = self._connection, self._context_id
        partition = await parked.partition_of(connection, context_id)
        if partition is None:
            raise NotParkedError(context_id)
        async with connection.transaction():
            is_held = await parked.fence(connection, self._names.frames, partition)
            now = await parked.hold(connection, context_id)
            if now is None:
                if is_first:
                    raise NotParkedError(context_id)
                return True  # another operator unparked the rest
            first = await self._load()
            if first is None:
                return True
            # From here on it is folded like any other conversation.
            self._head.parked_version = None
            before, newest = self._head.state, self._head.version
            reached = await self._fold_from(first)
            self.folded = reached - first + 1
            # If the partition is held, open work is requested when it has caught up.
            self.outbox = [] if is_held else self._wanted_work(before, now)
            await self._write_end(newest, reached)
            await connection.execute(f"NOTIFY {progress_channel.CHANNEL}")
        return self.error is not None or self.parked_version is None

    async def _load(self) -> int | None:
        """Load the head. Returns the version from which it is parked; None, with an error, if the frames before that
        cannot be folded."""
        stored = (await head_statements.load(self._connection, [self._context_id]))[self._context_id]
        begins = await stored_heads.beginning(self._connection, self._context_id)
        version, state_version = int(stored.row["version"]), int(stored.row["state_version"])
        # The version may have been written by hand, and not exist in the conversation.
        first = min(max(int(stored.row["parked_version"]), begins.version + 1), version + 1)
        if state_version >= first:
            raise ContradictoryHeadError(self._context_id, state_version, first)
        try:
            self._head = loaded_head(self._context_id, stored)
        except RefoldError as behind:
            self.parked_version, self.error = first, str(behind)
            return None
        return first

    async def _fold_from(self, version: int) -> int:
        """Fold the next frames, from this version on, as far as possible. Returns the version that was reached."""
        reached = version - 1
        frames = await self._next_frames(version)
        while (erasing := _first_erasure(frames)) is not None:
            await self._erase(frames[erasing])
            reached, frames = frames[erasing].version, frames[erasing + 1 :]
            if not frames:
                # A stored head has at least one frame, so if the next life has frames, some of them are folded with the
                # erasure.
                frames = await self._next_frames(reached + 1)
        if not frames:
            return reached
        self._head.started_at = self._head.started_at or frames[0].logged_at
        return await self._fold_all(frames)

    async def _next_frames(self, version: int) -> list[ParkedFrame]:
        """Returns the next frames, up to one whose row is missing; then there is an error."""
        frames = await parked.next_frames(
            self._connection, self._context_id, version, limit=FRAMES_AT_ONCE, limit_bytes=BYTES_AT_ONCE
        )
        whole = [frame for number, frame in enumerate(frames, version) if frame.version == number]
        if len(whole) < len(frames) or (not frames and version <= self._head.version):
            self.error = MISSING
        return whole

    async def _erase(self, erasing: ParkedFrame) -> None:
        """Honour an erasure that an older release parked because it did not know the frame: earlier frames need not be
        folded any more, and open work is stopped."""
        frame, head = decode(erasing.payload), self._head
        assert isinstance(frame, LLMContextEraseFrame)
        before = replaced(head.state, version=Version(erasing.version - 1))
        after = evolve(before, frame).state
        self._caused += [Caused(erasing, effect) for effect in react(before, frame, after, erasing.frame_id)]
        erasure = erasure_of(self._context_id, erasing.version, frame, erasing.partition, erasing.offset)
        await erasures.erase(self._connection, [erasure])
        self._head = Head(
            self._context_id,
            after,
            # Unchanged: only the fold is behind.
            chain=head.chain,
            version=head.version,
            last_at=head.last_at,
            stored=True,
            rebuilt=head.rebuilt,
            erased_at=erasing.logged_at,
        )

    async def _fold_all(self, frames: Sequence[ParkedFrame]) -> int:
        """Fold as far as possible. Returns the version that was reached."""
        try:
            await self._fold(frames)
        except _StillParkedError as still:
            self.error = str(still)
            return still.version - 1
        return frames[-1].version

    async def _fold(self, frames: Sequence[ParkedFrame]) -> None:
        """Fold and write frames; if that fails, halve them until the failing one is found."""
        before = replace(self._head, counters=replace(self._head.counters))
        caused = len(self._caused)
        try:
            async with self._connection.transaction():
                rows, settled = self._folded(frames)
                await write(self._connection, rows, (), by_copy=False)
                await parked.settle(self._connection, self._context_id, settled, self._why)
        except (_UnfoldableError, errors.Error) as error:
            if isinstance(error, errors.Error) and not transient.is_refused_data(error):
                raise
            self._head = before
            del self._caused[caused:]
            if len(frames) == 1:
                raise _StillParkedError(frames[0].version, clean(str(error).strip())) from error
            half = len(frames) // 2
            await self._fold(frames[:half])
            await self._fold(frames[half:])

    def _folded(self, frames: Sequence[ParkedFrame]) -> tuple[Rows, list[Settled]]:
        rows, settled = Rows(), []
        head = self._head
        for parked_frame in frames:
            before = head.state
            try:
                frame = decode(parked_frame.payload)
                step = evolve(before, frame, parked_frame.logged_at)
                effects = react(before, frame, step.state, parked_frame.frame_id)
                write_step(rows, head, frame, step, before, parked_frame.logged_at)
            except Exception as error:
                raise _UnfoldableError(f"{type(error).__name__}: {error}") from error
            head.state = step.state
            if step.outcome == "unknown":
                head.counters.unknown += 1
            settled.append(Settled(parked_frame.version, step.outcome, step.reason))
            self._caused += [Caused(parked_frame, effect) for effect in effects]
        return rows, settled

    async def _write_end(self, newest: int, reached: int) -> None:
        """Write the head, the rows of the outbox, and the version from which the conversation is still parked, if it
        is."""
        rows = Rows(outbox=self.outbox)
        if self._head.is_blank:
            # Its newest frame has erased it: there is no head.
            await write(self._connection, rows, (), by_copy=False)
            return
        self._head.saved_version = None
        # A loaded head writes no parked columns; they are written here.
        await write(self._connection, rows, [self._head], by_copy=False)
        if reached == newest:
            await parked.release(self._connection, self._context_id)
        else:
            self.parked_version = reached + 1
            await parked.park_from(self._connection, self._context_id, reached + 1, self.error)

    def _wanted_work(self, before: State, now: datetime) -> list[OutboxRow]:
        return list(wanted_work.outbox(self._names, self._caused, before, self._head.state, now))


def _first_erasure(frames: Sequence[ParkedFrame]) -> int | None:
    """Returns the index of the first of these frames that erases."""
    for index, frame in enumerate(frames):
        if _ERASES in frame.payload and isinstance(decode(frame.payload), LLMContextEraseFrame):
            return index
    return None


_ERASES = b"LLMContextEraseFrame"
