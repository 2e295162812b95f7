"""The frames of one conversation in pages of bounded size, with the columns that the reader chooses.

Each page is read by one statement and kept in memory. Everything is read in the caller's transaction, which has to be
REPEATABLE READ so that all pages are from one snapshot.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Any, Generic, Protocol, TypeVar

from frameledger_services.database_types import Connection
from frameledger_services.store.valid_to import FOR_EVER

PAGE_FRAMES = 500
PAGE_BYTES = 4 * 1024 * 1024
"""Default limits of a page."""


class _HasVersion(Protocol):
    @property
    def version(self) -> int: ...


F = TypeVar("F", bound=_HasVersion)


class FramePages(Generic[F]):
    """Reads frames as rows of one kind."""

    def __init__(self, make: Callable[[Iterable[Any]], F], columns: Iterable[str]) -> None:
        """`make` receives the values of `columns` in order, and returns a row that has a version."""
        self._make = make
        self._statement = f"""
            SELECT {selected(columns)}
            FROM (
                SELECT *, sum(octet_length(text)) OVER (ORDER BY version) - octet_length(text) AS bytes_before
                FROM (
                    SELECT *, payload::text AS text
                    FROM frames
                    WHERE context_id = %s AND version > %s AND version <= %s
                    ORDER BY version
                    LIMIT %s
                ) AS next
            ) AS counted
            WHERE bytes_before <= %s
            ORDER BY version
        """

    async def page(
        self,
        connection: Connection,
        context_id: str,
        *,
        after: int = 0,
        upto: int = FOR_EVER,
        limit: int | None = None,
        limit_bytes: int | None = None,
    ) -> list[F]:
        """Returns the frames after a version, in order: at most `limit`, and none after the frame that brings their
        payloads above `limit_bytes`. Empty only if there are no more frames."""
        limits = PAGE_FRAMES if limit is None else limit, PAGE_BYTES if limit_bytes is None else limit_bytes
        async with connection.cursor(binary=True) as cursor:
            await cursor.execute(self._statement, (context_id, after, upto, *limits))
            return list(map(self._make, await cursor.fetchall()))

    async def pages(
        self, connection: Connection, context_id: str, *, after: int = 0, upto: int = FOR_EVER
    ) -> AsyncGenerator[list[F], None]:
        """Yields all frames after `after` and up to `upto`, in order."""
        while after < upto and (page := await self.page(connection, context_id, after=after, upto=upto)):
            yield page
            after = page[-1].version


def selected(columns: Iterable[str], payload: str = "convert_to(text, 'UTF8')") -> str:
    """Returns the SELECT list of these columns of `frames`, with the payload as bytes; `text` is its text."""
    expressions = {"payload": payload, "offset": '"offset"'}
    return ", ".join(expressions.get(name, name) for name in columns)
