"""Arguments of calls in a history, as providers accept them: a JSON object.

A model may write arguments that are not JSON, or not an object. The call's result reports that to the model, and the
conversation keeps the arguments. Anthropic's API has no form for them, and servers such as vLLM and llama.cpp parse the
arguments in a history again: arguments that they reject would fail each later request of the conversation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from frameledger_services.json_numbers import no_constant
from frameledger_services.providers.request import encoded


def as_object(arguments: object) -> Mapping[str, Any]:
    """Returns the arguments as an object: an empty one for none, and any other value under the key `arguments`."""
    if arguments is None or arguments == "":
        return {}
    if isinstance(arguments, Mapping):
        return arguments
    read = _read(arguments) if isinstance(arguments, str) else None
    return {"arguments": arguments} if read is None else read


def as_text(arguments: object) -> str:
    """Returns the same as JSON text. The text of an object is not changed."""
    if isinstance(arguments, str) and _read(arguments) is not None:
        return arguments
    return encoded(as_object(arguments)).decode()


def _read(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text, parse_constant=no_constant)
        # A number that is too large for a double reads as infinite and could not be written again.
        encoded(value)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
