"""Export: reads conversations from their rows, in pages of frames, each conversation in one snapshot.

So each conversation is complete and consistent despite concurrent writes; two conversations of an export may be from
different moments. Memory holds one page, whatever the number and length of the conversations.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime

from frameledger.errors import RefusedError
from frameledger_services.database_types import Connection
from frameledger_services.store import contexts, transfer
from frameledger_services.store.transfer import Exported, ExportedFrame
from frameledger_services.transfer.lines import LineWriter

Write = Callable[[bytes], object]
Pages = AsyncGenerator[list[ExportedFrame], None]
Export = Callable[[Exported, Pages], Awaitable[None]]
"""Exports one conversation, given its head and its frames."""


class EarlierLifeError(RefusedError):
    """A conversation continues after an erasure, from a version and a link of the chain whose frames are deleted. A
    file could not prove that it is complete.

    Remedy: Export it in another format, or fork it and export the fork.
    """

    def __init__(self, context_id: str, first: int) -> None:
        super().__init__(
            f"{context_id!r} begins at version {first}: earlier versions were erased. A file that can be imported "
            "holds a conversation from version 1."
        )
        self.context_id = context_id


async def selected_ids(
    connection: Connection, context_ids: Sequence[str], since: datetime | None
) -> AsyncIterator[str]:
    """Yields these ids; if there are none, the ids of all conversations, or of those with a frame `since`."""
    for context_id in context_ids:
        yield context_id
    if not context_ids:
        async for context_id in transfer.conversations(connection, since):
            yield context_id


async def each(connection: Connection, context_ids: AsyncIterable[str], export: Export) -> int:
    """Export conversations one by one, each in one snapshot. Returns their number. A conversation that was erased after
    its id was listed is skipped; `check_exist` is for ids that the user named."""
    count = 0
    async for context_id in context_ids:
        async with connection.transaction():
            head = await transfer.exported(connection, context_id)
            if head is not None:
                await export(head, transfer.exported_frames(connection, context_id))
                count += 1
    return count


async def check_exist(connection: Connection, context_ids: Sequence[str]) -> None:
    """Raise `NoSuchContextError` or `ContextErasedError` for the first of these conversations that does not exist."""
    for conversation in await transfer.presence(connection, [(context_id, 0) for context_id in context_ids]):
        if conversation.version is None:
            raise await contexts.missing(connection, conversation.context_id)


class LineExport:
    """Exports conversations in the lossless format (`lines`)."""

    def __init__(self, release: str, write: Write) -> None:
        self._writer = LineWriter(release)
        self._write = write

    async def export(self, head: Exported, pages: Pages) -> None:
        """Write one conversation. Raises `EarlierLifeError` before anything of it is written."""
        has_begun = False
        async for page in pages:
            if not has_begun:
                if page[0].version != 1:
                    raise EarlierLifeError(head.context_id, page[0].version)
                self._write(self._writer.header(head))
                has_begun = True
            for frame in page:
                self._write(self._writer.frame(frame))
