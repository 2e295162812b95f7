"""Authentication and authorization: identifies the caller of each request, and rejects what it may not do.

The caller is that of the bearer token, else of the page's session cookie. A gateway without tokens serves its own
machine only; then `Host` must name this machine too, because a website may resolve its own name to it (DNS rebinding).
"""

from __future__ import annotations

import re
from functools import lru_cache, partial

from starlette.datastructures import URL, Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from frameledger_services.gateway import problems
from frameledger_services.gateway.access import caller, policy
from frameledger_services.gateway.access.caller import LOOPBACK, NOBODY
from frameledger_services.gateway.access.cross_site import is_forged
from frameledger_services.gateway.access.repeated_headers import check_single
from frameledger_services.gateway.access.sessions import Sessions, came_by_https
from frameledger_services.gateway.access.tokens import Token
from frameledger_services.gateway.live import protocol
from frameledger_services.gateway.problems import ProblemError
from frameledger_services.gateway.raw_paths import path_of
from frameledger_services.store.contexts import NoSuchContextError
from frameledger_services.this_machine import is_this_machine

_HOST = re.compile(r"(?:(?P<name>[^:@/\[\]]+)|\[(?P<address>[^\[\]]+)\])(?::\d+)?", re.ASCII)

CHALLENGE = {"WWW-Authenticate": 'Bearer realm="frameledger"'}


class Guard:
    """ASGI middleware. A request that passes it has a caller (`caller.of`) that may make it."""

    def __init__(self, app: ASGIApp, sessions: Sessions) -> None:
        self._app = app
        self._sessions = sessions
        self._tokens = sessions.tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            self.admit(scope)
        except ProblemError as problem:
            await problems.response(URL(scope=scope), problem)(scope, receive, send)
            return
        try:
            await self._app(scope, receive, partial(_send_while_good, scope, send))
        except _RevokedError:
            if _can_end_anywhere(scope) or not protocol.abort(scope):
                return
            # Until the server notices that the client is gone, it reports an unfinished response as a failure.
            while (await receive())["type"] != "http.disconnect":
                pass

    def admit(self, scope: Scope) -> None:
        """Set the caller of the request. Raises `ProblemError` if it may not make the request."""
        check_single(scope["headers"])
        headers = Headers(scope=scope)
        method, path = scope["method"], path_of(scope)
        if is_forged(method, headers):
            raise ProblemError("forbidden", "Requests from pages of another origin may not change anything.")
        need = policy.needed(method, path)
        if not self._tokens.are_required():
            if not _names_this_machine(headers.get("host", "")):
                raise ProblemError(
                    "forbidden",
                    "A gateway without tokens accepts requests to localhost only.",
                )
            caller.set_caller(scope, LOOPBACK, self._is_open if need.needs_token else None)
            return
        token = self._token(headers, is_https=came_by_https(scope))
        if token is None and need.needs_token:
            raise ProblemError("unauthorised", _why_unknown(headers), headers=CHALLENGE)
        asking = NOBODY if token is None else token.caller()
        for scope_ in need.scopes:
            if scope_ not in asking.scopes:
                if not need.is_listed:
                    raise _not_found(path, need.context_id)
                raise ProblemError("forbidden", f"This request needs a token with the scope {scope_}.")
        if need.needs_token and not need.exists_for(asking):
            raise _not_found(path, need.context_id)
        caller.set_caller(scope, asking, None if token is None else partial(self._is_unchanged, token))

    def _token(self, headers: Headers, *, is_https: bool) -> Token | None:
        authorization = headers.get("authorization")
        if authorization is None:
            return self._sessions.token_of(headers, is_https=is_https)
        scheme, _, text = authorization.partition(" ")
        return self._tokens.of_text(text.strip()) if scheme.lower() == "bearer" else None

    def _is_open(self) -> bool:
        return not self._tokens.are_required()

    def _is_unchanged(self, token: Token) -> bool:
        """Whether the token still permits what it permitted when the request arrived."""
        return self._tokens.of_id(token.id) == token


async def _send_while_good(scope: Scope, send: Send, message: Message) -> None:
    """Ends a long response at its next piece, once its token is revoked, expired or changed.

    A conversation's `/stream` has heartbeats, and ends as if it were complete: its client requests the rest. Any other
    response is aborted, including the streams of AG-UI and of chat completions, because its client would mistake the
    part for the whole.
    """
    is_piece = message["type"] == "http.response.body" and message.get("more_body", False)
    if is_piece and not caller.is_still_good(scope):
        if _can_end_anywhere(scope):
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        raise _RevokedError
    await send(message)


class _RevokedError(BaseException):
    """Ends a response whose caller has lost its permissions. Not an `Exception`, which the app would treat as its own
    failure."""


def _can_end_anywhere(scope: Scope) -> bool:
    return path_of(scope).endswith("/stream")


@lru_cache(maxsize=64)
def _names_this_machine(host: str) -> bool:
    """Returns whether a `Host` header names this machine."""
    named = _HOST.fullmatch(host)
    return named is not None and is_this_machine(named["name"] or named["address"])


def _why_unknown(headers: Headers) -> str:
    if "authorization" in headers:
        return "The token is unknown, revoked or expired."
    return "The request has no token."


def _not_found(path: str, context_id: str | None) -> ProblemError:
    """Returns the same problem as for a conversation, or a route, that does not exist."""
    if context_id is None:
        return ProblemError("not-found", f"No route matches {path}.")
    error = NoSuchContextError(context_id)
    return ProblemError("no-such-context", str(error), context_id=context_id)
