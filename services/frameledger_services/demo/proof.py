"""The proof: what SQL says about every version of a conversation, beside the fold of what Kafka holds of it; and that
nothing is left to be done, and nothing was done twice.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import AsyncConnection

from frameledger.fold import Conversation, Folding
from frameledger.ids import ContextId
from frameledger.record import Record, read
from frameledger_services.client import StoredFrame
from frameledger_services.demo.harbour import BOOKING, Harbour
from frameledger_services.demo.playing import Played


@dataclass(frozen=True, slots=True)
class Difference:
    """Where SQL and the fold disagree: a version, about what, and what each says."""

    version: int
    about: str
    stored: str
    folded: str


@dataclass(frozen=True, slots=True)
class Proof:
    """What was compared and counted."""

    differences: tuple[Difference, ...]
    wrong: tuple[str, ...]
    """What is left open, and what was done more or less than once: a sentence each."""

    runs: int
    calls: int
    effects: int
    """Bookings that were made."""

    @property
    def right(self) -> bool:
        return not self.differences and not self.wrong


async def proved(
    connection: AsyncConnection[Any], context_id: ContextId, played: Played, harbour: Harbour
) -> Proof:
    """Prove a conversation that is over."""
    stored = [seen.frame for seen in played.seen]
    found = await differences(connection, context_id, played.log, stored)
    wrong = await left_open(connection, context_id) + await wrong_effects(connection, context_id, harbour)
    [(runs, calls)] = await (await connection.execute(_ENDED, {"id": context_id})).fetchall()
    effects = len(harbour.bookings(await _started(connection, context_id)))
    return Proof(tuple(found), tuple(wrong), runs, calls, effects)


async def differences(
    connection: AsyncConnection[Any],
    context_id: ContextId,
    log: Sequence[Record],
    stored: Sequence[StoredFrame],
) -> list[Difference]:
    """Compare every version, from before the first frame on: the context as `context_at` gives it, and of each frame
    its bytes and its outcome. Empty if SQL is right.

    `log` is what Kafka holds of the conversation; it is folded here, in memory, from its bytes.
    """
    folded = _folded(context_id, log)
    cursor = await connection.execute(_CONTEXTS, {"id": context_id, "beyond": len(folded)})
    contexts = [_text(context) for (context,) in await cursor.fetchall()]
    # There is no version beyond the last.
    expected = [*(one.context for one in folded), "null"]
    found = [
        Difference(version, "context", *pair)
        for version, pair in enumerate(zip(contexts, expected, strict=True))
        if pair[0] != pair[1]
    ]
    if len(stored) != len(folded) - 1:
        found.append(Difference(0, "number of frames", str(len(stored)), str(len(folded) - 1)))
    for version, (frame, one) in enumerate(zip(stored, folded[1:], strict=False), start=1):
        found += _of_frame(version, frame, one)
    return found


async def left_open(connection: AsyncConnection[Any], context_id: ContextId) -> list[str]:
    """Returns a sentence for each run, call and claim that did not come to an end, and one if no run was answered."""
    cursor = await connection.execute(_OPEN, {"id": context_id})
    return [sentence for (sentence,) in await cursor.fetchall()]


async def wrong_effects(
    connection: AsyncConnection[Any], context_id: ContextId, harbour: Harbour
) -> list[str]:
    """What `order_breakfast` did more or less than once, though it was started once. A sentence each."""
    started = await _started(connection, context_id)
    booked = Counter(one["call"] for one in harbour.bookings(started))
    return [
        f"The call {call} of {BOOKING} wrote {booked[call]} bookings."
        for call in started
        if booked[call] != 1
    ]


async def _started(connection: AsyncConnection[Any], context_id: ContextId) -> list[str]:
    cursor = await connection.execute(_STARTED, {"id": context_id, "name": BOOKING})
    return [call for (call,) in await cursor.fetchall()]


@dataclass(frozen=True, slots=True)
class _Folded:
    """A version as the fold makes it: the frame's bytes, what became of it, and the context after it."""

    value: bytes
    outcome: str
    context: str


def _folded(context_id: ContextId, log: Sequence[Record]) -> list[_Folded]:
    """All versions, the one before the first frame too. A repetition makes none."""
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
    """JSON as text, in which true, 1 and 1.0 are three things; the order of an object's keys says nothing."""
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
        (SELECT count(*) FROM runs WHERE context_id = %(id)s AND opened_version IS NOT NULL),
        (SELECT count(*) FROM tool_calls WHERE context_id = %(id)s)
"""

_STARTED = """
    SELECT tool_call_id FROM tool_calls
    WHERE context_id = %(id)s AND function_name = %(name)s AND started_version IS NOT NULL
    ORDER BY requested_version, ordinal
"""
