"""Names of called functions, as providers accept them.

A model may call a function that was not offered, such as `multi_tool_use.parallel`, and a history may come from a
server that accepts any name. The conversation keeps the called name. Providers also check the names in a history, so
one that they reject would fail each later request of the conversation.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from frameledger.context import LLMContextMessage
from frameledger_services.providers.pairing import tool_calls

_LONGEST = 64
_REJECTED = re.compile(r"[^a-zA-Z0-9_-]")


def accepted(name: str) -> str:
    """Returns the name in a form that every provider accepts: other characters become underscores, a long name is cut
    off, and an empty one becomes an underscore."""
    return _REJECTED.sub("_", name)[:_LONGEST] or "_"


def with_accepted_names(
    messages: Sequence[LLMContextMessage], offered: Collection[str | None]
) -> list[LLMContextMessage]:
    """Returns the messages with accepted names in their calls. Names of the `offered` functions stay: a provider
    that accepts the function accepts its call."""
    return [_named(message, offered) for message in messages]


def _named(message: LLMContextMessage, offered: Collection[str | None]) -> LLMContextMessage:
    calls = tool_calls(message)
    written = [_call(call, offered) for call in calls]
    if written == list(calls) or not isinstance(message, Mapping):
        return message
    return {**message, "tool_calls": written}


def _call(call: Mapping[str, Any], offered: Collection[str | None]) -> Mapping[str, Any]:
    function = call.get("function")
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(name, str) or name in offered:
        return call
    return call if name == accepted(name) else {**call, "function": {**function, "name": accepted(name)}}
