"""The options of a function, and `@tool_options`, which sets them on a handler."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self, TypeVar

H = TypeVar("H", bound=Callable[..., Any])

_MARK = "__frameledger_tool_options__"


@dataclass(frozen=True, slots=True)
class OptionOverrides:
    """Options as they were given; None for those that were not."""

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
    """The options of a function's calls. A call keeps those that it started with."""

    cancel_on_interruption: bool = True
    """True: synchronous, cancelled by an interruption. False: asynchronous, the conversation goes on meanwhile."""

    timeout_secs: float | None = None
    """How long a call may take since it was dispatched; None: the service's `function_call_timeout_secs`."""

    cancellable_by_llm: bool = False
    """Whether the model is offered a tool that cancels its calls. For asynchronous functions only."""

    safe_to_retry: bool = False
    """Whether another worker may run a call again after the first one died. If not, it is run at most once."""

    @classmethod
    def resolved(cls, given: OptionOverrides, handler: object) -> Self:
        """Returns the options that were given, else those of `@tool_options` on the handler, else the defaults."""
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
) -> Callable[[H], H]:
    """A decorator that sets options on a handler, and does not wrap it. Options given at registration win."""
    given = OptionOverrides(cancel_on_interruption, timeout_secs, cancellable_by_llm, safe_to_retry)

    def annotate(handler: H) -> H:
        setattr(handler, _MARK, given)
        return handler

    return annotate


def marked_on(handler: object) -> OptionOverrides:
    """Returns the options that `@tool_options` set on a handler."""
    found = getattr(handler, _MARK, None)
    return found if isinstance(found, OptionOverrides) else OptionOverrides()


def _first(*choices: bool | None) -> bool:
    return next(choice for choice in choices if choice is not None)
