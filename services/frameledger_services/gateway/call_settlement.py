"""Shared by the compatible APIs: the calls that a request abandons, and the fields of frames that settle calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from frameledger_services.store.client_calls import WaitingCall


def abandoned(
    calls: Iterable[WaitingCall], is_answered: Callable[[WaitingCall], bool], *, is_replaced: bool
) -> list[WaitingCall]:
    """Returns the calls of clients that are to be cancelled because a request leaves them unanswered: interrupted ones,
    and all of them if the request replaces the history, because their place is removed."""
    return [
        call
        for call in calls
        if call.by_client and not is_answered(call) and (call.interrupted or is_replaced)
    ]


def frame_fields(frame_id: str, function_name: str, tool_call_id: str, opened_version: int) -> dict[str, Any]:
    """Returns the fields of a frame that settles a call. `frame_id` is derived from the request, so a repeated request
    counts once."""
    return {
        "id": frame_id,
        "function_name": function_name,
        "tool_call_id": tool_call_id,
        "opened_version": opened_version,
    }
