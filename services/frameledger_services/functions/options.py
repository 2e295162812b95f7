"""The options of a function, and the decorator `@tool_options` that sets them on a handler."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self, TypeVar

H = TypeVar("H", bound=Callable[..., Any])

_MARK = "__frameledger_tool_options__"


@dataclass(frozen=True, slots=True)
class OptionOverrides:
    """Explicitly given options; None means not given."""

    cancel_on_interruption: bool | None = None
    timeout_secs: float | None = None
    cancellable_by_llm: bool | None = None
    safe_to_retry: bool | None = None

    def __post_init__(self) -> None:
        secs = self.timeout_secs
        if secs is not None and not (math.isfinite(secs) and secs > 0):
            raise ValueError(f"timeout_secs must be a number of seconds above 0, not {secs!r}")


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a function's calls. A call keeps the options with which it started."""

    cancel_on_interruption: bool = True
    """True: the call is synchronous, and an interruption cancels it. False: the call is asynchronous, and the
    conversation continues while it runs."""

    timeout_secs: float | None = None
    """Timeout of a call, counted from its dispatch; None takes the service's `function_call_timeout_secs`."""

    cancellable_by_llm: bool = False
    """Whether the model gets a tool that cancels calls of this function. For asynchronous functions only, whose name
    has at most 57 characters."""

    safe_to_retry: bool = False
    """Whether another worker may run a call again if its worker dies. If not, the handler runs at most once."""

    @classmethod
    def resolved(cls, overrides: OptionOverrides, handler: object) -> Self:
        """Returns each option as given, else as set by `@tool_options` on the handler, else its default."""
        marked = marked_on(handler)
        default = cls()
        return cls(
            _first(
                overrides.cancel_on_interruption,
                marked.cancel_on_interruption,
                default.cancel_on_interruption,
            ),
            overrides.timeout_secs if overrides.timeout_secs is not None else marked.timeout_secs,
            _first(overrides.cancellable_by_llm, marked.cancellable_by_llm, default.cancellable_by_llm),
            _first(overrides.safe_to_retry, marked.safe_to_retry, default.safe_to_retry),
        )


def tool_options(
    *,
    cancel_on_interruption: bool | None = None,
    timeout_secs: float | None = None,
    cancellable_by_llm: bool | None = None,
    safe_to_retry: bool | None = None,
) -> Callable[[H], H]:
    """Decorator that sets options on a handler without wrapping it. Options given at registration take precedence."""
    overrides = OptionOverrides(cancel_on_interruption, timeout_secs, cancellable_by_llm, safe_to_retry)

    def annotate(handler: H) -> H:
        setattr(handler, _MARK, overrides)
        return handler

    return annotate


def marked_on(handler: object) -> OptionOverrides:
    """Returns the options that `@tool_options` set on a handler."""
    overrides = getattr(handler, _MARK, None)
    return overrides if isinstance(overrides, OptionOverrides) else OptionOverrides()


def _first(*choices: bool | None) -> bool:
    return next(choice for choice in choices if choice is not None)
