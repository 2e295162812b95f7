"""`/v1/contexts/{id}`: a conversation's context at any of its versions, as the database has it."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from frameledger_services.client import NoSuchContextError, NoSuchVersionError
from frameledger_services.gateway import answers, parameters
from frameledger_services.gateway.answers import JSON, REVALIDATED
from frameledger_services.gateway.parts import Parts
from frameledger_services.gateway.problems import ProblemError
from frameledger_services.gateway.routes import DescribedRoute
from frameledger_services.store import context_json, erasures
from frameledger_services.store.context_json import ContextHead, ContextJson

PATH = "/v1/contexts/{context_id}"

VERSION = parameters.integer("version", "After so many frames; now, if not given.")
AT = parameters.time("at", "At this time, by the broker's clock; instead of a version.")


def routes(parts: Parts) -> list[BaseRoute]:
    """Returns the routes."""

    async def head(request: Request) -> Response:
        _, found = await _asked(request, parts)
        return Response(status_code=200, media_type=JSON, headers={**REVALIDATED, "ETag": tag(found)})

    async def context(request: Request) -> Response:
        context_id = parameters.context_id(request)
        if "if-none-match" in request.headers:
            _, known = await _asked(request, parts)
            if answers.is_known(request, tag(known)):
                return Response(status_code=304, headers={**REVALIDATED, "ETag": tag(known)})
        found = await parts.database.read(
            context_json.context_json, context_id, version=VERSION.of(request), time=AT.of(request)
        )
        if found is None:
            raise await _missing(parts, context_id)
        _check_version(context_id, found)
        headers = {**REVALIDATED, "ETag": tag(found)}
        return Response(written(context_id, found), media_type=JSON, headers=headers)

    described: dict[str, Any] = {
        "scope": "read",
        "parameters": [parameters.CONTEXT, VERSION, AT],
        "problems": ("bad-parameter", "no-such-context", "no-such-version", "erased"),
    }
    return [
        DescribedRoute(
            "GET",
            PATH,
            context,
            summary="The context of a conversation, now or at a version.",
            answers={
                200: {
                    "description": "The context.",
                    "headers": {"ETag": {"schema": {"type": "string"}}},
                    "content": {JSON: {"schema": {"$ref": "#/components/schemas/Context"}}},
                },
                304: {"description": "It is the one of `If-None-Match`."},
            },
            **described,
        ),
        DescribedRoute(
            "HEAD",
            PATH,
            head,
            summary="The version of a conversation, as the entity tag.",
            answers={
                200: {"description": "It is there.", "headers": {"ETag": {"schema": {"type": "string"}}}}
            },
            **described,
        ),
    ]


def tag(found: ContextHead) -> str:
    """Returns the entity tag of a context."""
    return answers.etag(found.version, found.rebuilt, found.parked_version)


def written(context_id: str, found: ContextJson) -> bytes:
    """Returns a context as an answer; its messages and terms byte for byte."""
    about = answers.json_bytes(
        {
            "context_id": context_id,
            "version": found.version,
            "newest": found.newest,
            "era": found.era,
            "logged_at": found.logged_at,
            "parked_version": found.parked_version,
            "open_run_id": found.open_run_id,
            "positions": found.positions,
        }
    )
    texts = (found.messages, found.tools or "[]", found.tool_choice or "null", found.settings or "{}")
    return b'%s,"messages":[%s],"tools":%s,"tool_choice":%s,"settings":%s}' % (
        about[:-1],
        *(one.encode() for one in texts),
    )


async def _asked(request: Request, parts: Parts) -> tuple[str, ContextHead]:
    context_id = parameters.context_id(request)
    found = await parts.database.read(
        context_json.head, context_id, version=VERSION.of(request), time=AT.of(request)
    )
    if found is None:
        raise await _missing(parts, context_id)
    _check_version(context_id, found)
    return context_id, found


def _check_version(context_id: str, found: ContextHead) -> None:
    if not found.exists:
        raise NoSuchVersionError(context_id, found.version, found.newest)


async def _missing(parts: Parts, context_id: str) -> Exception:
    """Returns why a conversation is not there: it was erased, or never was."""
    receipts = await parts.database.read(erasures.receipts, context_id)
    if not receipts:
        return NoSuchContextError(context_id)
    newest = receipts[0]
    return ProblemError(
        "erased",
        f"The conversation was erased at version {newest.version}.",
        context_id=context_id,
        receipt={
            "erased_at": newest.erased_at.isoformat(),
            "version": newest.version,
            "frames": newest.frame_count,
            "why": newest.why,
            "requested_by": newest.requested_by,
        },
    )
