"""A one-line summary of a frame for people."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from frameledger.frames import AnyFrame, ErrorFrame, encode_frame
from frameledger.media import without_media
from frameledger_services.cli.terminal import escape, suggestion
from frameledger_services.cli.terminal.format_message import speaker_and_text

OUTCOME_COLORS = {"applied": "", "ignored": "yellow", "unknown": "magenta", "parked": "red"}
"""The style of each outcome of a stored frame, as Rich and `pager` name it."""


def summary(frame: AnyFrame) -> str:
    """Returns the text, the last message, or the call and its result. Empty if the frame's type says everything."""
    # As JSON, since a frame of an unknown type has arbitrary fields.
    return escape.one_line(_words(json.loads(encode_frame(frame))))


def error(frame: ErrorFrame) -> str:
    """Returns the last line of an error's text, because a traceback ends with the error."""
    lines = (frame.message or frame.code or "").strip().splitlines()
    return escape.one_line(lines[-1]) if lines else "an error without a message"


def settle_command(command: Literal["answer", "resolve"], context_id: str, tool_call_id: str) -> str:
    """Returns the command that settles a call, for copying, with a placeholder for the result."""
    return suggestion.command(f"calls {command}", context_id, tool_call_id, options=("--result", "JSON"))


def _words(fields: Mapping[str, Any]) -> str:
    match fields:
        case {"text": str(text)}:
            return text
        case {"context": {"messages": [*messages]}} | {"messages": [*messages]}:
            return _history(messages)
        case {"function_calls": [*calls]}:
            return ", ".join(str(call.get("function_name")) for call in calls if isinstance(call, dict))
        case {"function_name": name, "result": result}:
            return f"{name}: {_json(result)}"
        case {"function_name": name, "arguments": arguments}:
            return f"{name} {_json(arguments)}"
        case {"function_name": name}:
            return str(name)
        case {"tools": [*tools]}:
            return f"{len(tools)} tools"
        case {"settings": settings}:
            return _json(settings)
        case {"tool_choice": choice}:
            return _json(choice)
        case {"message": str(message)} | {"error": str(message)}:
            return message
        case {"heard_text": str(heard)}:
            return f"heard: {heard}"
        case {"finish_reason": str(reason)}:
            return reason
        case _:
            return ""


def _history(messages: Sequence[Any]) -> str:
    if not messages:
        return "no messages"
    last = messages[-1]
    who, what = speaker_and_text(last) if isinstance(last, Mapping) else ("", str(last))
    more = f" (and {len(messages) - 1} before it)" if len(messages) > 1 else ""
    return f"{who}: {what}{more}"


def _json(value: Any) -> str:
    return json.dumps(without_media(value), ensure_ascii=False)
