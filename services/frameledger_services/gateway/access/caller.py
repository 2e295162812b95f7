"""The caller of a request, as the security middleware determines it and the routes use it."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any, Literal, get_args

from frameledger.values import value

Scope = Literal["read", "append", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)

_KEY = "frameledger.caller"


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
    found: Caller = scope[_KEY]
    return found


def set_caller(scope: MutableMapping[str, Any], caller: Caller) -> None:
    """Note in an ASGI scope who sent it."""
    scope[_KEY] = caller
