"""A model's answer at a version of a conversation, recorded or new, in one form for comparison."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Answered = Literal["recorded", "not available"]
"""How a call of a rerun was answered: with the original's result, or with a text that says there is none."""


@dataclass(frozen=True, slots=True)
class UsedTokens:
    """Tokens used; None if unknown. `input` includes those read from or written to the cache."""

    input: int | None = None
    output: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None

    def __add__(self, other: UsedTokens) -> UsedTokens:
        return UsedTokens(
            _sum(self.input, other.input),
            _sum(self.output, other.output),
            _sum(self.cache_read, other.cache_read),
            _sum(self.cache_write, other.cache_write),
        )


@dataclass(frozen=True, slots=True)
class AnswerCall:
    """A call that a model made."""

    function_name: str
    arguments: Any
    answered: Answered | None = None
    """None in an original."""


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """A model's answer at a version, with all that follows from its calls: one request, or several with results in
    between."""

    text: str = ""
    calls: tuple[AnswerCall, ...] = ()
    provider: str | None = None
    model: str | None = None
    requests: int = 0
    tokens: UsedTokens = field(default_factory=UsedTokens)
    seconds: float | None = None
    """The total duration of the requests, without the time of functions."""

    first_text_seconds: float | None = None
    """The total time of the requests up to the first text."""

    error: str | None = None
    """The provider's message if it failed; the other fields have the part of the answer before that."""

    context_id: str | None = None
    """The experiment that contains it; None for an original."""

    run_id: str | None = None
    """Its run; None for a rerun."""

    price: float | None = None


def _sum(first: int | None, second: int | None) -> int | None:
    return second if first is None else first if second is None else first + second
