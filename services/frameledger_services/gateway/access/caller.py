"""The caller of a request, as the security middleware determines it and the routes use it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, Literal, get_args

from frameledger.values import value

Scope = Literal["read", "append", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)

_KEY = "frameledger.caller"
_IS_GOOD = "frameledger.caller_is_good"


@value
class Caller:
    """Whoever sent a request, and what it may do."""

    name: str
    """Its token's name, for logs."""

    scopes: frozenset[Scope]

    prefix: str = ""
    """It may read and append to conversations whose id begins so; others are not there for it."""

    redact: bool = False
    """Its responses contain no text, arguments and results."""

    token_id: str | None = None
    """None on loopback without tokens."""

    def may_see(self, context_id: str) -> bool:
        """Returns whether the conversation is one of its own."""
        return context_id.startswith(self.prefix)


NOBODY = Caller("nobody", frozenset())
"""Whoever asks for what everybody may have, and has shown no token."""

LOOPBACK = Caller("loopback", frozenset(SCOPES))
"""Anybody on this machine, where there are no tokens."""


def of(scope: Mapping[str, Any]) -> Caller:
    """Returns who sent the request of an ASGI scope. Raises KeyError for one that came past the guard, which is a
    bug."""
    caller: Caller = scope[_KEY]
    return caller


def set_caller(
    scope: MutableMapping[str, Any], caller: Caller, is_good: Callable[[], bool] | None = None
) -> None:
    """Note in an ASGI scope who sent it, and what says whether that is still so; None if it is for ever."""
    scope[_KEY] = caller
    scope[_IS_GOOD] = is_good


def is_still_good(scope: Mapping[str, Any]) -> bool:
    """Returns whether the caller would be the same one now: its token is neither revoked nor expired, and may do what
    it might. To be asked by what answers for longer than a moment; it takes microseconds."""
    is_good: Callable[[], bool] | None = scope.get(_IS_GOOD)
    return is_good is None or is_good()
