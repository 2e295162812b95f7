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
    """The sender of a request, and what it may do."""

    name: str
    """Its token's name, for logs."""

    scopes: frozenset[Scope]

    prefix: str = ""
    """It may only read and append to conversations whose ids start with this; others do not exist for it."""

    redact: bool = False
    """Its responses contain no text, arguments and results."""

    token_id: str | None = None
    """None on loopback without tokens."""

    def may_see(self, context_id: str) -> bool:
        """Returns whether the conversation is one of its own."""
        return context_id.startswith(self.prefix)


NOBODY = Caller("nobody", frozenset())
"""The caller of a request without a token, on paths that need none."""

LOOPBACK = Caller("loopback", frozenset(SCOPES))
"""The caller of every request to a gateway without tokens, which only this machine reaches."""


def of(scope: Mapping[str, Any]) -> Caller:
    """Returns the caller of an ASGI scope. Raises KeyError for a request that bypassed the guard, which is a bug."""
    caller: Caller = scope[_KEY]
    return caller


def set_caller(
    scope: MutableMapping[str, Any], caller: Caller, is_good: Callable[[], bool] | None = None
) -> None:
    """Store the caller in an ASGI scope. `is_good` returns whether its token still permits what it permitted when the
    request arrived; None if that cannot change."""
    scope[_KEY] = caller
    scope[_IS_GOOD] = is_good


def is_still_good(scope: Mapping[str, Any]) -> bool:
    """Returns whether the caller's token has been neither revoked nor changed since the request arrived, nor expired.
    Responses that take longer than a moment ask this repeatedly; it takes microseconds."""
    is_good: Callable[[], bool] | None = scope.get(_IS_GOOD)
    return is_good is None or is_good()
