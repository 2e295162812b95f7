"""Import: conversations of a file become rows, as a projector would have written them. Nothing is published.

First the whole file is read and checked (`check`): seals, chains, that every frame can be folded, and that no id is
taken. Only then is anything written (`write`), each conversation in one transaction. A process that dies between any
two lines leaves whole conversations and nothing else; the same import again finds those there, the same up to the end
of the file's, and goes on with the others. A conversation that a projector begins under the same id in the meantime is
kept: the transaction fails, and the import is refused.

An import has no effects, and leaves nothing open that a worker or the timekeeper would go on with: if a run, a call, a
turn or speech was open at the end of the file, an `EndFrame` follows as one version more, which settles all of it by
rule R1.6, and which the next frame that says something undoes. A recording stays as it is, since nobody works on it.

A frame that came without an id has one that follows from its place on the log (`record.derived_id`). On the log of this
database another record may come to the same place, and would be taken for a repetition of it; so such a frame gets
another id here, which follows from the one it had, and who names it as a cause names the new one.

What was parked is folded here if this release can; otherwise the conversation is refused, like any other that does not
fold. A frame of a type that was unknown stays unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID, uuid5

from psycopg import errors

from frameledger.chain import next_link
from frameledger.errors import RefusedError
from frameledger.evolve.state import Runs, State
from frameledger.frames import EndFrame, encode_frame
from frameledger.ids import ContextId
from frameledger.values import replace, value
from frameledger_services import failpoints
from frameledger_services.database_types import Connection
from frameledger_services.failpoints import Failpoint
from frameledger_services.projector.head import Head
from frameledger_services.projector.refold import FoldedPiece, Refold, UnfoldableFrameError
from frameledger_services.projector.rows import FrameRow, Rows
from frameledger_services.projector.writer import write as write_rows
from frameledger_services.store import transfer
from frameledger_services.store.frame_ids import frame_uuid
from frameledger_services.store.frame_pages import PAGE_BYTES, PAGE_FRAMES
from frameledger_services.store.stored_rows import StoredFrameRow
from frameledger_services.store.transfer import NO_LOG_GENERATION, NO_LOG_PARTITION, StoredPresence
from frameledger_services.transfer import lines
from frameledger_services.transfer.lines import BadFileError, FrameLine, Header

SOURCE = "frameledger/import"

IDS = UUID("6d2a1c0e-8f3b-5a47-9c15-3e7d40b8a2f6")
"""The namespace of the ids that an import gives. It never changes: stored ids came from it."""

IDS_AT_ONCE = 500


class ImportRefusedError(RefusedError):
    """A conversation of the file is not imported: its id is taken, or was erased here. The message says which. Nothing
    is written, unless the id was taken only after all were checked.

    Remedy: Import into another database, or leave the conversation out. What was erased is not brought back by a file.
    """


@value
class Checked:
    """A conversation of a file that was checked."""

    header: Header
    left_open: bool
    """Something was open at its end."""

    refolded: tuple[int, ...]
    """The first versions, a few at most, whose outcome by the rules of this release is not the one in the file."""


@dataclass(slots=True)
class Imported:
    """What became of a file."""

    conversations: int = 0
    frames: int = 0
    there_already: int = 0
    ended: int = 0
    """Conversations of which something was open: an `EndFrame` was added."""


Told = Callable[[int], None]
"""Is told how many frames were done."""


def check(found: Iterable[bytes], told: Told) -> Iterator[Checked]:
    """Yields the conversations of a file, each once all of it was checked. Raises `BadFileError`, with the line."""
    for header, pages in _conversations(found):
        folding = _Folding(header)
        for page in pages:
            folding.fold(page)
            told(len(page))
        yield Checked(header, folding.is_left_open, tuple(folding.refolded))


async def check_free(connection: Connection, checked: Iterator[Checked]) -> Imported:
    """Check all conversations of a file, and that each is not here yet, or is the same here already. Returns what is to
    be imported. Raises `BadFileError` and `ImportRefusedError`."""
    to_do = Imported()
    names = set[str]()
    batch: list[Checked] = []
    for one in checked:
        if one.header.context_id in names:
            raise BadFileError(one.header.line, f"{one.header.context_id!r} is in this file twice")
        names.add(one.header.context_id)
        batch.append(one)
        if len(batch) == IDS_AT_ONCE:
            await _check_batch(connection, batch, to_do)
            batch = []
    await _check_batch(connection, batch, to_do)
    return to_do


async def write(
    connection: Connection, found: Iterable[bytes], told: Told, failpoint: Failpoint = failpoints.none
) -> Imported:
    """Import the conversations of a file that was checked; those that are here already are passed over.

    Raises `ImportRefusedError` if another one is here by now, and `BadFileError`: then those before are imported, and
    nothing of this one.
    """
    done = Imported()
    for header, pages in _conversations(found):
        [there] = await transfer.presence(connection, [(header.context_id, header.version)])
        if _is_there(there, header):
            done.there_already += 1
            for page in pages:
                told(len(page))
            continue
        try:
            async with connection.transaction():
                await _write(connection, header, pages, done, told, failpoint)
                await failpoint("before commit")
        except errors.UniqueViolation as error:
            if error.diag.constraint_name == "frames_frame_id_key":
                raise BadFileError(header.line, f"{header.context_id!r} has two frames of one id") from error
            raise ImportRefusedError(
                f"{header.context_id!r} began in this database while it was being imported; nothing of it was written."
            ) from error
        done.conversations += 1
        done.frames += header.version
        await failpoint("after commit")
    return done


async def _write(
    connection: Connection,
    header: Header,
    pages: Iterable[Sequence[FrameLine]],
    done: Imported,
    told: Told,
    failpoint: Failpoint,
) -> None:
    folding = _Folding(header)
    for page in pages:
        causes = {_moved(one.causation_id) for one in page if one.causation_id is not None}
        moved = await transfer.stored_ids(connection, header.context_id, causes) if causes else set()
        await write_rows(connection, folding.rows(page, moved), ())
        await failpoint("after page")
        told(len(page))
    if (closing := folding.closing()) is not None:
        await write_rows(connection, folding.rows([closing], set()), ())
        done.ended += 1
    await write_rows(connection, Rows(), [folding.head])


class _Folding:
    """One conversation of a file while it is folded."""

    def __init__(self, header: Header) -> None:
        self._header = header
        self._refold = Refold(Head.new(ContextId(header.context_id)))
        self.refolded: list[int] = []

    @property
    def head(self) -> Head:
        return self._refold.head

    @property
    def is_left_open(self) -> bool:
        return is_open(self.head.state)

    def fold(self, page: Sequence[FrameLine]) -> FoldedPiece:
        """Fold some frames; raises `BadFileError` for one that cannot be."""
        last = self.head.last_at
        stored = [_stored(one) for one in page]
        try:
            piece = self._refold.fold(stored)
        except UnfoldableFrameError as error:
            raise BadFileError(
                _line_of(page, error.version), f"{self._header.context_id!r}: {error}"
            ) from error
        for one, derived, own_id in zip(page, piece.derived, piece.own_ids, strict=True):
            if own_id is not None and frame_uuid(own_id) != one.frame_id:
                raise BadFileError(
                    one.line, f"the payload has the id {own_id!r}, and the line {one.frame_id}"
                )
            if last is not None and one.logged_at < last:
                raise BadFileError(one.line, f"version {one.version} was logged before the one before it")
            last = one.logged_at
            _, kind, outcome, reason, _, _ = derived
            if kind == "LLMContextEraseFrame":
                raise BadFileError(
                    one.line, "it erases the conversation, and no export holds what was erased"
                )
            if (outcome, reason) != (one.outcome, one.reason) and len(self.refolded) < _A_FEW:
                self.refolded.append(one.version)
        return piece

    def rows(self, page: Sequence[FrameLine], moved: set[UUID]) -> Rows:
        """Returns the rows of some frames, those of `frames` among them. `moved` has the new ids of earlier frames that
        came without one, as far as they are causes here, and gets those of this page."""
        piece = self.fold(page)
        rows = piece.rows
        for one, derived, own_id in zip(page, piece.derived, piece.own_ids, strict=True):
            produced_at, kind, outcome, reason, run_id, tool_call_id = derived
            frame_id, cause = one.frame_id, one.causation_id
            if own_id is None:
                frame_id = _moved(frame_id)
                moved.add(frame_id)
            if cause is not None and _moved(cause) in moved:
                cause = _moved(cause)
            row = FrameRow(
                context_id=self._header.context_id,
                version=one.version,
                frame_id=frame_id,
                logged_at=one.logged_at,
                produced_at=produced_at,
                offset=one.version,
                partition=NO_LOG_PARTITION,
                type=kind,
                outcome=outcome,
                reason=reason,
                run_id=run_id,
                tool_call_id=tool_call_id,
                source=one.source,
                trace_id=one.trace_id,
                chain=one.chain,
                payload=one.payload,
                generation=NO_LOG_GENERATION,
                causation_id=cause,
            )
            rows.frames.append(row)
        return rows

    def closing(self) -> FrameLine | None:
        """Returns the frame that settles what is open; None if nothing is."""
        head = self.head
        if not is_open(head.state):
            return None
        version, logged_at = head.version + 1, head.last_at
        assert logged_at is not None, "a conversation has a frame"
        own_id = uuid5(IDS, f"{head.chain.hex()}:{head.context_id}")
        payload = encode_frame(
            EndFrame(id=str(own_id), metadata={"why": "imported while something was open"})
        )
        chain = next_link(head.chain, version, SOURCE, payload)
        return FrameLine(0, version, own_id, SOURCE, logged_at, None, None, chain, "applied", None, payload)


_A_FEW = 10


def _moved(frame_id: UUID) -> UUID:
    return uuid5(IDS, str(frame_id))


def is_open(state: State) -> bool:
    """Whether a conversation that is no recording has anything open that a worker or the timekeeper would act on. For a
    noted run neither does: its answer comes from elsewhere, if at all (R4.5)."""
    if state.terms.recording:
        return False
    resting = replace(
        State(state.context_id, state.version, state.place, state.terms),
        speech=replace(state.speech, response=None, thought=None, bot_since=None),
        runs=Runs(noted=state.runs.noted),
        calls=replace(state.calls, open={}, groups={}),
        erased=state.erased,
        changed_version=state.changed_version,
        pace=state.pace,
    )
    return state != resting


async def _check_batch(connection: Connection, batch: Sequence[Checked], to_do: Imported) -> None:
    asked = [(one.header.context_id, one.header.version) for one in batch]
    for one, there in zip(batch, await transfer.presence(connection, asked), strict=True):
        if _is_there(there, one.header):
            to_do.there_already += 1
        else:
            to_do.conversations += 1
            to_do.frames += one.header.version
            to_do.ended += one.left_open


def _is_there(there: StoredPresence, header: Header) -> bool:
    """Whether the conversation of this header is here already. Raises `ImportRefusedError` if another one is."""
    if there.erased_at is not None:
        raise ImportRefusedError(
            f"{header.context_id!r} was erased here on {there.erased_at:%Y-%m-%d}: a file does not bring it back."
        )
    if there.version is None:
        return False
    if there.chain != header.chain:
        raise ImportRefusedError(
            f"There is a conversation {header.context_id!r} here already, of {there.version} versions, and it is not "
            "the one in the file."
        )
    return True


def _conversations(found: Iterable[bytes]) -> Iterator[tuple[Header, Iterator[list[FrameLine]]]]:
    """Yields each header with the pages of its frames, which have to be read before the next header is."""
    rest = lines.read(found)
    header = next(rest, None)
    while isinstance(header, Header):
        following: list[Header] = []
        yield header, _pages(rest, following)
        header = following[0] if following else None


def _pages(rest: Iterator[Header | FrameLine], following: list[Header]) -> Iterator[list[FrameLine]]:
    page: list[FrameLine] = []
    size = 0
    for one in rest:
        if isinstance(one, Header):
            following.append(one)
            break
        page.append(one)
        size += len(one.payload)
        if len(page) >= PAGE_FRAMES or size >= PAGE_BYTES:
            yield page
            page, size = [], 0
    if page:
        yield page


def _stored(one: FrameLine) -> StoredFrameRow:
    # What follows from the payload is made again, not taken from the file.
    derived: tuple[datetime | None, str] = (None, "")
    return StoredFrameRow(
        one.version,
        one.logged_at,
        one.source,
        one.payload,
        one.chain,
        str(one.frame_id),
        *derived,
        one.outcome,
        one.reason,
        None,
        None,
    )


def _line_of(page: Sequence[FrameLine], version: int) -> int:
    return next((one.line for one in page if one.version == version), page[0].line)
