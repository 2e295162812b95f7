"""The middleware before the app, from the outside in, and the rule for the addresses on which a gateway may listen."""

from __future__ import annotations

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from frameledger.errors import ConfigurationError
from frameledger_services.gateway.access import tokens
from frameledger_services.gateway.access.guard import Guard
from frameledger_services.gateway.access.live_tokens import LiveTokens
from frameledger_services.gateway.access.rate_limit import RateLimit
from frameledger_services.gateway.access.read_log import ReadLog
from frameledger_services.gateway.access.redacted_answers import RedactedAnswers
from frameledger_services.gateway.access.response_headers import ResponseHeaders
from frameledger_services.gateway.access.sessions import Sessions
from frameledger_services.gateway.dependencies import Dependencies
from frameledger_services.gateway.plain_reads import PlainReads
from frameledger_services.settings import Settings
from frameledger_services.settings_types import origins_in
from frameledger_services.this_machine import is_this_machine

EXPOSED = (
    "ETag",
    "Frameledger-Context",
    "Link",
    "Location",
    "Preference-Applied",
    "Retry-After",
    "X-Should-Retry",
)
"""The headers of a response that scripts of another origin may read."""


class TokensNeededError(ConfigurationError):
    """The gateway is configured to listen beyond this machine, but there are no tokens: anybody could read everything.

    Remedy: Create one with `frameledger token new`, or let it listen at 127.0.0.1.
    """


def live_tokens(settings: Settings) -> LiveTokens:
    """Returns the tokens of a gateway that is about to listen.

    Raises `TokensNeededError` if it may not listen there, and `TokensFileError` if there are tokens that cannot be
    read, or a setting names a file that is not there.
    """
    path = tokens.path_of(settings)
    if settings.gateway_tokens_file is not None or path.exists():
        tokens.load(path)
        return LiveTokens(path, required=True)
    if not is_this_machine(settings.gateway_host):
        raise TokensNeededError(
            f"The gateway is to listen at {settings.gateway_host}, but there are no tokens in {path}. Create one with "
            "`frameledger token new --name NAME`, or let it listen at 127.0.0.1 (FRAMELEDGER_GATEWAY_HOST)."
        )
    return LiveTokens(path, required=False)


def secured(
    app: ASGIApp, settings: Settings, sessions: Sessions, dependencies: Dependencies | None = None
) -> ASGIApp:
    """Returns the app behind its security layers. With `dependencies`, current contexts are read without the app
    (`plain_reads`)."""
    limit = RateLimit(RedactedAnswers(app), settings)
    app = guard = Guard(ReadLog(limit), sessions)
    if origins := origins_in(settings.gateway_cors_origins):
        # Cookies are never sent: a page of another origin shows a token of its own. It may send any header, because
        # clients describe themselves in more of them with each release.
        app = CORSMiddleware(
            app,
            allow_origins=origins,
            allow_methods=("GET", "HEAD", "POST", "DELETE"),
            allow_headers=("*",),
            expose_headers=EXPOSED,
        )
    app = ResponseHeaders(app)
    return app if dependencies is None else PlainReads(app, dependencies, guard, limit)
