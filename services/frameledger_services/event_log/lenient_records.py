"""Fetched batches whose records can be read whatever the names of their headers are.

A broker does not check that header names are UTF-8, and aiokafka raises for a batch with one that is not, each time it
is fetched, so that a partition could not be read beyond it. Here such a name is decoded with replacement characters, as
in Java. This applies only to names; keys, values and header values are bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, SupportsIndex, overload

from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import _DefaultRecordBatchPy
from aiokafka.record.memory_records import MemoryRecords, _MemoryRecordsPy


def records(raw: bytes | None) -> Any:
    """Returns the batches of one partition in a fetch response. Most have none, for which aiokafka's class is used."""
    return LenientRecords(raw) if raw else MemoryRecords(raw)


class LenientRecords(_MemoryRecordsPy):  # type: ignore[misc]  # aiokafka is untyped, so it is Any
    """The batches of one partition in a fetch response. In Python, which costs a microsecond per batch."""

    def next_batch(self) -> Any:
        """Returns the next batch, which decodes with aiokafka's C extension; None if there is none."""
        raw = self._next_slice
        batch = super().next_batch()
        return None if batch is None else _LenientBatch(batch, raw)


class _LenientBatch:
    """A batch that is decoded by aiokafka as long as that succeeds."""

    def __init__(self, batch: Any, raw: memoryview) -> None:
        self._batch = batch
        self._raw = raw

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __next__(self) -> Any:
        # This is how aiokafka reads control batches, which have no headers.
        return next(self._batch)

    def __iter__(self) -> Iterator[Any]:
        read = 0
        try:
            for record in self._batch:
                yield record
                read += 1
        except (UnicodeDecodeError, CorruptRecordException) as error:
            if not _is_header_name_error(error):
                raise
            for number, record in enumerate(self._again()):
                if number >= read:
                    yield record

    def _again(self) -> Any:
        batch = _DefaultRecordBatchPy(self._raw)
        batch._maybe_uncompress()
        batch._buffer = _LenientBuffer(batch._buffer)
        return batch


def _is_header_name_error(error: Exception) -> bool:
    """Returns whether the error is about a header name, the only text in a batch. aiokafka's decoder in Python wraps
    the error in its own."""
    return isinstance(error, UnicodeDecodeError) or isinstance(error.__cause__, UnicodeDecodeError)


class _LenientBuffer(bytearray):
    """Bytes whose decoding never fails."""

    @overload
    def __getitem__(self, index: SupportsIndex) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> _LenientBuffer: ...
    def __getitem__(self, index: SupportsIndex | slice) -> int | _LenientBuffer:
        item = super().__getitem__(index)
        return _LenientBuffer(item) if isinstance(item, bytearray) else item

    def decode(self, encoding: str = "utf-8", errors: str = "replace") -> str:
        return super().decode(encoding, errors)
