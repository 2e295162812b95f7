"""`/v1/contexts/{id}`: the stored context of a conversation at any of its versions."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from frameledger.errors import FrameledgerError
from frameledger_services.gateway import answers, conversations, parameters
from frameledger_services.gateway.access import caller
from frameledger_services.gateway.answers import REVALIDATED
from frameledger_services.gateway.conversations import PATH
from frameledger_services.gateway.dependencies import Dependencies
from frameledger_services.gateway.media_types import JSON
from frameledger_services.gateway.problems import ProblemError
from frameledger_services.gateway.routes import DescribedRoute, bound
from frameledger_services.providers import plugins
from frameledger_services.providers.errors import ProviderError
from frameledger_services.providers.plugins import NoSuchProviderError
from frameledger_services.store import contexts as stored_contexts
from frameledger_services.store.context_json import ContextHead, ContextJson, WantedContext

FAILURE = "frameledger.failure"
"""The key of a request's scope for the error that ended its fast path (`plain_reads`)."""

VERSION = parameters.integer(
    "version", "The version to read: the number of frames that it includes. Default: the newest."
)
AT = parameters.time(
    "at",
    "Read the version of this time, by the broker's clock; UTC without an offset. Not together with `version`.",
)

FORM = parameters.word(
    "form",
    "Return the body of a request to this provider's API (chat completions, or messages) instead of the context.",
    *("openai", "anthropic"),
)


KNOWN = parameters.header(
    "If-None-Match",
    "Entity tags (`ETag`) of contexts that the client has: 304 if the context has one of them.",
)

CONTEXT = {"$ref": "#/components/schemas/Context"}
REQUEST_BODY = {
    "type": "object",
    "description": "With `form`: the body of a request to that provider's API.",
    "required": ["model"],
}
UNCHANGED = {"description": "Unchanged: it has the entity tag of `If-None-Match`."}


def routes(dependencies: Dependencies) -> list[BaseRoute]:
    """Returns the routes."""

    described: dict[str, Any] = {
        "scope": "read",
        "parameters": [parameters.CONTEXT, VERSION, AT, FORM, KNOWN],
        "problems": ("bad-parameter", "no-such-context", "no-such-version", "no-such-form", "erased"),
    }
    return [
        DescribedRoute(
            "GET",
            PATH,
            bound(_context, dependencies),
            summary="Read the context of a conversation, now or at a version: messages, tools and settings.",
            answers={
                200: {
                    "description": "The context.",
                    "headers": {"ETag": {"schema": {"type": "string"}}},
                    "content": {JSON: {"schema": {"anyOf": [CONTEXT, REQUEST_BODY]}}},
                },
                304: UNCHANGED,
            },
            **described,
        ),
        DescribedRoute(
            "HEAD",
            PATH,
            bound(_head, dependencies),
            summary="Read only the version of a conversation, as the entity tag (`ETag`).",
            answers={
                200: {
                    "description": "The conversation exists.",
                    "headers": {"ETag": {"schema": {"type": "string"}}},
                },
                304: UNCHANGED,
            },
            **described,
        ),
    ]


async def _head(dependencies: Dependencies, request: Request) -> Response:
    FORM.of(request)
    found = await _head_of(dependencies, request)
    if answers.is_known(request, tag(found)):
        return _unchanged(found)
    response = Response(status_code=200, media_type=JSON, headers={**REVALIDATED, "ETag": tag(found)})
    # Content-Length would be that of the context (RFC 9110, 8.6), which is not read for this.
    del response.headers["Content-Length"]
    return response


async def _context(dependencies: Dependencies, request: Request) -> Response:
    if (failure := request.scope.get(FAILURE)) is not None:
        raise failure
    context_id = parameters.context_id(request)
    form = FORM.of(request)
    if "if-none-match" in request.headers:
        head = await _head_of(dependencies, request)
        if answers.is_known(request, tag(head)):
            return _unchanged(head)
    if form is not None:
        return await _as_request(request, dependencies, context_id, form)
    found = await dependencies.contexts.read(_wanted(request, context_id))
    if found is None:
        raise await conversations.missing(dependencies, context_id)
    conversations.check_version(context_id, found)
    headers = {**REVALIDATED, "ETag": tag(found)}
    return Response(written(context_id, found), media_type=JSON, headers=headers)


def _unchanged(found: ContextHead) -> Response:
    return Response(status_code=304, headers={**REVALIDATED, "ETag": tag(found)})


def tag(found: ContextHead) -> str:
    """Returns the entity tag of a context."""
    return answers.etag(found.version, found.rebuilt, found.parked_version, newest=found.newest)


def written(context_id: str, found: ContextJson) -> bytes:
    """Returns a context as the body of a response, with its messages and terms byte for byte."""
    about = answers.json_bytes(
        {
            "context_id": context_id,
            "version": found.version,
            "newest": found.newest,
            "era": found.era,
            "logged_at": found.logged_at,
            "parked_version": found.parked_version,
            "open_run_id": found.open_run_id,
        }
    )
    texts = (
        found.positions,
        found.answers,
        found.messages,
        found.tools or b"[]",
        found.tool_choice or b"null",
        found.settings or b"{}",
        found.prompt_caching or b"null",
        found.skip_tts or b"null",
        found.mirror or b"null",
    )
    return (
        b'%s,"positions":[%s],"answers":[%s],"messages":[%s],"tools":%s,"tool_choice":%s,"settings":%s,"prompt_caching":%s,"skip_tts":%s,"mirror":%s}'
        % (about[:-1], *texts)
    )


async def _head_of(dependencies: Dependencies, request: Request) -> ContextHead:
    wanted = _wanted(request, parameters.context_id(request))
    return await conversations.head_of(
        dependencies, wanted.context_id, version=wanted.version, time=wanted.time
    )


def _wanted(request: Request, context_id: str) -> WantedContext:
    """Returns the requested context. Raises `bad-parameter` if both a version and a time are given, which may
    disagree."""
    version, time = VERSION.of(request), AT.of(request)
    if version is not None and time is not None:
        raise ProblemError("bad-parameter", f"{AT.name}: not together with {VERSION.name}.", param=AT.name)
    return WantedContext(context_id, version, time)


async def _as_request(request: Request, dependencies: Dependencies, context_id: str, form: str) -> Response:
    head = await _head_of(dependencies, request)
    stored = await dependencies.database.read(stored_contexts.context, context_id, head.version)

    def rendered() -> bytes:
        model = plugins.create(form, plugins.without_request_settings(dependencies.settings))
        return model.request(
            stored.context, prompt_caching=stored.prompt_caching, cancel_tools=(), answers=stored.answers
        ).content

    try:
        # In a thread: the first request imports the provider's client, and a context may have megabytes.
        content = await asyncio.to_thread(rendered)
    except NoSuchProviderError as error:
        raise ProblemError("bad-parameter", f"form: {error}") from error
    except ProviderError as error:
        raise no_such_form(request, context_id, error) from error
    headers = {**REVALIDATED, "ETag": tag(head)}
    return Response(content, media_type=JSON, headers=headers)


def no_such_form(request: Request, context_id: str, error: FrameledgerError) -> ProblemError:
    """Returns the problem that a conversation cannot be shown as a request. A provider's message quotes what it does
    not accept, such as a tool choice, so a caller with redaction gets a general one."""
    detail = str(error)
    if caller.of(request.scope).redact:
        detail = (
            "The request cannot be built. The reason may quote the conversation, so it is hidden from this "
            "token."
        )
    return ProblemError("no-such-form", detail, context_id=context_id)
