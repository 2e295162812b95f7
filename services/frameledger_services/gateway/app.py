"""The ASGI app: its routes, and the problem response of each error."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route

from frameledger_services import logs
from frameledger_services.client import NoSuchContextError, NoSuchVersionError, NotPublishedError
from frameledger_services.event_log.broker import BrokerError
from frameledger_services.gateway import (
    append,
    asyncapi,
    call_results,
    contexts,
    details,
    document,
    erase,
    frames,
    health,
    lists,
    outcomes,
    pages,
    problems,
    publishing,
    runs,
    schemas,
)
from frameledger_services.gateway.access import policy
from frameledger_services.gateway.ag_ui import routes as ag_ui
from frameledger_services.gateway.dependencies import Dependencies
from frameledger_services.gateway.live import streams
from frameledger_services.gateway.live.hub import TooManyFollowersError
from frameledger_services.gateway.metrics import NoteRoute
from frameledger_services.gateway.openai import routes as openai
from frameledger_services.gateway.openai_responses import routes as openai_responses
from frameledger_services.gateway.outages import Outages
from frameledger_services.gateway.problems import ProblemError
from frameledger_services.gateway.raw_paths import RawPaths, path_of
from frameledger_services.store.connections import DatabaseError
from frameledger_services.store.schema import SchemaError

_log = logs.get_logger("gateway")


def create_app(dependencies: Dependencies, *, routes: Sequence[BaseRoute] = ()) -> Starlette:
    """Returns the app, which has to be wrapped by `security.secured`. `routes` are added to its own."""
    app = Starlette(middleware=[Middleware(RawPaths), Middleware(NoteRoute)])
    # No redirects to paths with or without a final slash: they would lose the percent-encoding of the path.
    app.router.redirect_slashes = False
    app.state.dependencies = dependencies
    app.state.outages = Outages()
    modules = (
        health,
        contexts,
        append,
        outcomes,
        frames,
        streams,
        details,
        runs,
        lists,
        call_results,
        erase,
        asyncapi,
        schemas,
        openai,
        openai_responses,
        ag_ui,
        pages,
    )
    for module in modules:
        app.router.routes.extend(module.routes(dependencies))
    app.router.routes.extend((*problems.ROUTES, *routes))
    app.router.routes.extend(document.routes(app.router.routes))
    for error, handler in _HANDLERS.items():
        app.add_exception_handler(error, handler)
    return app


def _note(request: Request, word: str, reason: str) -> None:
    outages: Outages = request.app.state.outages
    outages.note(word, reason)


async def _problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, ProblemError)
    _note(request, error.word, str(error))
    return problems.answer(request, error)


async def _no_such_context(request: Request, error: Exception) -> Response:
    assert isinstance(error, NoSuchContextError)
    return problems.answer(request, ProblemError("no-such-context", str(error), context_id=error.context_id))


async def _no_such_version(request: Request, error: Exception) -> Response:
    assert isinstance(error, NoSuchVersionError)
    return problems.answer(
        request,
        ProblemError("no-such-version", str(error), context_id=error.context_id, newest=error.newest),
    )


async def _database_away(request: Request, error: Exception) -> Response:
    dependencies: Dependencies = request.app.state.dependencies
    dependencies.kept.clear()
    _note(request, "database-away", str(error))
    return problems.answer(request, ProblemError("database-away", "PostgreSQL does not respond."))


async def _too_many_followers(request: Request, error: Exception) -> Response:
    return problems.answer(
        request, ProblemError("too-many", "This gateway has reached its limit of streams.")
    )


async def _wrong_schema(request: Request, error: Exception) -> Response:
    return problems.answer(request, ProblemError("wrong-schema", str(error)))


async def _log_away(request: Request, error: Exception) -> Response:
    """Answers if Kafka does not respond, or did not accept a frame of the gateway's own, such as an interruption."""
    _note(request, "log-away", str(error))
    if isinstance(error, NotPublishedError):
        problem = publishing.not_published("log-away", str(error), [one.id for one in error.frames])
    else:
        problem = publishing.not_published("log-away", "Kafka does not respond.", [])
    return problems.answer(request, problem)


async def _of_starlette(request: Request, error: Exception) -> Response:
    """Answers the errors of Starlette's router."""
    assert isinstance(error, HTTPException)
    word = {405: "method-not-allowed", 413: "too-large"}.get(error.status_code, "not-found")
    detail = f"{request.method} {request.url.path}"
    headers = dict(error.headers or {})
    if word == "method-not-allowed":
        headers["Allow"] = ", ".join(sorted(_methods(request)))
    elif (path := path_of(request.scope)).startswith(policy.OPENAI_CONVERSATIONS):
        detail += (
            f" does not exist: conversations are at {policy.CONTEXTS}, and one at {policy.CONTEXTS}/{{id}}."
        )
    elif policy.is_openai(path):
        detail += " does not exist here: the gateway has chat completions and responses."
    return problems.answer(request, ProblemError(word, detail, headers=headers))


def _methods(request: Request) -> set[str]:
    """Returns the methods of all routes of a path. The router names only those of the first."""
    methods = set[str]()
    for route in request.app.routes:
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE:
            methods |= route.methods or set()
    return methods


async def _bug(request: Request, error: Exception) -> Response:
    _log.error("gateway.request_failed", method=request.method, path=request.url.path, exc_info=error)
    return problems.answer(request, ProblemError("internal-error", "The gateway failed."))


_HANDLERS = {
    ProblemError: _problem,
    NoSuchContextError: _no_such_context,
    NoSuchVersionError: _no_such_version,
    TooManyFollowersError: _too_many_followers,
    DatabaseError: _database_away,
    SchemaError: _wrong_schema,
    BrokerError: _log_away,
    NotPublishedError: _log_away,
    HTTPException: _of_starlette,
    Exception: _bug,
}
