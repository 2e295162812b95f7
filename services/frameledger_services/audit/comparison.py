"""The tables of one conversation compared with what its frames fold to, piece by piece, in bounded memory.

    comparison = Comparison(stored_rows.rows(connection, context_id), found)
    async for page in stored_rows.frames(connection, context_id):
        await comparison.compare(refold.fold(page), refold.head)
    await comparison.finish(refold.head)

Each table is read once, in the order of versions, next to the fold: a row is compared when the fold comes to the
version at which it begins, and its end when the fold comes to that. Runs and calls are rows that change: they are
compared when they are over, and those that still go on at the end.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from operator import attrgetter
from typing import Any

from sqlalchemy import Table

from frameledger import stored
from frameledger.evolve.state import State
from frameledger_services.audit import validity
from frameledger_services.audit.differences import ROW, Differences
from frameledger_services.projector.head import Head
from frameledger_services.projector.refold import FoldedPiece
from frameledger_services.projector.rows import MessageRow
from frameledger_services.projector.writer import state_columns
from frameledger_services.store import heads, stored_rows, tables
from frameledger_services.store.batch import default_of
from frameledger_services.store.frame_ids import frame_uuid
from frameledger_services.store.row_parameters import COUNTED
from frameledger_services.store.stored_rows import Ended, RowsByVersion, StoredFrameRow, StoredRows
from frameledger_services.store.valid_to import FOR_EVER

Key = tuple[Any, ...]

_DERIVED = StoredFrameRow._fields[StoredFrameRow._fields.index("produced_at") :]
_AT = len(StoredFrameRow._fields) - len(_DERIVED)

NOT_COMPARED = frozenset({"version", "started_at", "last_at", "duplicate_count", "chain"})
"""Attributes of a head that its frames do not say (a duplicate leaves none), or that the chain's check compares."""

NULL_BEFORE = frozenset({"idempotency_key", "said_at", "is_copy"})
"""Columns that older releases left null."""


class TableComparison:
    """Compares what the tables hold of one conversation."""

    def __init__(self, rows: StoredRows, found: Differences) -> None:
        """`rows` are those behind the version from which the fold goes on; all, if it begins at the beginning."""
        self._found = found
        self._rows = rows
        self._runs = _Changing(tables.runs, ("run_id",), rows.runs, found)
        self._calls = _Changing(tables.tool_calls, ("requested_version", "ordinal"), rows.calls, found)

    async def compare(self, piece: FoldedPiece, head: Head) -> None:
        """Compare a piece; `head` is the head behind it."""
        if not piece.frames:
            return
        first, last = piece.frames[0].version, piece.frames[-1].version
        self._compare_frames(piece)
        await self._compare_messages(piece, first, last)
        await self._compare_eras(piece, last)
        await self._compare_settings(piece, last)
        rows, state = piece.rows, head.state
        await self._runs.compare(
            {key[1:]: row for key, row in rows.new_runs.items()},
            {key[1:]: row for key, row in rows.run_patches.items()},
            first,
            last,
            {(run_id,) for run_id in _unfinished_runs(state)},
        )
        known = state.calls
        await self._calls.compare(
            {key[1:]: row for key, row in rows.new_calls.items()},
            {key[1:]: row for key, row in rows.call_patches.items()},
            first,
            last,
            {(one.requested_version, one.ordinal) for one in known.open.values()}
            | {(one.requested_version, one.ordinal) for one in known.ambiguous},
        )

    async def finish(self, head: Head, after: int = 0) -> None:
        """Compare what goes on at the end, and find rows of versions that the fold did not come to. `after` is the
        version behind which it began."""
        for row in await self._rows.begun.upto(FOR_EVER):
            self._message_too_many(row)
        for valid_to, era, position, valid_from, *_ in await self._rows.ended.upto(FOR_EVER):
            if valid_from <= head.version:
                self._end_differs(era, position, valid_from, valid_to, None)
        for row in await self._rows.eras.upto(FOR_EVER):
            self._found.add(row[0], "eras", ROW, row[3], None, {"valid_from": row[0]})
        for row in await self._rows.settings.upto(FOR_EVER):
            self._found.add(row[0], "context_settings", ROW, row[4], None, {"name": row[2]})
        await self._runs.finish(after)
        await self._calls.finish(after)

    def _compare_frames(self, piece: FoldedPiece) -> None:
        for one, derived, own_id in zip(piece.frames, piece.derived, piece.own_ids, strict=True):
            if one[_AT:] != derived:
                for name, was, expected in zip(_DERIVED, one[_AT:], derived, strict=True):
                    if was != expected:
                        self._found.add(one.version, "frames", name, was, expected)
            if own_id is not None and own_id != one.frame_id:
                expected_id = str(frame_uuid(own_id))
                if expected_id != one.frame_id:
                    self._found.add(one.version, "frames", "frame_id", one.frame_id, expected_id)

    async def _compare_messages(self, piece: FoldedPiece, first: int, last: int) -> None:
        begun = {tuple(row[2:5]): row for row in await self._rows.begun.upto(last)}
        all_ended = list(map(Ended._make, await self._rows.ended.upto(last)))
        if piece.rows.written or all_ended:
            validity.check(piece, all_ended, self._found)
        ended = {(one.era, one.position, one.valid_to): one for one in all_ended}
        for row in piece.rows.messages():
            key = row.era, row.position, row.valid_from
            if (found := begun.pop(key, None)) is None:
                self._found.add(
                    row.valid_from, "messages", ROW, None, row.message.decode(), _message_key(*key)
                )
            else:
                said_by = row.run_id
                if row.inherits and (replaced := ended.get(key)) is not None:
                    said_by = replaced.run_id
                self._compare_message(row, said_by, found, last)
        for extra in begun.values():
            self._message_too_many(extra)
        for _, era, position, version in piece.rows.ended:
            if ended.pop((era, position, version), None) is None:
                self._found.add(
                    version, "messages", "valid_to", "later", version, {"era": era, "position": position}
                )
        for one in ended.values():
            # Of one that began in this piece, the end was compared with the row.
            if one.valid_from < first:
                self._end_differs(one.era, one.position, one.valid_from, one.valid_to, "later")

    def _compare_message(self, row: MessageRow, said_by: str | None, found: Sequence[Any], last: int) -> None:
        version, _, era, position, _, valid_to, role, text, run_id, message, said_at = found
        key = _message_key(era, position, version)
        # What ends behind this piece is compared when the fold comes to its end.
        if valid_to != row.valid_to and (row.valid_to != FOR_EVER or valid_to <= last):
            self._found.add(min(valid_to, row.valid_to), "messages", "valid_to", valid_to, row.valid_to, key)
        for name, was, expected in (
            ("role", role, row.role),
            ("text", text, row.text),
            ("run_id", run_id, said_by),
            ("said_at", said_at, row.said_at),
        ):
            if was != expected and not (was is None and name in NULL_BEFORE):
                self._found.add(version, "messages", name, was, expected, key)
        if not same_json(message, row.message):
            self._found.add(version, "messages", "message", message, row.message.decode(), key)

    def _message_too_many(self, row: Sequence[Any]) -> None:
        self._found.add(row[0], "messages", ROW, row[9], None, _message_key(*row[2:5]))

    def _end_differs(self, era: int, position: int, valid_from: int, valid_to: int, expected: object) -> None:
        key = _message_key(era, position, valid_from)
        self._found.add(valid_to, "messages", "valid_to", valid_to, expected, key)

    async def _compare_eras(self, piece: FoldedPiece, last: int) -> None:
        found = {row[0]: row[3] for row in await self._rows.eras.upto(last)}
        expected = {version: era for _, version, era in piece.rows.eras}
        for version in found.keys() | expected.keys():
            was, era = found.get(version), expected.get(version)
            if was != era:
                field = ROW if was is None or era is None else "era"
                self._found.add(version, "eras", field, was, era, {"valid_from": version})

    async def _compare_settings(self, piece: FoldedPiece, last: int) -> None:
        found = {(row[2], row[0]): row[4] for row in await self._rows.settings.upto(last)}
        expected = {key[1:]: value for key, value in piece.rows.settings.items()}
        for name, version in found.keys() | expected.keys():
            was, value = found.get((name, version)), expected.get((name, version))
            if was is None or value is None or not same_json(was, value):
                field = ROW if was is None or value is None else "value"
                self._found.add(
                    version, "context_settings", field, was, value and value.decode(), {"name": name}
                )


def compare_head(found: Differences, row: Mapping[str, Any], head: Head, states: Mapping[int, State]) -> None:
    """Compare a row of `contexts` (`stored_rows.heads`) with the head that was folded up to its version, or up to
    where it is parked, and its stored state with the one of its version, if `states` has that.

    Version, chain and times are not compared: they are of all frames, also of those that are parked.
    """
    version = int(row["version"])
    expected = {
        name: attrgetter(path)(head) for name, path in heads.ATTRIBUTES.items() if name not in NOT_COMPARED
    } | state_columns(head.state)
    expected["origin"] = None if head.origin is None else head.origin.decode()
    expected["experiment"] = bool(head.experiment)
    for name, value in expected.items():
        if row[name] != value:
            found.add(version, "contexts", name, row[name], value)
    at = int(row["state_version"])
    if (state := states.get(at)) is not None:
        _compare_state(found, row, state, at)
    elif not 1 <= at <= head.version:
        found.add(version, "contexts", "state_version", at, f"1 to {head.version}")


def check_fold_version(found: Differences, row: Mapping[str, Any]) -> None:
    """Check that a row of `contexts` and its state name the same fold, whichever that is."""
    try:
        state = json.loads(str(row["state"]))
    except ValueError:
        state = None
    made_by = state.get("fold") if isinstance(state, dict) else None
    if row["fold_version"] != made_by:
        found.add(int(row["state_version"]), "contexts", "fold_version", row["fold_version"], made_by)


def _compare_state(found: Differences, row: Mapping[str, Any], state: State, at: int) -> None:
    text = str(row["state"]).encode()
    if text == stored.dump(state):
        return
    try:
        was = stored.load(text)
    except stored.StoredStateError as error:
        found.add(at, "contexts", "state", str(error), "a state")
        return
    for path, one, other in state_differences(was, state):
        found.add(at, "contexts", path, one, other)


def state_differences(was: State, expected: State) -> Iterable[tuple[str, object, object]]:
    """Yields the fields in which two states differ, by their paths, as JSON has them."""
    one, other = stored.dump(was), stored.dump(expected)
    if one != other:
        yield from _paths(json.loads(one), json.loads(other), "state")


def _paths(was: object, expected: object, path: str) -> Iterable[tuple[str, object, object]]:
    """Yields the places at which two JSON values differ, each with its path."""
    if isinstance(was, dict) and isinstance(expected, dict):
        for name in sorted(was.keys() | expected.keys()):
            yield from _paths(was.get(name), expected.get(name), f"{path}.{name}")
    elif was != expected:
        yield path, was, expected


def same_json(was: str, expected: bytes) -> bool:
    """Whether two JSON texts have one value; the text itself may be that of an older release."""
    if was.encode() == expected:
        return True
    try:
        return json.dumps(json.loads(was), sort_keys=True) == json.dumps(json.loads(expected), sort_keys=True)
    except ValueError:
        return False


def _unfinished_runs(state: State) -> Iterator[str]:
    """Yields the runs that may still change: the open and the pending one, and what answers elsewhere count as."""
    for run in (state.runs.open, state.runs.wanted):
        if run is not None:
            yield run.run_id
    response = state.speech.response
    for counted in (state.runs.noted, None if response is None else response.counts_as):
        if counted is not None:
            yield counted


class _Changing:
    """Rows that frames change after they began: runs, or calls."""

    def __init__(self, table: Table, key: tuple[str, ...], rows: RowsByVersion, found: Differences) -> None:
        self._name = str(table.name)
        self._key = key
        self._columns = stored_rows.names(table)
        self._json = stored_rows.json_columns(table)
        self._defaults = _defaults(table)
        self._rows = rows
        self._found = found
        self._open: dict[Key, tuple[dict[str, Any], dict[str, Any]]] = {}
        """Those that may still change: as they should be, and as they are stored."""

        self._older: dict[Key, tuple[dict[str, Any], dict[str, Any]]] = {}
        """Those that began before the fold did: what should have changed since, and as they are stored."""

    async def compare(
        self,
        new: Mapping[Key, Mapping[str, Any]],
        patches: Mapping[Key, Mapping[str, Any]],
        first: int,
        last: int,
        still_open: set[Key],
    ) -> None:
        found = {}
        for version, *values in await self._rows.upto(last):
            row = dict(zip(self._columns, values, strict=True))
            key = tuple(row[name] for name in self._key)
            if version < first:
                self._older[key] = {}, row
            else:
                found[key] = row
        for key, columns in new.items():
            expected = {**self._defaults, **columns}
            if (stored_row := found.pop(key, None)) is None:
                self._add(int(expected["requested_version"]), key, ROW, None, _shown(expected))
            else:
                self._open[key] = expected, stored_row
        for key, row in found.items():
            self._add(int(row["requested_version"]), key, ROW, _shown(row), None)
        for key, columns in patches.items():
            if (pair := self._open.get(key)) is not None:
                for name, value in columns.items():
                    pair[0][name] = pair[0][name] + value if name in COUNTED else value
            elif (pair := self._older.get(key)) is not None:
                pair[0].update((name, value) for name, value in columns.items() if name not in COUNTED)
            # Else its row is missing, which was reported, or began before the fold did.
        for key in [key for key in self._open if key not in still_open]:
            self._compare_row(key, *self._open.pop(key))

    async def finish(self, after: int) -> None:
        """Compare what is left; the fold began behind the version `after`."""
        for key, pair in self._open.items():
            self._compare_row(key, *pair)
        for version, *values in await self._rows.upto(FOR_EVER):
            row = dict(zip(self._columns, values, strict=True))
            key = tuple(row[name] for name in self._key)
            if version <= after:
                self._older[key] = {}, row
            else:
                self._add(version, key, ROW, _shown(row), None)
        for key, (changed, row) in self._older.items():
            since = {
                name: row[name] for name in row if name.endswith("_version") and (row[name] or 0) > after
            }
            self._compare_row(key, {**dict.fromkeys(since), **changed}, row)

    def _compare_row(self, key: Key, expected: Mapping[str, Any], row: Mapping[str, Any]) -> None:
        for name, value in expected.items():
            was = row[name]
            if name in self._json and isinstance(value, bytes) and was is not None:
                if same_json(was, value):
                    continue
                value = value.decode()
            if was != value and not (was is None and name in NULL_BEFORE) and name != "context_id":
                self._add(_version_of(name, expected, row), key, name, was, value)

    def _add(self, version: int, key: tuple[Any, ...], field: str, was: object, expected: object) -> None:
        self._found.add(version, self._name, field, was, expected, dict(zip(self._key, key, strict=True)))


_WRITTEN_AT = (
    ("settled_version", {"settled_version", "settled_at", "status", "result"}),
    (
        "closed_version",
        {
            *("closed_version", "closed_at", "status", "finish_reason", "said", "usage_partial", "error"),
            *("error_code", "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"),
            "reasoning_tokens",
        },
    ),
    ("resolved_version", {"resolved_version"}),
    ("interrupted_version", {"interrupted_version"}),
    (
        "started_version",
        {
            *(
                "started_version",
                "started_at",
                "first_text_at",
                "attempt",
                "claim",
                "worker",
                "provider",
                "model",
            ),
            *(
                "request_sha256",
                "synchronous",
                "safe_to_retry",
                "timeout_secs",
                "waiting_for",
                "waiting_deadline",
            ),
            *("progress_count", "status", "error", "error_code", "is_copy"),
        },
    ),
    ("opened_version", {"opened_version", "opened_at", "status"}),
    ("dispatched_version", {"dispatched_version", "dispatched_at", "status"}),
)
"""By which version a column was written last, as far as the row says it."""


def _version_of(name: str, expected: Mapping[str, Any], row: Mapping[str, Any]) -> int:
    for version, columns in _WRITTEN_AT:
        if name in columns and (at := expected.get(version) or row.get(version)) is not None:
            return int(at)
    return int(row["requested_version"])


@cache
def _defaults(table: Table) -> Mapping[str, Any]:
    return {name: default_of(table, name) for name in stored_rows.names(table)}


def _message_key(era: int, position: int, valid_from: int) -> dict[str, object]:
    return {"era": era, "position": position, "valid_from": valid_from}


def _shown(row: Mapping[str, Any]) -> dict[str, object]:
    return {
        name: value.decode() if isinstance(value, bytes) else value
        for name, value in row.items()
        if value is not None and name != "context_id"
    }
