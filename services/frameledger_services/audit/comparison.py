"""Compares the tables of one conversation with the fold of its frames, piece by piece, in bounded memory.

    comparison = TableComparison(stored_rows.rows(connection, context_id), Differences(), is_all=True)
    async for page in stored_rows.frames(connection, context_id):
        await comparison.compare(refold.fold(page), refold.head)
    await comparison.finish(refold.head)

Each table is read once, in the order of versions, in parallel with the fold: a row is compared when the fold reaches
the version at which it begins, and its end when the fold reaches that. Rows of runs and calls change: they are compared
when they have ended, and those in progress at the end (`changing_rows`). The head is compared by `head_comparison`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from frameledger.evolve.state import State
from frameledger_services.audit import validity
from frameledger_services.audit.changing_rows import ChangingRows
from frameledger_services.audit.column_comparison import same_json, was_written_before
from frameledger_services.audit.differences import ROW, Differences
from frameledger_services.projector.head import Head
from frameledger_services.projector.refold import Derived, FoldedPiece
from frameledger_services.projector.rows import MessageRow
from frameledger_services.store import tables
from frameledger_services.store.frame_ids import frame_uuid
from frameledger_services.store.stored_rows import Ended, StoredFrameRow, StoredRows
from frameledger_services.store.valid_to import FOR_EVER

_AT = len(StoredFrameRow._fields) - len(Derived._fields)


class TableComparison:
    """Compares the rows of one conversation in all tables but `contexts`."""

    def __init__(self, rows: StoredRows, differences: Differences, *, is_all: bool) -> None:
        """`rows` has the rows of versions after the one from which the fold continues; or with `is_all` all rows, if it
        starts at the beginning."""
        self._differences = differences
        self._rows = rows
        self._runs = ChangingRows(tables.runs, ("run_id",), rows.runs, differences, is_all=is_all)
        self._calls = ChangingRows(
            tables.tool_calls, ("requested_version", "ordinal"), rows.calls, differences, is_all=is_all
        )

    async def compare(self, piece: FoldedPiece, head: Head) -> None:
        """Compare a piece; `head` is the head after it."""
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
        """Compare the rows in progress at the end, and report rows of versions that the fold did not reach. The fold
        began after the version `after`."""
        for row in await self._rows.begun.upto(FOR_EVER):
            self._add_unexpected_message(row)
        for valid_to, era, position, valid_from, *_ in await self._rows.ended.upto(FOR_EVER):
            if valid_from <= head.version:
                self._add_end_difference(era, position, valid_from, valid_to, None)
        for row in await self._rows.eras.upto(FOR_EVER):
            self._differences.add(row[0], "eras", ROW, row[3], None, {"valid_from": row[0]})
        for row in await self._rows.settings.upto(FOR_EVER):
            self._differences.add(row[0], "context_settings", ROW, row[4], None, {"name": row[2]})
        await self._runs.finish(after)
        await self._calls.finish(after)

    def _compare_frames(self, piece: FoldedPiece) -> None:
        for frame, derived, own_id in zip(piece.frames, piece.derived, piece.own_ids, strict=True):
            if frame[_AT:] != derived:
                for name, was, expected in zip(Derived._fields, frame[_AT:], derived, strict=True):
                    if was != expected:
                        self._differences.add(frame.version, "frames", name, was, expected)
            if own_id is not None and own_id != frame.frame_id:
                expected_id = str(frame_uuid(own_id))
                if expected_id != frame.frame_id:
                    self._differences.add(frame.version, "frames", "frame_id", frame.frame_id, expected_id)

    async def _compare_messages(self, piece: FoldedPiece, first: int, last: int) -> None:
        stored_by_place = {tuple(row[2:5]): row for row in await self._rows.begun.upto(last)}
        all_ended = list(map(Ended._make, await self._rows.ended.upto(last)))
        if piece.rows.written or all_ended:
            validity.check(piece, all_ended, self._differences)
        ended = {(one.era, one.position, one.valid_to): one for one in all_ended}
        for row in piece.rows.messages():
            key = row.era, row.position, row.valid_from
            if (stored_row := stored_by_place.pop(key, None)) is None:
                self._differences.add(
                    row.valid_from,
                    "messages",
                    ROW,
                    None,
                    row.message.decode(),
                    _message_key(row.era, row.position, row.valid_from),
                )
            else:
                said_by = row.run_id
                if row.inherits and (replaced := ended.get(key)) is not None:
                    said_by = replaced.run_id
                self._compare_message(row, said_by, stored_row, last)
        for extra in stored_by_place.values():
            self._add_unexpected_message(extra)
        for _, era, position, version in piece.rows.ended:
            if ended.pop((era, position, version), None) is None:
                self._differences.add(
                    version, "messages", "valid_to", "later", version, {"era": era, "position": position}
                )
        for end in ended.values():
            # If it began in this piece, its end was compared with the row.
            if end.valid_from < first:
                self._add_end_difference(end.era, end.position, end.valid_from, end.valid_to, "later")

    def _compare_message(
        self, row: MessageRow, said_by: str | None, stored_row: Sequence[Any], last: int
    ) -> None:
        version, _, era, position, _, valid_to, role, text, run_id, message, said_at = stored_row
        key = _message_key(era, position, version)
        # An end after this piece is compared when the fold reaches it.
        if valid_to != row.valid_to and (row.valid_to != FOR_EVER or valid_to <= last):
            self._differences.add(
                min(valid_to, row.valid_to), "messages", "valid_to", valid_to, row.valid_to, key
            )
        for name, was, expected in (
            ("role", role, row.role),
            ("text", text, row.text),
            ("run_id", run_id, said_by),
            ("said_at", said_at, row.said_at),
        ):
            if was != expected and not was_written_before(name, was, row.message):
                self._differences.add(version, "messages", name, was, expected, key)
        if not same_json(message, row.message):
            self._differences.add(version, "messages", "message", message, row.message.decode(), key)

    def _add_unexpected_message(self, row: Sequence[Any]) -> None:
        self._differences.add(row[0], "messages", ROW, row[9], None, _message_key(row[2], row[3], row[4]))

    def _add_end_difference(
        self, era: int, position: int, valid_from: int, valid_to: int, expected: object
    ) -> None:
        key = _message_key(era, position, valid_from)
        self._differences.add(valid_to, "messages", "valid_to", valid_to, expected, key)

    async def _compare_eras(self, piece: FoldedPiece, last: int) -> None:
        stored_eras = {row[0]: row[3] for row in await self._rows.eras.upto(last)}
        expected = {version: era for _, version, era in piece.rows.eras}
        for version in stored_eras.keys() | expected.keys():
            was, era = stored_eras.get(version), expected.get(version)
            if was != era:
                field = ROW if was is None or era is None else "era"
                self._differences.add(version, "eras", field, was, era, {"valid_from": version})

    async def _compare_settings(self, piece: FoldedPiece, last: int) -> None:
        stored_versions = {(row[2], row[0]): row[4] for row in await self._rows.settings.upto(last)}
        expected = {key[1:]: value for key, value in piece.rows.settings.items()}
        for name, version in stored_versions.keys() | expected.keys():
            was, value = stored_versions.get((name, version)), expected.get((name, version))
            if was is None or value is None or not same_json(was, value):
                field = ROW if was is None or value is None else "value"
                self._differences.add(
                    version, "context_settings", field, was, value and value.decode(), {"name": name}
                )


def _unfinished_runs(state: State) -> Iterator[str]:
    """Yields the runs that may still change: the open and the pending one, and those of answers from elsewhere."""
    for run in (state.runs.open, state.runs.wanted):
        if run is not None:
            yield run.run_id
    response = state.speech.response
    for counted in (state.runs.noted, None if response is None else response.counts_as):
        if counted is not None:
            yield counted


def _message_key(era: int, position: int, valid_from: int) -> dict[str, object]:
    return {"era": era, "position": position, "valid_from": valid_from}
