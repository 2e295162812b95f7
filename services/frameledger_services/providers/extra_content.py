"""`extra_content` that a server adds to the calls of an answer, and expects back in later requests.

Google's compatible endpoint signs the calls of Gemini there, and from Gemini 3 on refuses a request whose calls of the
current turn lack it. A call on the log and in the context has only the fields of its frame, so the addition is kept as
a signed thought before the calls: the context has a place for thoughts, and other providers omit this one. The thought
has its own provider name: frameworks that read the context, such as Pipecat, send messages under a provider's name to
that provider unchanged, and the API refuses a message without a role.

A call is found again by its name and arguments, because its id may have changed. The thought has all calls of its
answer, in the order of the model: calls that start at once may be stored in any order, and only the first is signed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

from frameledger.frames import AnyFrame, FunctionCallFromLLM, LLMThoughtEndFrame, LLMThoughtStartFrame
from frameledger_services.providers.called_names import accepted
from frameledger_services.providers.request import encoded

EXTRA = "extra_content"
"""The field of a call, and of a thought's signature. Stored; it never changes."""


def kept_under(provider: str) -> str:
    """Returns the name that such a thought has in a context."""
    return f"{provider}/{EXTRA}"


def thought_of(
    provider: str, calls: Sequence[FunctionCallFromLLM], extras: Sequence[Mapping[str, Any] | None]
) -> Iterator[AnyFrame]:
    """Returns the frames that store the server's additions to these calls; none if it added no JSON."""
    storable = [extra if extra and is_json(extra) else None for extra in extras]
    if any(storable):
        recorded = [
            {"call": digest(call.function_name, call.arguments)} | ({EXTRA: extra} if extra else {})
            for call, extra in zip(calls, storable, strict=True)
        ]
        yield LLMThoughtStartFrame(llm=kept_under(provider), append_to_context=True)
        yield LLMThoughtEndFrame(signature={EXTRA: recorded})


class ExtraContent:
    """The additions to the calls of a history, while its messages are read from the first to the last."""

    def __init__(self) -> None:
        self._recorded: dict[int, tuple[str, Mapping[str, Any] | None]] = {}
        """By its place in the answer, the digest of a call and its addition."""

    def read(self, thought: Mapping[str, Any]) -> None:
        """Read a stored thought: its content belongs to the calls that follow. Any other thought changes nothing."""
        match thought.get("signature"):
            case {"extra_content": [*recorded]}:
                self._recorded = {place: _read(one) for place, one in enumerate(recorded)}

    def added_to(self, calls: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Returns the calls of an answer with their additions, in the order of the model; those that its thought does
        not name come last. Calls of later answers have a thought of their own."""
        recorded, self._recorded = self._recorded, {}
        if not recorded:
            return list(calls)
        known: list[tuple[int, Mapping[str, Any]]] = []
        unknown: list[Mapping[str, Any]] = []
        for call in calls:
            function = call["function"]
            found = digest(function["name"], function.get("arguments"))
            place = next((place for place, (one, _) in recorded.items() if one == found), None)
            if place is None:
                unknown.append(call)
                continue
            _, extra = recorded.pop(place)
            known.append((place, {**call, EXTRA: extra} if extra else call))
        return [call for _, call in sorted(known, key=itemgetter(0))] + unknown


def digest(function_name: str, arguments: Any) -> str:
    """Returns the key that identifies a call."""
    # With the name that providers accept, as in requests.
    return hashlib.sha256(encoded([accepted(function_name), arguments])).hexdigest()[:16]


def _read(recorded: object) -> tuple[str, Mapping[str, Any] | None]:
    match recorded:
        case {"call": str(call), "extra_content": Mapping() as extra}:
            return call, extra
        case {"call": str(call)}:
            return call, None
    return "", None


def is_json(extra: Mapping[str, Any]) -> bool:
    """Returns whether a frame may contain it: the client of the API also reads NaN and infinite numbers."""
    try:
        encoded(extra)
    except (ValueError, RecursionError):
        return False
    return True
