"""Tools by which a model cancels its own calls: `cancel_<name>`, one for each asynchronous tool that opted in.

The module is outside the rooms because the inference service offers these tools and the function service serves them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from frameledger.tools import FunctionSchema, tool_name, tool_names

PREFIX = "cancel_"

LONGEST = 64
"""The maximum length of a name that every provider accepts. A longer one would fail each request that offers it."""


def cancel_name(function_name: str) -> str:
    """Returns the name of the tool that cancels calls of this function."""
    return PREFIX + function_name


def cancelled_by(name: str) -> str:
    """Returns the name of the function whose calls this cancel tool cancels."""
    return name.removeprefix(PREFIX)


def schema(function_name: str) -> FunctionSchema:
    """Returns the schema of the tool that cancels calls of this function."""
    return FunctionSchema(
        name=cancel_name(function_name),
        description=(
            f"Cancels a call of `{function_name}` that is still running, when its result is no longer wanted."
        ),
        properties={
            "tool_call_id": {
                "type": "string",
                "description": (
                    f"The id of the call of `{function_name}`. May be left out when only one is running."
                ),
            }
        },
    )


def offered(tools: Sequence[Mapping[str, Any]], cancellable: Iterable[str]) -> tuple[FunctionSchema, ...]:
    """Returns the cancel tools to offer with these tools, in the order of the tools that they belong to.

    `cancellable` names the functions that opted in. A cancel tool is not offered if the application has a tool of the
    same name, or if its name would be too long: that of a function of more than 57 characters.
    """
    opted_in, used_names = frozenset(cancellable), frozenset(tool_names(tools))
    names = dict.fromkeys(name for tool in tools if (name := tool_name(tool)) in opted_in)
    return tuple(
        schema(name)
        for name in names
        if cancel_name(name) not in used_names and len(cancel_name(name)) <= LONGEST
    )


def guidance(function_names: Iterable[str]) -> str:
    """Returns the text about the cancel tools of these functions for the system instruction; empty for none."""
    names = tuple(function_names)
    if not names:
        return ""
    functions = ", ".join(f"`{name}`" for name in names)
    tools = ", ".join(f"`{cancel_name(name)}`" for name in names)
    return (
        f"Calls of {functions} run in the background, and their results come later. When the user no longer "
        f"wants one, or a newer call makes it useless, cancel it with {tools}. With several running, say which one "
        "by its tool_call_id. Never say that a call was cancelled before the tool has confirmed it."
    )
