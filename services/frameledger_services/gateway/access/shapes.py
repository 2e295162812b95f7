"""Redaction of JSON: structure, times and counts remain; all other values are replaced by their length.

Visible fields are listed, so an unlisted field is redacted. Field names remain. For frames and messages, whose fields
come from publishers, each visible field is listed; for the gateway's own fields some name endings are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Shape:
    """The visible fields of one kind of objects."""

    shown: frozenset[str]
    """Fields that are shown if they are scalars or lists of scalars."""

    inside: Mapping[str, Shape] = field(default_factory=dict)
    """Fields that are redacted as these shapes if they are objects or lists of objects."""

    shown_too: re.Pattern[str] | None = None
    """Matches the names of further fields that are shown as those in `shown`."""


def redacted(value: Any, shape: Shape) -> Any:
    """Returns a redacted JSON value, of this shape or a list of such."""
    match value:
        case dict():
            return {name: _field(name, one, shape) for name, one in value.items()}
        case list():
            return [redacted(one, shape) for one in value]
        case _:
            return _hidden(value)


def _field(name: str, value: Any, shape: Shape) -> Any:
    if name in shape.inside and (value == [] or not _is_plain(value)):
        return redacted(value, shape.inside[name])
    is_shown = name in shape.shown or (shape.shown_too is not None and shape.shown_too.fullmatch(name))
    return value if is_shown and _is_plain(value) else _hidden(value)


def _is_plain(value: Any) -> bool:
    if isinstance(value, list):
        return not any(isinstance(one, dict | list) for one in value)
    return not isinstance(value, dict)


def _hidden(value: Any) -> Any:
    # No hash: a short text can be guessed from its hash.
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return {"redacted": True, "bytes": len(text.encode("utf-8", "surrogatepass"))}


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_USAGE = Shape(
    _names("input_tokens output_tokens cache_read_tokens cache_write_tokens reasoning_tokens partial")
)
_MESSAGE = Shape(
    _names("role tool_call_id"),
    {"tool_calls": Shape(_names("id type"), {"function": Shape(_names("name"))})},
)

FRAME = Shape(
    _names(
        """
        append_to_context attempt call_attempt calls_per_run cancel_on_interruption claim code context_bytes
        context_messages context_version cost_per_day enable expected_version fatal finish_reason
        frames_per_second function_name group_id group_parallel_tools id includes_inter_frame_spaces
        is_realtime_service language mirror model opened_version position produced_at provider pts react
        rounds run_id run_in_parallel run_llm runs_per_minute safe_to_retry second_input settled_as skip_tts
        timeout_secs timestamp tokens_per_day tool_call_id type v worker
        """
    ),
    {
        "messages": _MESSAGE,
        "message": _MESSAGE,
        "context": Shape(frozenset(), {"messages": _MESSAGE}),
        "usage": _USAGE,
        "function_calls": Shape(_names("function_name tool_call_id builtin")),
        "properties": Shape(_names("run_llm is_final")),
        "waiting": Shape(_names("deadline")),
        "forked_from": Shape(_names("context_id version")),
    },
)
"""A frame as it was published."""

_PARTS: dict[str, Shape] = {"frame": FRAME, "message": _MESSAGE, "messages": _MESSAGE, "usage": _USAGE}

ANSWER = Shape(
    _names(
        """
        at attempt builtin by_client code completed depth duplicate era eras error_code experiment finish_reason first
        frames from function_name generation goes_on id idempotency_key intact logged_at matches_sha256 mirror
        model newest offset ordinal outcome partition place position positions prompt_caching provider reason
        role safe_to_retry since skip_tts source status superseded synchronous there to topic trigger type
        usage_partial valid_from valid_to version waiting waiting_deadline worker
        """
    ),
    _PARTS,
    re.compile(r"\w+_(id|version|at|count|tokens|secs)"),
)
"""The fields of the gateway's answers."""

# Its content has the shape of a response again.
_PARTS |= dict.fromkeys(
    _names(
        """
        added asked_by attempts began_by calls causes closed_by contexts ended_by eras frames parked partitions
        place readings rejected removed replaced rows run runs said streamed times tools
        """
    ),
    ANSWER,
)

PROBLEM = Shape(
    _names("type title status detail instance newest context_id code frame published unpublished"),
    {"receipt": Shape(_names("erased_at version frames")), "frames": ANSWER},
)
"""A problem. `detail` is the gateway's own sentence, which quotes at most the request."""

_STORED_FRAME = Shape(ANSWER.shown, {"frame": ANSWER}, ANSWER.shown_too)
"""A stored frame with further fields: here `frame` has columns of the table, not the published value."""

_CALL = Shape(
    ANSWER.shown,
    {
        "frames": _STORED_FRAME,
        "times": ANSWER,
        "versions": Shape(_names("requested dispatched started interrupted settled resolved")),
    },
    ANSWER.shown_too,
)

_CHANGED = Shape(frozenset())
"""A setting of two versions: whether it changed, not its values."""

_TERMS = Shape(
    frozenset(),
    dict.fromkeys(
        _names("tools tool_choice settings prompt_caching skip_tts limits mirror recording"), _CHANGED
    ),
)

_PARTS |= {"call": _CALL, "heard": _STORED_FRAME, "ignored": _STORED_FRAME, "terms": _TERMS}
