"""Ids of calls: a provider's own where nobody else can have the same and all providers take it, and otherwise one made
from the call's place.

Some providers number the calls of an answer (`call_0`), name them after the function, or leave the id out. Two runs
of a conversation, or two attempts of one run, would then have calls of one id open at once, and a result could go to
the wrong one (R3.1). Providers take any id, so it can be exchanged before anybody has seen it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from uuid import UUID, uuid5

from frameledger.frames import FunctionCallFromLLM

CALLS = UUID("0f1a6f2c-91a5-5c0e-8d5b-6f1c2b7a4d93")
"""The namespace of ids that follow from a call's place. It never changes: a repeated announcement has the same ids."""

LONGEST = 40
"""Characters of an id that every provider takes. Where a longer one is shortened in a request, the model knows its
call by another name than the messages about it do."""

_RANDOM = re.compile(r"(?=[a-zA-Z-]*[0-9])[a-zA-Z0-9](?:-?[a-zA-Z0-9]){15,}")
"""What chance alone makes: sixteen letters and digits in a row, hyphens aside, and a digit among them."""


def is_unique(tool_call_id: str, function_name: str) -> bool:
    """Whether an id looks drawn by chance from so many that nobody draws it twice. The function's name is no chance.

    A random one that happens to have no digit counts as not unique, which does no harm.
    """
    return (
        _RANDOM.search(tool_call_id.replace(function_name, " ") if function_name else tool_call_id)
        is not None
    )


def with_unique_ids(calls: Sequence[FunctionCallFromLLM], attempt: str) -> tuple[FunctionCallFromLLM, ...]:
    """The calls of one announcement, each with an id that no other call has and every provider takes: of two with one
    id the first keeps it. `attempt` is what distinguishes the attempt that announces them from all others, of whatever
    run."""
    taken: set[str] = set()
    unique = []
    for place, call in enumerate(calls):
        given = call.tool_call_id
        if given in taken or len(given) > LONGEST or not is_unique(given, call.function_name):
            call = call.model_copy(update={"tool_call_id": f"call_{uuid5(CALLS, f'{attempt}:{place}').hex}"})
        taken.add(call.tool_call_id)
        unique.append(call)
    return tuple(unique)
