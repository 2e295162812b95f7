"""The frames of a request of any compatible API: what asks for an answer, and what settles calls.

`openai/request_frames` and `ag_ui/request_frames` add the ids and the metadata of their requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from frameledger.frames import (
    AnyFrame,
    LLMContextFrame,
    LLMMessagesAppendFrame,
    LLMMessagesUpdateFrame,
    LLMRunFrame,
)
from frameledger_services.gateway import client_tools
from frameledger_services.store.client_calls import WaitingCall

Message = Mapping[str, Any]


def opening(
    messages: Sequence[Message],
    served: Sequence[dict[str, Any]],
    client_functions: Sequence[dict[str, Any]],
    about: Mapping[str, Any],
    **parts: Any,
) -> AnyFrame:
    """Returns the first frame of a new conversation, whose model may call the functions `served` by services and those
    that the client has `client_functions`. `about` has the id and the metadata, and `parts` are the other parts of the
    context."""
    tools = client_tools.merged(served, client_functions) or served
    context = {"messages": messages, "tools": tools, **parts}
    return LLMContextFrame.model_validate({"context": context, "run_llm": True, **about})


def question(
    kind: Literal["append", "replace"], messages: Sequence[Message], about: Mapping[str, Any]
) -> AnyFrame:
    """Returns the frame that brings the new messages, which may be none, and asks for an answer."""
    if not messages and kind == "append":
        return LLMRunFrame(**about)
    frame = LLMMessagesUpdateFrame if kind == "replace" else LLMMessagesAppendFrame
    return frame.model_validate({"messages": messages, "run_llm": True, **about})


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


def settling(frame_id: str, function_name: str, tool_call_id: str, opened_version: int) -> dict[str, Any]:
    """Returns the fields of a frame that settles a call. `frame_id` is derived from the request, so a repeated request
    counts once."""
    return {
        "id": frame_id,
        "function_name": function_name,
        "tool_call_id": tool_call_id,
        "opened_version": opened_version,
    }
