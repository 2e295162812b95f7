"""JSON without words: shapes, times and counts stay, and of everything else only how long it is.

What is shown is listed, so a field that nobody has listed is not. Names of fields stay. In a frame and in a message,
whose fields are a publisher's, each field is listed; in what the gateway says of them some endings of names are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Shape:
    """Objects of one kind: which of their fields are shown."""

    shown: frozenset[str]
    """If they are scalars, or lists of them."""

    inside: Mapping[str, Shape] = field(default_factory=dict)
    """If they are objects, or lists of them: as these."""

    shown_too: re.Pattern[str] | None = None


def redacted(value: Any, shape: Shape) -> Any:
    """Returns a JSON value, of this shape or a list of such, without words."""
    match value:
        case dict():
            return {name: _field(name, one, shape) for name, one in value.items()}
        case list():
            return [redacted(one, shape) for one in value]
        case _:
            return _hidden(value)


def _field(name: str, value: Any, shape: Shape) -> Any:
    if name in shape.inside and isinstance(value, dict | list):
        return redacted(value, shape.inside[name])
    is_shown = name in shape.shown or (shape.shown_too is not None and shape.shown_too.fullmatch(name))
    return value if is_shown and _is_plain(value) else _hidden(value)


def _is_plain(value: Any) -> bool:
    if isinstance(value, list):
        return not any(isinstance(one, dict | list) for one in value)
    return not isinstance(value, dict)


def _hidden(value: Any) -> Any:
    # No hash: a short text is guessed from one.
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return {"redacted": True, "bytes": len(text.encode("utf-8", "surrogatepass"))}


_USAGE = Shape(
    frozenset(
        ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")
    )
)
_MESSAGE = Shape(
    frozenset(("role", "tool_call_id")),
    {"tool_calls": Shape(frozenset(("id", "type")), {"function": Shape(frozenset(("name",)))})},
)

FRAME = Shape(
    frozenset(
        (
            *("type", "id", "v", "pts", "produced_at", "timestamp", "run_id", "attempt", "claim", "group_id"),
            *("tool_call_id", "function_name", "call_attempt", "opened_version", "expected_version"),
            *("context_version", "settled_as", "finish_reason", "provider", "model", "worker", "language"),
            *("append_to_context", "includes_inter_frame_spaces", "skip_tts", "run_llm", "react", "enable"),
            *("fatal", "code", "cancel_on_interruption", "safe_to_retry", "timeout_secs", "run_in_parallel"),
            *("group_parallel_tools", "is_realtime_service"),
        )
    ),
    {
        "messages": _MESSAGE,
        "context": Shape(frozenset(), {"messages": _MESSAGE}),
        "usage": _USAGE,
        "function_calls": Shape(frozenset(("function_name", "tool_call_id", "builtin"))),
        "properties": Shape(frozenset(("run_llm", "is_final"))),
        "waiting": Shape(frozenset(("deadline",))),
        "forked_from": Shape(frozenset(("context_id", "version"))),
    },
)
"""A frame as it was published."""

_NESTED: dict[str, Shape] = {"frame": FRAME, "message": _MESSAGE, "messages": _MESSAGE, "usage": _USAGE}

ANSWER = Shape(
    frozenset(
        (
            *("id", "type", "version", "newest", "era", "eras", "position", "positions", "outcome", "reason"),
            *("status", "kind", "role", "place", "source", "attempt", "ordinal", "duplicate", "completed"),
            *("partition", "generation", "offset", "function_name", "provider", "model", "worker", "trigger"),
            *(
                "finish_reason",
                "experiment",
                "from",
                "to",
                "valid_from",
                "valid_to",
                "synchronous",
                "partial",
            ),
            *("safe_to_retry", "builtin", "object", "created", "index", "matches", "valid"),
        )
    ),
    _NESTED,
    re.compile(r"\w+_(id|version|versions|at|count|tokens|secs|seconds|calls)"),
)
"""What the gateway answers."""

# Its lists and parts are answers again.
_NESTED |= dict.fromkeys(
    (
        *("contexts", "frames", "history", "rows", "runs", "run", "attempts", "calls", "call", "open_calls"),
        *(
            "added",
            "removed",
            "replaced",
            "before",
            "after",
            "causes",
            "cause",
            "made_by",
            "made_of",
            "place",
        ),
        *(
            "thrown_away",
            "announced",
            "started",
            "settled",
            "ended",
            "waiting",
            "ambiguous",
            "workers",
            "tools",
        ),
        *("partitions", "choices"),
    ),
    ANSWER,
)
