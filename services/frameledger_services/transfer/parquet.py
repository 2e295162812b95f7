"""Conversations as Parquet: four files in a folder, one for each table, which DuckDB and pandas open.

`frames`, `messages`, `runs` and `calls` have the columns of the tables of the same name (`calls`: `tool_calls`), with
times as timestamps in UTC, JSON and UUIDs as text, and links of the chain as bytes. Rows are written as they are read,
a few thousand per row group, so memory does not grow with the size of the export.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

from sqlalchemy import Table

from frameledger_services import unfinished_file
from frameledger_services.database_types import Connection
from frameledger_services.extras import needed
from frameledger_services.store import stored_rows, tables, transfer
from frameledger_services.store.binary_copy import type_name
from frameledger_services.store.transfer import Exported
from frameledger_services.transfer.exporting import Pages

with needed("parquet"):
    import pyarrow
    from pyarrow import parquet


ROWS_OF_A_GROUP = 5_000
BYTES_OF_A_GROUP = 64 * 1024 * 1024
"""A row group is written when it has this many rows, or about this many bytes of text and JSON."""

FILES = {
    "frames": tables.frames,
    "messages": tables.messages,
    "runs": tables.runs,
    "calls": tables.tool_calls,
}

_TYPES = {
    "text": pyarrow.string(),
    "json": pyarrow.string(),
    "uuid": pyarrow.string(),
    "int4": pyarrow.int32(),
    "int8": pyarrow.int64(),
    "bool": pyarrow.bool_(),
    "float8": pyarrow.float64(),
    "bytea": pyarrow.binary(),
    "timestamptz": pyarrow.timestamp("us", tz="UTC"),
}


class Parquet:
    """Writes the four files into a folder. They get their names when all are complete and on disk; after an error none
    remains."""

    def __init__(self, connection: Connection, folder: Path) -> None:
        self._connection = connection
        self._folder = folder
        self._files: list[_File] = []

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._files = [_File(self._folder, name, table) for name, table in FILES.items()]
        try:
            for file in self._files:
                file.open()
        except BaseException:
            self._discard()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                for file in self._files:
                    file.close()
                # All earlier ones first: a process that dies in between leaves fewer than four files, and not files of
                # two exports.
                for file in self._files:
                    file.path.unlink(missing_ok=True)
                for file in self._files:
                    file.finish()
        finally:
            self._discard()

    def _discard(self) -> None:
        for file in self._files:
            file.discard()

    async def export(self, head: Exported, pages: Pages) -> None:
        """Write the rows of one conversation; `pages` are not used."""
        for file in self._files:
            async for rows in transfer.table_rows(self._connection, file.table, head.context_id):
                file.add(rows)

    @property
    def bytes(self) -> int:
        """The size of the finished files."""
        return sum(file.path.stat().st_size for file in self._files)


class _File:
    def __init__(self, folder: Path, name: str, table: Table) -> None:
        self.table = table
        self.path = folder / f"{name}.parquet"
        self._unfinished: Path | None = None
        self._locked: BinaryIO | None = None
        self._schema = _schema(table)
        self._writer: Any = None
        self._rows: list[tuple[Any, ...]] = []
        self._bytes = 0

    def open(self) -> None:
        self._unfinished, self._locked = unfinished_file.create(self.path, "part")
        self._writer = parquet.ParquetWriter(self._unfinished, self._schema, compression="zstd")

    def add(self, rows: Sequence[tuple[Any, ...]]) -> None:
        self._rows += rows
        self._bytes += sum(len(value) for row in rows for value in row if isinstance(value, str))
        if len(self._rows) >= ROWS_OF_A_GROUP or self._bytes >= BYTES_OF_A_GROUP:
            self._write()

    def close(self) -> None:
        if self._rows:
            self._write()
        self._writer.close()
        assert self._locked is not None, "it was opened"
        os.fsync(self._locked.fileno())

    def finish(self) -> None:
        assert self._unfinished is not None, "it was opened"
        self._unfinished.replace(self.path)

    def discard(self) -> None:
        """Delete unfinished files, which still have temporary names."""
        if self._writer is not None and self._writer.is_open:
            with suppress(OSError):
                # Closing writes the end of the file first, for which the disk may have no space.
                self._writer.close()
            self._writer.is_open = False
        if self._unfinished is not None:
            self._unfinished.unlink(missing_ok=True)
        if self._locked is not None:
            self._locked.close()

    def _write(self) -> None:
        columns = zip(*self._rows, strict=True)
        arrays = [
            pyarrow.array(values, field.type) for values, field in zip(columns, self._schema, strict=True)
        ]
        self._writer.write_table(pyarrow.Table.from_arrays(arrays, schema=self._schema))
        self._rows, self._bytes = [], 0


def _schema(table: Table) -> Any:
    return pyarrow.schema(
        [(name, _TYPES[type_name(table, name)]) for name in stored_rows.names(table)],
        metadata={"frameledger": table.name},
    )
