"""Sessions of the page: a signed cookie instead of a token, because a browser's EventSource sends no headers.

The cookie has the id of the token, not its text, and is valid for twelve hours, or until the token expires.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping
from functools import partial
from typing import Any

from itsdangerous import BadSignature, URLSafeTimedSerializer
from starlette.datastructures import Headers
from starlette.requests import Request, cookie_parser
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Scope

from frameledger_services.gateway import body
from frameledger_services.gateway.access import caller
from frameledger_services.gateway.access.caller import LOOPBACK, Caller
from frameledger_services.gateway.access.live_tokens import LiveTokens
from frameledger_services.gateway.access.tokens import Token
from frameledger_services.gateway.problems import ProblemError
from frameledger_services.settings import Settings

SECONDS = 12 * 3600
MAX_BYTES = 4_096
"""Maximum bytes in the body of a request with a token."""


def came_by_https(scope: Scope) -> bool:
    """Returns whether a request came by https, according to uvicorn, which reads `X-Forwarded-Proto` of trusted
    proxies."""
    return scope.get("scheme") == "https"


def _name(is_https: bool) -> str:
    """Returns the cookie's name. On https it has a prefix that other hosts of the domain, and pages on http, cannot
    set. A cookie without the prefix may be theirs, so it is ignored there."""
    return "__Host-frameledger-session" if is_https else "frameledger-session"


class Sessions:
    """The sessions of a gateway. It stores none of them: the signature proves the content of a cookie."""

    def __init__(self, settings: Settings, tokens: LiveTokens) -> None:
        key = settings.gateway_session_key
        self.tokens = tokens
        self.trace_url = settings.trace_url
        self._signer = URLSafeTimedSerializer(
            secrets.token_bytes(32) if key is None else key.get_secret_value(),
            salt="frameledger page session",
            signer_kwargs={"key_derivation": "hmac", "digest_method": hashlib.sha256},
        )

    def token_of(self, headers: Headers, *, is_https: bool) -> Token | None:
        """Returns the token of a request's cookie; None without a cookie, or if cookie or token has expired."""
        signed = cookie_parser(headers.get("cookie", "")).get(_name(is_https))
        if signed is None:
            return None
        try:
            id_ = self._signer.loads(signed, max_age=SECONDS)
        except BadSignature:
            return None
        return self.tokens.of_id(id_)

    def begin(self, response: Response, token: Token, *, is_https: bool) -> None:
        """Set the cookie."""
        self._set(response, self._signer.dumps(token.id), SECONDS, is_https)

    def end(self, response: Response, *, is_https: bool) -> None:
        """Delete the cookie."""
        self._set(response, "", 0, is_https)

    @staticmethod
    def _set(response: Response, text: str, seconds: int, is_https: bool) -> None:
        response.set_cookie(
            _name(is_https),
            text,
            max_age=seconds,
            path="/",
            secure=is_https,
            httponly=True,
            samesite="strict",
        )


def routes(sessions: Sessions) -> list[Route]:
    """Returns `/session`: POST begins one with `{"token": ...}`, GET describes the caller, DELETE ends it."""

    # Includes the settings that the page needs.
    about = partial(_about, {} if sessions.trace_url is None else {"trace_url": sessions.trace_url})

    async def begin(request: Request) -> Response:
        text = await _token_in(request)
        if not sessions.tokens.are_required():
            return about(LOOPBACK)
        token = sessions.tokens.of_text(text)
        if token is None:
            raise ProblemError("unauthorised", "The token is unknown, revoked or expired.")
        response = about(token.caller())
        sessions.begin(response, token, is_https=came_by_https(request.scope))
        return response

    async def who(request: Request) -> Response:
        asking = caller.of(request.scope)
        if not asking.scopes:
            raise ProblemError("unauthorised", "There is no session: POST a token here.")
        return about(asking)

    async def end(request: Request) -> Response:
        response = Response(status_code=204)
        sessions.end(response, is_https=came_by_https(request.scope))
        return response

    return [
        Route("/session", begin, methods=["POST"]),
        Route("/session", who, methods=["GET"]),
        Route("/session", end, methods=["DELETE"]),
    ]


async def _token_in(request: Request) -> str:
    content = await body.received(
        request, MAX_BYTES, f"A request with a token has at most {MAX_BYTES} bytes."
    )
    try:
        parsed: Any = json.loads(content)
    except (ValueError, RecursionError):
        parsed = None
    match parsed:
        case {"token": str(text)}:
            return text
    raise ProblemError("bad-parameter", 'The body has to be {"token": "fl_..."}, as JSON.')


def _about(settings: Mapping[str, str], asking: Caller) -> Response:
    return JSONResponse(
        {
            "name": asking.name,
            "scopes": sorted(asking.scopes),
            "prefix": asking.prefix,
            "redact": asking.redact,
            "needs_token": asking.token_id is not None,
            **settings,
        },
        headers={"Cache-Control": "no-store"},
    )
