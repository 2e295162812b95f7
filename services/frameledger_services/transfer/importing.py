"""Import: writes the conversations of a file as the rows that a projector would have written, and publishes nothing.

First the whole file is checked (`check`): seals, hash chains, that every frame can be folded, and that no id is in use.
Then the conversations are written (`write`), each in one transaction. If the process dies in between, only some of them
are imported. The same import can be run again: it skips conversations that were imported before, even if they have
continued since, and imports the rest. If a projector begins a conversation with the same id at the same time, the
transaction fails, the import is refused, and that conversation is kept. A conversation that a concurrent import of the
same file has written is skipped, too.

A projector that begins the conversation waits for the end of the transaction, with its whole partition. So a long
conversation is staged first, as by a rebuild, and then inserted at once (`store.staged_rows`). And nothing is written
by COPY: within one, PostgreSQL waits without limit for a process that has stalled. Otherwise the session's
`idle_in_transaction_session_timeout` ends it, also if it is the file that stalls.

A conversation is omitted if it was exported as parked, and this release cannot fold the parked frame either: one bad
frame does not make a file useless.

An import has no effects and leaves no open work: if a run, a call, a turn or speech is open at the end of the file, an
`EndFrame` is added as one more version. It settles everything by rule R1.6, and the next frame with content reopens the
conversation. A recording is not changed, because nothing acts on it.

`import_folding` folds the frames of the file.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from psycopg import errors

from frameledger.errors import RefusedError
from frameledger.values import value
from frameledger_services import failpoints
from frameledger_services.database_types import Connection
from frameledger_services.failpoints import Failpoint
from frameledger_services.projector.head import Head
from frameledger_services.projector.rebuild_fold import STAGED_ABOVE
from frameledger_services.projector.rows import Rows
from frameledger_services.projector.writer import stage as stage_rows
from frameledger_services.projector.writer import write as write_rows
from frameledger_services.store import staged_rows, tables, transfer
from frameledger_services.store.frame_pages import PAGE_BYTES, PAGE_FRAMES
from frameledger_services.store.staged_rows import STAGED
from frameledger_services.store.transfer import StoredPresence
from frameledger_services.transfer import lines
from frameledger_services.transfer.import_folding import ImportFolding, moved_id
from frameledger_services.transfer.lines import BadFileError, FrameLine, Header

IDS_AT_ONCE = 500


class ImportRefusedError(RefusedError):
    """A conversation of the file is not imported: its id is in use, or was erased here. The message says which. Nothing
    is written, unless the id came into use after the check.

    Remedy: Import into another database, or omit the conversation. A file does not restore an erased conversation.
    """


@value
class Checked:
    """A checked conversation of a file."""

    header: Header
    left_open: bool
    """Whether work was open at its end."""

    refolded: tuple[int, ...]
    """The first few versions whose outcome in this release differs from the one in the file."""

    unfoldable: str | None
    """Why it is omitted: it was exported as parked, and this release cannot fold it either."""


@dataclass(slots=True)
class Imported:
    """The result of an import."""

    conversations: int = 0
    frames: int = 0
    there_already: int = 0
    ended: int = 0
    """Conversations with open work: an `EndFrame` was added."""

    left_out: list[str] = field(default_factory=list)
    """The ids of parked conversations that this release cannot fold."""


Report = Callable[[int], None]
"""Called with the number of frames done since the last call."""


async def check(file_lines: Iterable[bytes], report: Report) -> AsyncIterator[Checked]:
    """Yields each conversation of a file after all of it was checked. Raises `BadFileError`, which names the line."""
    for header, pages in _conversations(file_lines):
        folding = ImportFolding(header)
        for page in pages:
            if folding.unfoldable is None:
                folding.fold(page)
            report(len(page))
            await _allow_cancellation()
        yield Checked(header, folding.is_left_open, tuple(folding.refolded), folding.unfoldable)


async def check_free(connection: Connection, checked: AsyncIterator[Checked]) -> Imported:
    """Check all conversations of a file: each must be absent here, or identical. Returns the import to do. Raises
    `BadFileError` and `ImportRefusedError`."""
    to_do = Imported()
    batch: list[Checked] = []
    async for conversation in checked:
        batch.append(conversation)
        if len(batch) == IDS_AT_ONCE:
            await _check_batch(connection, batch, to_do)
            batch = []
    await _check_batch(connection, batch, to_do)
    return to_do


async def write(
    connection: Connection,
    file_lines: Iterable[bytes],
    report: Report,
    failpoint: Failpoint = failpoints.none,
    *,
    left_out: Sequence[str] = (),
) -> Imported:
    """Import the conversations of a checked file, except those that `check_free` omitted. Skips those that exist.

    Raises `ImportRefusedError` if another conversation has taken the id since, and `BadFileError`: the conversations
    before it are then imported, and nothing of this one.
    """
    imported = Imported()
    omitted = frozenset(left_out)
    for header, pages in _conversations(file_lines):
        [stored] = await transfer.presence(connection, [(header.context_id, header.version)])
        if _exists(stored, header):
            imported.there_already += 1
            await _skip(pages, report)
            continue
        if header.context_id in omitted:
            imported.left_out.append(header.context_id)
            await _skip(pages, report)
            continue
        try:
            async with connection.transaction():
                await failpoint("before first page")
                await _write(connection, header, pages, imported, report, failpoint)
                # An erasing frame becomes version 1, like our first frame: either it came first and is visible here, or
                # its projector waits for our commit and erases what we wrote.
                [stored] = await transfer.presence(connection, [(header.context_id, header.version)])
                _check_not_erased(stored)
                await failpoint("before commit")
        except errors.UniqueViolation as error:
            if error.diag.constraint_name == "frames_frame_id_key":
                raise BadFileError(header.line, f"{header.context_id!r} has two frames of one id") from error
            [stored] = await transfer.presence(connection, [(header.context_id, header.version)])
            if not _exists(stored, header):
                raise _began_during_import(header) from error
            # A concurrent import of the same file was faster.
            imported.there_already += 1
            await _skip(pages, report)
            continue
        except errors.DeadlockDetected as error:
            # A batch that erases the conversation and begins it again writes the erasing frame before the head.
            raise _began_during_import(header) from error
        imported.conversations += 1
        imported.frames += header.version
        await failpoint("after commit")
    return imported


async def _skip(pages: Iterable[Sequence[FrameLine]], report: Report) -> None:
    for page in pages:
        report(len(page))
        await _allow_cancellation()


async def _allow_cancellation() -> None:
    """Await once, because Ctrl-C cancels the importing task, which notices it only where it awaits."""
    await asyncio.sleep(0)


def _began_during_import(header: Header) -> ImportRefusedError:
    return ImportRefusedError(
        f"{header.context_id!r} was created in this database during the import; nothing of it was written."
    )


async def _write(
    connection: Connection,
    header: Header,
    pages: Iterable[Sequence[FrameLine]],
    imported: Imported,
    report: Report,
    failpoint: Failpoint,
) -> None:
    folding = ImportFolding(header)
    head = folding.head
    is_staged = header.version > STAGED_ABOVE and await staged_rows.may_stage(connection)
    if is_staged:
        await staged_rows.create(connection, with_frames=True)
    frames = STAGED[tables.frames] if is_staged else tables.frames
    is_current = False
    for page in pages:
        causes = {moved_id(one.causation_id) for one in page if one.causation_id is not None}
        moved = await transfer.stored_ids(connection, header.context_id, causes, frames) if causes else set()
        is_current = not is_staged and not head.stored
        await _write_page(connection, folding.rows(page, moved), head, is_staged=is_staged)
        await failpoint("after page")
        report(len(page))
    if (closing := folding.closing()) is not None:
        await _write_page(connection, folding.rows([closing], set()), head, is_staged=is_staged)
        is_current = False
        imported.ended += 1
    if not is_current:
        # The state is stored, however few frames there are since the last stored one.
        head.saved_version = None
        await write_rows(connection, Rows(), [head], by_copy=False)
    if is_staged:
        await failpoint("before insert")
        await staged_rows.insert_rows(connection)


async def _write_page(connection: Connection, rows: Rows, head: Head, *, is_staged: bool) -> None:
    if is_staged:
        await stage_rows(connection, rows)
        return
    # A batch writes the heads first, and so does the first page: with a projector that begins the conversation at the
    # same time, one waits for the other, and never both.
    await write_rows(connection, rows, [] if head.stored else [head], by_copy=False)
    head.stored = True


async def _check_batch(connection: Connection, batch: Sequence[Checked], to_do: Imported) -> None:
    versions = [(one.header.context_id, one.header.version) for one in batch]
    for conversation, stored in zip(batch, await transfer.presence(connection, versions), strict=True):
        if _exists(stored, conversation.header):
            to_do.there_already += 1
        elif conversation.unfoldable is not None:
            to_do.left_out.append(conversation.header.context_id)
        else:
            to_do.conversations += 1
            to_do.frames += conversation.header.version
            to_do.ended += conversation.left_open


def _exists(stored: StoredPresence, header: Header) -> bool:
    """Returns whether the conversation of this header exists here. Raises `ImportRefusedError` if another one has its
    id."""
    _check_not_erased(stored)
    if stored.version is None:
        return False
    if stored.chain != header.chain:
        raise ImportRefusedError(
            f"The conversation {header.context_id!r} exists here already, at version {stored.version}, and does not "
            f"have version {header.version} of the file."
        )
    return True


def _check_not_erased(stored: StoredPresence) -> None:
    if stored.erased_at is not None:
        raise ImportRefusedError(
            f"{stored.context_id!r} was erased here on {stored.erased_at:%Y-%m-%d}: a file does not restore it."
        )


def _conversations(file_lines: Iterable[bytes]) -> Iterator[tuple[Header, Iterator[list[FrameLine]]]]:
    """Yields each header with the pages of its frames, which must be read before the next header."""
    rest = lines.read(file_lines)
    header = next(rest, None)
    while isinstance(header, Header):
        following: list[Header] = []
        yield header, _pages(rest, following)
        header = following[0] if following else None


def _pages(rest: Iterator[Header | FrameLine], following: list[Header]) -> Iterator[list[FrameLine]]:
    page: list[FrameLine] = []
    size = 0
    for line in rest:
        if isinstance(line, Header):
            following.append(line)
            break
        page.append(line)
        size += len(line.payload)
        if len(page) >= PAGE_FRAMES or size >= PAGE_BYTES:
            yield page
            page, size = [], 0
    if page:
        yield page
