"""A Starlette route with its scope and its description in the OpenAPI document."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial, update_wrapper
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from frameledger_services.gateway.access import caller, policy
from frameledger_services.gateway.access.caller import Scope
from frameledger_services.gateway.dependencies import Dependencies
from frameledger_services.gateway.media_types import PROBLEM_JSON
from frameledger_services.gateway.parameters import Parameter
from frameledger_services.gateway.problems import KINDS, ProblemError

Endpoint = Callable[[Request], Awaitable[Response]]
UnboundEndpoint = Callable[[Dependencies, Request], Awaitable[Response]]

ALWAYS = ("unauthorised", "forbidden", "too-many", "database-away", "wrong-schema", "draining")
"""Problems that every route may return."""

PRECONDITIONS = ("If-Match", "If-None-Match")
"""A request with one of these must have no effect if the condition does not hold (RFC 9110, 13.1). For an append the
fold decides that. Other routes that change something refuse these headers."""


class DescribedRoute(Route):
    """A route with its scope and its description in the OpenAPI document."""

    def __init__(
        self,
        method: str,
        path: str,
        endpoint: Endpoint,
        *,
        scope: Scope | tuple[Scope, ...],
        summary: str,
        answers: dict[int, dict[str, Any]],
        problems: Sequence[str] = (),
        parameters: Sequence[Parameter[Any]] = (),
        body: dict[str, Any] | None = None,
        operation: str | None = None,
    ) -> None:
        """`scope` is the required scope, or several that are all required. `answers` has OpenAPI's responses by status;
        in place of content they may have a `model`, which is a dataclass, or None for any object. `problems` has the
        words of the problems that it may return besides `ALWAYS`. `operation` is its name in the document, without the
        method, by default that of the endpoint."""
        scopes: tuple[Scope, ...] = (scope,) if isinstance(scope, str) else scope
        is_safe = method in policy.SAFE
        offered = {one.name for one in parameters}
        refused = () if is_safe else tuple(one for one in PRECONDITIONS if one not in offered)
        super().__init__(
            path, partial(_answered, scopes, refused, endpoint), methods=[method], name=f"{method} {path}"
        )
        # Starlette answers HEAD wherever it answers GET.
        self.methods = {method}
        self.operation: dict[str, Any] = {
            "summary": summary,
            "operationId": f"{method.lower()}_{operation or endpoint.__name__.removeprefix('_')}",
            "security": [{"token": list(scopes)}],
            "parameters": [one.described() for one in parameters],
            "responses": {
                **{str(status): answer for status, answer in answers.items()},
                **problem_answers(
                    *problems,
                    *(("too-slow",) if body is not None else ()),
                    *(() if is_safe else ("bad-parameter",)),
                ),
            },
        }
        if body is not None:
            self.operation["requestBody"] = body


async def _answered(
    scopes: Sequence[Scope], refused: Sequence[str], endpoint: Endpoint, request: Request
) -> Response:
    """Answer a request whose caller has these scopes. Raises `forbidden` for others, and `bad-parameter` if it has one
    of the `refused` headers."""
    for scope in scopes:
        require(request.scope, scope)
    for name in refused:
        if name in request.headers:
            raise ProblemError(
                "bad-parameter",
                f"{name}: this precondition is not supported here, so nothing was done. The only supported one is "
                'If-Match for one appended frame; with the version "0" the frame begins the conversation.',
                param=name,
            )
    return await endpoint(request)


def bound(endpoint: UnboundEndpoint, dependencies: Dependencies) -> Endpoint:
    """Returns the endpoint with its dependencies. It keeps its name, which the document uses."""
    return update_wrapper(partial(endpoint, dependencies), endpoint)


def require(request: Mapping[str, Any], scope: Scope) -> None:
    """Raise `forbidden` unless the caller of this request, an ASGI scope, has this scope."""
    token_caller = caller.of(request)
    if scope not in token_caller.scopes:
        raise ProblemError("forbidden", f"The token {token_caller.name} lacks the scope {scope}.")


def problem_answers(*words: str) -> dict[str, Any]:
    """Returns the responses of these problems and of `ALWAYS` in OpenAPI's format."""
    by_status: dict[int, list[str]] = {}
    for word in dict.fromkeys((*words, *ALWAYS)):
        by_status.setdefault(KINDS[word].status, []).append(word)
    return {
        str(status): {
            "description": ", ".join(meanings),
            "content": {PROBLEM_JSON: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        for status, meanings in sorted(by_status.items())
    }
