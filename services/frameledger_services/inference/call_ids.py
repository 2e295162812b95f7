"""Ids of calls: the provider's own if it is unique and not too long, otherwise one derived from the call's position.

Some providers number the calls of an answer (`call_0`), name them after the function, or omit the id. Two runs of a
conversation, or two attempts of one run, could then have open calls with the same id, and a result could go to the
wrong one (R3.1). Providers do not look for their own id, so it can be replaced before it is published. For a provider
that accepts only ids of a certain form, such as Mistral, they have that form already here and not only in its requests:
later results name the call in their text, and a model names the call that it cancels.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from uuid import UUID, uuid5

from frameledger.frames import FunctionCallFromLLM

CALLS = UUID("0f1a6f2c-91a5-5c0e-8d5b-6f1c2b7a4d93")
"""The namespace of ids derived from a call's position. It never changes: a repeated announcement has the same ids."""

LONGEST = 40
"""The longest id in characters that providers accept. If a longer one were shortened in a request, the model would know
its call by another id than the messages about it."""

_RANDOM = re.compile(r"(?=[a-zA-Z-]*[0-9])[a-zA-Z0-9](?:-?[a-zA-Z0-9]){15,}")
"""Matches a random part: sixteen letters and digits in a row, ignoring hyphens, with at least one digit."""


def is_unique(tool_call_id: str, function_name: str) -> bool:
    """Returns whether an id looks random and long enough to be unique. The function's name in it does not count.

    A random id that happens to have no digit counts as not unique, which does no harm.
    """
    return (
        _RANDOM.search(tool_call_id.replace(function_name, " ") if function_name else tool_call_id)
        is not None
    )


def with_unique_ids(
    calls: Sequence[FunctionCallFromLLM],
    attempt: str,
    before: Collection[str] = (),
    accepted: Callable[[str], str] = str,
) -> tuple[FunctionCallFromLLM, ...]:
    """Returns the calls of one announcement, each with a unique id that is not too long. If two have the same id, the
    first keeps it. `attempt` distinguishes the announcing attempt from all others of all runs; `before` are the ids of
    the calls that it announced earlier. `accepted` returns an id in a form that the provider accepts."""
    used_ids = set(before)
    unique = []
    for place, call in enumerate(calls, start=len(used_ids)):
        call_id = call.tool_call_id
        if call_id in used_ids or len(call_id) > LONGEST or not is_unique(call_id, call.function_name):
            call_id = f"call_{uuid5(CALLS, f'{attempt}:{place}').hex}"
        call_id = accepted(call_id)
        used_ids.add(call_id)
        unique.append(
            call if call_id == call.tool_call_id else call.model_copy(update={"tool_call_id": call_id})
        )
    return tuple(unique)
