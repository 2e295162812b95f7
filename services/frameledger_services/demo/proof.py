"""The proof of the demo: every version of the conversation in SQL equals the fold of its records on Kafka, no work is
open, and no effect happened twice.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from frameledger.fold import Conversation, Folding
from frameledger.ids import ContextId
from frameledger.record import Record, read
from frameledger_services.client import StoredFrame
from frameledger_services.database_types import Connection
from frameledger_services.demo.harbour import BOOKING, Harbour
from frameledger_services.demo.playing import Played


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between SQL and the fold: the version, the subject, and both values."""

    version: int
    about: str
    stored: str
    folded: str


@dataclass(frozen=True, slots=True)
class Proof:
    """The result of the proof."""

    differences: tuple[Difference, ...]
    wrong: tuple[str, ...]
    """Open work, and effects that did not happen exactly once: a sentence each."""

    runs: int
    calls: int
    effects: int
    """Number of bookings."""

    @property
    def right(self) -> bool:
        return not self.differences and not self.wrong


async def proved(connection: Connection, context_id: ContextId, played: Played, harbour: Harbour) -> Proof:
    """Compare a finished conversation, and return the proof."""
    stored = [shown.frame for shown in played.frames]
    differing = await differences(connection, context_id, played.log, stored)
    wrong = await left_open(connection, context_id) + await wrong_effects(connection, context_id, harbour)
    [(runs, calls)] = await (await connection.execute(_ENDED, {"id": context_id})).fetchall()
    effects = len(harbour.bookings(await _started(connection, context_id)))
    return Proof(tuple(differing), tuple(wrong), runs, calls, effects)


async def differences(
    connection: Connection,
    context_id: ContextId,
    log: Sequence[Record],
    stored: Sequence[StoredFrame],
) -> list[Difference]:
    """Compare every version from 0 on: the context that `context_at` returns, and the bytes and outcome of each frame.
    Returns the differences.

    `log` has the records of the conversation on Kafka; they are folded here, in memory, from their bytes.
    """
    folded = _folded(context_id, log)
    cursor = await connection.execute(_CONTEXTS, {"id": context_id, "beyond": len(folded)})
    contexts = [_text(context) for (context,) in await cursor.fetchall()]
    # The version after the last one does not exist.
    expected = [*(one.context for one in folded), "null"]
    differing = [
        Difference(version, "context", *pair)
        for version, pair in enumerate(zip(contexts, expected, strict=True))
        if pair[0] != pair[1]
    ]
    if len(stored) != len(folded) - 1:
        differing.append(Difference(0, "number of frames", str(len(stored)), str(len(folded) - 1)))
    for version, (frame, expected_frame) in enumerate(zip(stored, folded[1:], strict=False), start=1):
        differing += _of_frame(version, frame, expected_frame)
    return differing


async def left_open(connection: Connection, context_id: ContextId) -> list[str]:
    """Returns a sentence for each open run, call and claim, and one if no run was answered."""
    cursor = await connection.execute(_OPEN, {"id": context_id})
    return [sentence for (sentence,) in await cursor.fetchall()]


async def wrong_effects(connection: Connection, context_id: ContextId, harbour: Harbour) -> list[str]:
    """Returns a sentence for each started call of `order_breakfast` that did not write exactly one booking."""
    started = await _started(connection, context_id)
    booked = Counter(one["call"] for one in harbour.bookings(started))
    return [
        f"The call {call} of {BOOKING} wrote {booked[call]} bookings."
        for call in started
        if booked[call] != 1
    ]


async def _started(connection: Connection, context_id: ContextId) -> list[str]:
    cursor = await connection.execute(_STARTED, {"id": context_id, "name": BOOKING})
    return [call for (call,) in await cursor.fetchall()]


@dataclass(frozen=True, slots=True)
class _Folded:
    """A version of the fold: the bytes and outcome of the frame, and the context after it."""

    value: bytes
    outcome: str
    context: str


def _folded(context_id: ContextId, log: Sequence[Record]) -> list[_Folded]:
    """Returns all versions, including version 0. A repeated frame makes no version."""
    folding = Folding(Conversation.new(context_id))
    versions = [_Folded(b"", "", _context(folding))]
    for record in log:
        step = folding.step(read(record).frame)
        if step is not None:
            outcome = _outcome(step.outcome, step.reason)
            versions.append(_Folded(record.value or b"", outcome, _context(folding)))
    return versions


def _of_frame(version: int, stored: StoredFrame, folded: _Folded) -> Iterator[Difference]:
    outcome = _outcome(stored.outcome, stored.reason)
    if stored.version != version:
        yield Difference(version, "version", str(stored.version), str(version))
    if stored.payload != folded.value:
        yield Difference(version, "bytes", repr(stored.payload), repr(folded.value))
    if outcome != folded.outcome:
        yield Difference(version, "outcome", outcome, folded.outcome)


def _context(folding: Folding) -> str:
    terms = folding.state.terms
    return _text(
        {
            "messages": list(folding.messages),
            "tools": list(terms.tools),
            "tool_choice": terms.tool_choice,
            "settings": dict(terms.settings),
        }
    )


def _outcome(outcome: str, reason: str | None) -> str:
    return outcome if reason is None else f"{outcome}: {reason}"


def _text(value: Any) -> str:
    """Returns JSON as text that distinguishes true, 1 and 1.0 and ignores the order of keys."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


_CONTEXTS = """
    SELECT context_at(%(id)s, version) FROM generate_series(0, %(beyond)s) AS version ORDER BY version
"""

_OPEN = """
    SELECT 'The run ' || run_id || ' is ' || status || '.' FROM runs
    WHERE context_id = %(id)s AND status IN ('requested', 'open')
    UNION ALL
    SELECT 'The run ' || run_id || ' ended without a reason.' FROM runs
    WHERE context_id = %(id)s AND status = 'ended' AND finish_reason IS NULL
    UNION ALL
    SELECT 'The call ' || tool_call_id || ' of ' || function_name || ' is ' || status || '.' FROM tool_calls
    WHERE context_id = %(id)s AND resolved_version IS NULL
        AND status IN ('announced', 'dispatched', 'running', 'waiting', 'ambiguous')
    UNION ALL
    SELECT 'The worker ' || worker_id || ' still has ' || effect_id || '.' FROM claims
    WHERE context_id = %(id)s AND finished_at IS NULL
    UNION ALL
    SELECT 'No run was answered. The last error: ' || coalesce(
        (SELECT error FROM runs WHERE context_id = %(id)s AND error IS NOT NULL ORDER BY closed_version DESC LIMIT 1),
        'none'
    )
    WHERE NOT EXISTS (SELECT FROM runs WHERE context_id = %(id)s AND status = 'ended')
"""

_ENDED = """
    SELECT
        (SELECT count(*) FROM runs WHERE context_id = %(id)s),
        (SELECT count(*) FROM tool_calls WHERE context_id = %(id)s)
"""

_STARTED = """
    SELECT tool_call_id FROM tool_calls
    WHERE context_id = %(id)s AND function_name = %(name)s AND started_version IS NOT NULL
    ORDER BY requested_version, ordinal
"""
