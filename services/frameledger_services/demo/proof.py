"""The proof: what SQL says about every version of a conversation, beside the fold of what was published."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import AsyncConnection

from frameledger.fold import Conversation, Folding
from frameledger.frames import AnyFrame, encode_frame
from frameledger.ids import ContextId
from frameledger.record import decode
from frameledger_services.client import StoredFrame


@dataclass(frozen=True, slots=True)
class Difference:
    """Where SQL and the fold disagree: a version, about what, and what each says."""

    version: int
    about: str
    stored: str
    folded: str


async def differences(
    connection: AsyncConnection[Any],
    context_id: ContextId,
    published: Sequence[AnyFrame],
    stored: Sequence[StoredFrame],
) -> list[Difference]:
    """Compare every version, from before the first frame on: the context as `context_at` gives it, and of each frame
    its bytes and its outcome. Empty if SQL is right.

    The frames that were published are folded here, in memory, from their bytes.
    """
    folded = _folded(context_id, published)
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


@dataclass(frozen=True, slots=True)
class _Folded:
    """A version as the fold makes it: the frame's bytes, what became of it, and the context after it."""

    value: bytes
    outcome: str
    context: str


def _folded(context_id: ContextId, published: Sequence[AnyFrame]) -> list[_Folded]:
    """All versions, the one before the first frame too. A repetition makes none."""
    folding = Folding(Conversation.new(context_id))
    versions = [_Folded(b"", "", _context(folding))]
    for frame in published:
        value = encode_frame(frame)
        step = folding.step(decode(value))
        if step is not None:
            versions.append(_Folded(value, _outcome(step.outcome, step.reason), _context(folding)))
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
