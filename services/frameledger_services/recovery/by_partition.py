"""Splits the result of one statement by partition."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Generic, Protocol, TypeVar


class OfPartition(Protocol):
    """A row that names a partition."""

    @property
    def partition(self) -> int: ...


_R = TypeVar("_R", bound=OfPartition)


class ByPartition(Generic[_R]):
    """The rows of a statement, read one partition after the other."""

    def __init__(self, rows: AsyncIterator[_R]) -> None:
        """`rows` are in the order of their partitions."""
        self._rows = rows
        self._next: _R | None = None

    async def of(self, partition: int) -> AsyncGenerator[_R, None]:
        """Yields the rows of a partition. Call it in the order of partitions; unread rows are skipped."""
        row, self._next = self._next, None
        if row is None:
            row = await anext(self._rows, None)
        while row is not None and row.partition <= partition:
            if row.partition == partition:
                yield row
            row = await anext(self._rows, None)
        self._next = row
