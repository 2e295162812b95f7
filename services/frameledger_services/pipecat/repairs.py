"""Computes from the log's frames the messages that a crash lost. Pure.

A result that is on the log but not in the messages, such as that of a function service, is added: otherwise the model
would call the function again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from frameledger.frames import AnyFrame
from frameledger_services import call_words
from frameledger_services.pipecat.mirror import Appended, Change, Rewritten
from frameledger_services.pipecat.unrecorded import Unrecorded, call_ids

IN_PROGRESS = "IN_PROGRESS"


def repairs(messages: Sequence[Any], frames: Iterable[AnyFrame], *, ambiguous: bool = True) -> list[Change]:
    """Returns the changes that add what a crash lost, in order; empty if nothing is missing.

    `frames` reach back at least to the messages before the newest ones. Content that is in the messages is skipped, so
    too many frames do no harm. Without `ambiguous`, calls that had started are unchanged.
    """
    unrecorded = Unrecorded.of(frames)
    changes: list[Change] = list(_open_calls(messages, unrecorded.ends)) if ambiguous else []
    known = {id_ for message in messages for id_ in call_ids(message)}
    behind: list[Any] = []
    for id_, (name, arguments) in unrecorded.calls.items():
        if ambiguous and id_ not in known:
            called = {"id": id_, "function": {"name": name, "arguments": arguments}, "type": "function"}
            behind.append({"role": "assistant", "tool_calls": [called]})
            became = unrecorded.ends.get(id_) or call_words.ambiguous(name)
            behind.append({"role": "tool", "content": became, "tool_call_id": id_})
    words = [("assistant", unrecorded.heard.text), ("user", unrecorded.spoken_by_user.text)]
    if unrecorded.first == "user":
        words.reverse()
    behind += [{"role": role, "content": text} for role, text in words if text]
    return [*changes, Appended(tuple(behind))] if behind else changes


def _open_calls(messages: Sequence[Any], ends: Mapping[str, str]) -> Iterable[Rewritten]:
    names = {
        call.get("id"): str(call.get("function", {}).get("name", "?"))
        for message in messages
        for call in message.get("tool_calls") or ()
        if isinstance(call, Mapping)
    }
    finished = {
        id_ for message in messages for id_, status in [_in_background(message)] if status == "finished"
    }
    for index, message in enumerate(messages):
        if message.get("role") != "tool":
            continue
        id_, status = _in_background(message)
        if message.get("content") == IN_PROGRESS or (status == "running" and id_ not in finished):
            called = message.get("tool_call_id")
            became = ends.get(str(called)) or call_words.ambiguous(names.get(called, "?"))
            yield Rewritten(index, {**message, "content": became})


def _in_background(message: Mapping[str, Any]) -> tuple[Any, Any]:
    """Returns the id and status of the background call that this message reports; (None, None) if it reports none."""
    content = message.get("content")
    if message.get("role") not in ("tool", "developer") or not isinstance(content, str) or content[:1] != "{":
        return None, None
    try:
        report = json.loads(content)
    except ValueError:
        return None, None
    is_one = isinstance(report, dict) and report.get("type") == "async_tool"
    return (report.get("tool_call_id"), report.get("status")) if is_one else (None, None)
