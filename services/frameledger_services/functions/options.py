"""How a function is called: its options, and `@tool_options`, which writes them on a handler (semantics 5.2)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self, TypeVar

Handler = TypeVar("Handler", bound=Callable[..., Any])

_MARK = "__frameledger_tool_options__"


@dataclass(frozen=True, slots=True)
class OptionOverrides:
    """Options as somebody gave them; null for those that were not given."""

    cancel_on_interruption: bool | None = None
    timeout_secs: float | None = None
    cancellable_by_llm: bool | None = None
    safe_to_retry: bool | None = None

    def __post_init__(self) -> None:
        secs = self.timeout_secs
        if secs is not None and not (math.isfinite(secs) and secs > 0):
            raise ValueError(f"timeout_secs is a number of seconds above 0, not {secs!r}")


@dataclass(frozen=True, slots=True)
class Options:
    """The terms of a function's calls. A call keeps those it started on."""

    cancel_on_interruption: bool = True
    """True: synchronous, and an interruption cancels it. False: the conversation goes on, results come later."""

    timeout_secs: float | None = None
    """How long a call may take since it was dispatched; null: as the service says."""

    cancellable_by_llm: bool = False
    """Whether the model is offered a tool to cancel calls of it. Means something for asynchronous ones only."""

    safe_to_retry: bool = False
    """Whether another worker may run it again when the first one died. If not, it is run at most once."""

    @classmethod
    def resolved(cls, given: OptionOverrides, handler: object) -> Self:
        """Explicit options, then those of `@tool_options` on the handler, then the defaults."""
        marked = marked_on(handler)
        default = cls()
        return cls(
            _first(
                given.cancel_on_interruption, marked.cancel_on_interruption, default.cancel_on_interruption
            ),
            given.timeout_secs if given.timeout_secs is not None else marked.timeout_secs,
            _first(given.cancellable_by_llm, marked.cancellable_by_llm, default.cancellable_by_llm),
            _first(given.safe_to_retry, marked.safe_to_retry, default.safe_to_retry),
        )


def tool_options(
    *,
    cancel_on_interruption: bool | None = None,
    timeout_secs: float | None = None,
    cancellable_by_llm: bool | None = None,
    safe_to_retry: bool | None = None,
) -> Callable[[Handler], Handler]:
    """A decorator that writes options on a handler. It only annotates: the function is called as before.

    What registers the handler may give other options, which win.
    """
    given = OptionOverrides(cancel_on_interruption, timeout_secs, cancellable_by_llm, safe_to_retry)

    def annotate(handler: Handler) -> Handler:
        setattr(handler, _MARK, given)
        return handler

    return annotate


def marked_on(handler: object) -> OptionOverrides:
    """What `@tool_options` wrote on a handler; nothing given if it did not."""
    found = getattr(handler, _MARK, None)
    return found if isinstance(found, OptionOverrides) else OptionOverrides()


def _first(*choices: bool | None) -> bool:
    return next(choice for choice in choices if choice is not None)
