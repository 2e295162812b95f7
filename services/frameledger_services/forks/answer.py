"""An answer of a model at a version of a conversation, recorded or new, in one form so that two can be compared."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Answered = Literal["recorded", "not available"]
"""How a call of a rerun was answered: by the original's result, or with the text that there is none."""


@dataclass(frozen=True, slots=True)
class UsedTokens:
    """Tokens used; None if unknown. `input` counts those read from the cache or written to it too."""

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
    """A model's answer at a moment, with everything that its calls led to: one request, or several with results between
    them."""

    text: str = ""
    calls: tuple[AnswerCall, ...] = ()
    provider: str | None = None
    model: str | None = None
    requests: int = 0
    tokens: UsedTokens = field(default_factory=UsedTokens)
    seconds: float | None = None
    """The sum over requests, from start to end of each: the time of functions is not included."""

    first_text_seconds: float | None = None
    """The same up to the first text."""

    error: str | None = None
    """The provider's message when it failed; the other fields have what came before."""

    context_id: str | None = None
    """The experiment that holds it; None for an original."""

    run_id: str | None = None
    """The run that it is of; None for a rerun."""

    price: float | None = None


def _sum(first: int | None, second: int | None) -> int | None:
    return second if first is None else first if second is None else first + second
