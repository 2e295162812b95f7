"""Compares the rows of runs and calls, which later frames change, with the fold of the frames.

A row is compared when its run or call has ended, or at the end if it is still in progress. The rows are read once, in
the order of the versions at which they began.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import Table

from frameledger_services.audit.column_comparison import NULL_BEFORE, same_json
from frameledger_services.audit.differences import ROW, Differences
from frameledger_services.store import stored_rows
from frameledger_services.store.batch import default_of
from frameledger_services.store.row_parameters import COUNTED
from frameledger_services.store.rows_by_version import RowsByVersion
from frameledger_services.store.valid_to import FOR_EVER

Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class _Pair:
    """The expected and the stored row of a run or call in progress."""

    expected: dict[str, Any]
    stored: dict[str, Any]


class ChangingRows:
    """Compares the rows of one table that later frames change: runs, or calls."""

    def __init__(
        self,
        table: Table,
        key: tuple[str, ...],
        rows: RowsByVersion,
        differences: Differences,
        *,
        is_all: bool,
    ) -> None:
        """With `is_all` the fold began with the conversation, so no row is older than the fold."""
        self._is_all = is_all
        self._name = str(table.name)
        self._key = key
        self._columns = stored_rows.names(table)
        self._json = stored_rows.json_columns(table)
        self._defaults = _defaults(table)
        self._rows = rows
        self._differences = differences
        self._open: dict[Key, _Pair] = {}
        """Rows that later frames may change."""

        self._older: dict[Key, _Pair] = {}
        """Rows that began before the fold. Only the columns that the fold changed are compared."""

    async def compare(
        self,
        new: Mapping[Key, Mapping[str, Any]],
        patches: Mapping[Key, Mapping[str, Any]],
        first: int,
        last: int,
        still_open: set[Key],
    ) -> None:
        """Process the next piece of the fold, the versions `first` to `last`, and compare the rows that ended by then.

        Called once for each piece, in order. `new` has the rows that begin in it, `patches` the columns that it
        changes in any row, and `still_open` the rows that later pieces may change.
        """
        self._begin(new, await self._read(first, last))
        self._patch(patches)
        for key in [key for key in self._open if key not in still_open]:
            self._compare_row(key, self._open.pop(key))

    async def finish(self, after: int) -> None:
        """Compare the remaining rows after the last piece: open ones, and those that began before the fold. Report
        stored rows that are not in the fold. The fold began after the version `after`."""
        for key, pair in self._open.items():
            self._compare_row(key, pair)
        for row in (await self._read(after + 1, FOR_EVER)).values():
            self._add_unexpected(row)
        for key, pair in self._older.items():
            row = pair.stored
            since = {
                name: row[name] for name in row if name.endswith("_version") and (row[name] or 0) > after
            }
            self._compare_row(key, _Pair({**dict.fromkeys(since), **pair.expected}, row))

    async def _read(self, first: int, last: int) -> dict[Key, dict[str, Any]]:
        """Returns the next stored rows, up to the version `last`. Rows with a version below `first` began before the
        fold, and are kept in `_older` instead."""
        rows: dict[Key, dict[str, Any]] = {}
        for version, *values in await self._rows.upto(last):
            row = dict(zip(self._columns, values, strict=True))
            key = tuple(row[name] for name in self._key)
            if version < first and not self._is_all:
                self._older[key] = _Pair({}, row)
            else:
                rows[key] = row
        return rows

    def _begin(self, new: Mapping[Key, Mapping[str, Any]], stored: dict[Key, dict[str, Any]]) -> None:
        """Pair the expected new rows with the `stored` ones."""
        for key, columns in new.items():
            expected = {**self._defaults, **columns}
            if (row := stored.pop(key, None)) is None:
                self._add(int(expected["requested_version"]), key, ROW, None, _shown(expected))
            else:
                self._open[key] = _Pair(expected, row)
        for row in stored.values():
            self._add_unexpected(row)

    def _patch(self, patches: Mapping[Key, Mapping[str, Any]]) -> None:
        for key, columns in patches.items():
            if (pair := self._open.get(key)) is not None:
                for name, value in columns.items():
                    pair.expected[name] = pair.expected[name] + value if name in COUNTED else value
            elif (pair := self._older.get(key)) is not None:
                pair.expected.update((name, value) for name, value in columns.items() if name not in COUNTED)
            # Otherwise the row is not stored, which was reported if it began in the fold.

    def _compare_row(self, key: Key, pair: _Pair) -> None:
        expected, row = pair.expected, pair.stored
        for name, value in expected.items():
            was = row[name]
            if name in self._json and isinstance(value, bytes) and was is not None:
                if same_json(was, value):
                    continue
                value = value.decode()
            if was != value and not (was is None and name in NULL_BEFORE) and name != "context_id":
                self._add(_version_of(name, expected, row), key, name, was, value)

    def _add_unexpected(self, row: Mapping[str, Any]) -> None:
        key = tuple(row[name] for name in self._key)
        self._add(int(row["requested_version"]), key, ROW, _shown(row), None)

    def _add(self, version: int, key: Key, field: str, was: object, expected: object) -> None:
        self._differences.add(
            version, self._name, field, was, expected, dict(zip(self._key, key, strict=True))
        )


_WRITTEN_AT: tuple[tuple[str, str], ...] = (
    ("settled_version", "settled_version settled_at status result"),
    (
        "closed_version",
        "closed_version closed_at status finish_reason said usage_partial error error_code input_tokens output_tokens "
        "cache_read_tokens cache_write_tokens reasoning_tokens",
    ),
    ("resolved_version", "resolved_version"),
    ("interrupted_version", "interrupted_version"),
    (
        "started_version",
        "started_version started_at first_text_at attempt claim worker provider model request_sha256 synchronous "
        "safe_to_retry timeout_secs waiting_for waiting_deadline progress_count status error error_code is_copy",
    ),
    ("opened_version", "opened_version opened_at status"),
    ("dispatched_version", "dispatched_version dispatched_at status"),
)
"""For each version column of a row, the columns that its frame wrote. If several have a column, the first of these that
the row has was the last to write it."""


def _version_of(name: str, expected: Mapping[str, Any], row: Mapping[str, Any]) -> int:
    for version, columns in _WRITTEN_AT:
        if name in columns.split() and (at := expected.get(version) or row.get(version)) is not None:
            return int(at)
    return int(row["requested_version"])


@cache
def _defaults(table: Table) -> Mapping[str, Any]:
    return {name: default_of(table, name) for name in stored_rows.names(table)}


def _shown(row: Mapping[str, Any]) -> dict[str, object]:
    return {
        name: value.decode() if isinstance(value, bytes) else value
        for name, value in row.items()
        if value is not None and name != "context_id"
    }
