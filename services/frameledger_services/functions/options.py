"""The options of a function, and the decorator `@tool_options` that sets them on a handler."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
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
    """Timeout of a call, counted from its dispatch; None means the service's `function_call_timeout_secs`."""

    cancellable_by_llm: bool = False
    """Whether the model gets a tool that cancels calls of this function. Only for asynchronous functions whose name has
    at most 57 characters."""

    safe_to_retry: bool = False
    """Whether another worker may run a call again if its worker dies. If not, the handler runs at most once."""

    @classmethod
    def resolved(cls, overrides: OptionOverrides, handler: Callable[..., Any]) -> Self:
        """Returns each option as given, else as set by `@tool_options` on the handler, else its default."""
        return cls(**(_given(marked_on(handler)) | _given(overrides)))


def tool_options(
    *,
    cancel_on_interruption: bool | None = None,
    timeout_secs: float | None = None,
    cancellable_by_llm: bool | None = None,
    safe_to_retry: bool | None = None,
) -> Callable[[H], H]:
    """Decorator that sets options on a handler without wrapping it. It may be above or below the decorator that
    registers the handler. Options given at registration take precedence; of two such decorators the upper one does."""
    overrides = OptionOverrides(cancel_on_interruption, timeout_secs, cancellable_by_llm, safe_to_retry)

    def annotate(handler: H) -> H:
        # Neither a static nor a class method is the object that is registered later.
        marked = handler.__func__ if isinstance(handler, staticmethod | classmethod) else handler
        earlier = _given(getattr(marked, _MARK, None))
        setattr(marked, _MARK, OptionOverrides(**(earlier | _given(overrides))))
        return handler

    return annotate


def marked_on(handler: Callable[..., Any]) -> OptionOverrides:
    """Returns the options that `@tool_options` set on a handler, or on what a call runs: the function of a `partial`,
    or the `__call__` of an object."""
    places: list[object] = [handler]
    while isinstance(handler, partial):
        handler = handler.func
        places.append(handler)
    places.append(type(handler).__call__)
    given: dict[str, Any] = {}
    for place in reversed(places):
        given |= _given(getattr(place, _MARK, None))
    return OptionOverrides(**given)


def _given(overrides: object) -> dict[str, Any]:
    # Some objects return a value for every attribute.
    if not isinstance(overrides, OptionOverrides):
        return {}
    return {name: value for name, value in asdict(overrides).items() if value is not None}
