"""Checks that the context is valid for a provider after every frame, except for messages of clients.

A call is followed by the message with its result at all versions that have the call, a result follows its call, and a
text is not empty. Messages that clients append, or that replace a history, are not checked (rule RA5.valid).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from frameledger_services.audit.differences import Differences
from frameledger_services.projector.refold import FoldedPiece
from frameledger_services.projector.rows import MessageRow
from frameledger_services.store.stored_rows import Ended
from frameledger_services.store.valid_to import FOR_EVER

Place = tuple[int, int, int]
"""Era, position, and the version at which a message began or ended there."""


@dataclass(frozen=True, slots=True)
class _Ends:
    role: str | None
    calls: bool


def check(piece: FoldedPiece, ended: Iterable[Ended], differences: Differences) -> None:
    """Report messages of a piece that no provider accepts. `ended` has the stored ends of its versions."""
    messages = {(row.era, row.position, row.valid_from): row for row in piece.rows.messages()}
    ends = {(one.era, one.position, one.valid_to): _Ends(one.role, bool(one.calls)) for one in ended}
    for place, row in messages.items():
        if row.valid_to != FOR_EVER:
            ends[row.era, row.position, row.valid_to] = _Ends(row.role, _calls(row) is not None)
        if (
            place[2] not in piece.client_written
            and (problem := _problem(place, row, messages, ends)) is not None
        ):
            _add(differences, place, problem)
    for place, end in ends.items():
        if place in messages or place[2] in piece.client_written:
            continue  # It was replaced, or a client removed it.
        era, position, version = place
        if end.role == "tool" and ((era, position - 1, version) not in ends):
            _add(differences, place, "a result ended, and its call did not")
        if end.calls and (era, position + 1, version) not in ends:
            _add(differences, place, "a call ended, and its result did not")


def _problem(
    place: Place, row: MessageRow, messages: Mapping[Place, MessageRow], ends: Mapping[Place, _Ends]
) -> str | None:
    era, position, version = place
    calls = _calls(row)
    if calls is not None:
        behind = messages.get((era, position + 1, version))
        if behind is None or behind.role != "tool":
            return "a call without a result behind it"
        if [json.loads(behind.message).get("tool_call_id")] != [call.get("id") for call in calls]:
            return "a call with the result of another one"
    elif row.role == "tool":
        if place not in ends and (era, position - 1, version) not in messages:
            return "a result without a call before it"
    elif row.role in ("user", "assistant") and not row.text:
        return "a message without content"
    return None


def _calls(row: MessageRow) -> list[dict[str, Any]] | None:
    if row.role != "assistant" or b'"tool_calls"' not in row.message:
        return None
    calls = json.loads(row.message).get("tool_calls")
    return calls if isinstance(calls, list) and calls else None


def _add(differences: Differences, place: Place, problem: str) -> None:
    era, position, version = place
    differences.add(
        version, "messages", "message", problem, "valid for a provider", {"era": era, "position": position}
    )
