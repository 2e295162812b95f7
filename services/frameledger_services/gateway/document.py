"""The OpenAPI document of all routes: `/openapi.json`, and `/docs`, a page of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from typing import Any

from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Route

from frameledger_services.gateway import document_page
from frameledger_services.gateway.document_schemas import SCHEMAS
from frameledger_services.gateway.media_types import JSON
from frameledger_services.gateway.routes import DescribedRoute

DESCRIPTION = (
    "Conversations with language models, at their newest and all earlier versions. Frames are appended, contexts are "
    "read at any version. An error is a problem (RFC 9457): its `type` is the address of a page about it. A route that "
    "changes something accepts `If-Match` or `If-None-Match` only as one of its parameters: otherwise it is 400, and "
    "nothing is done."
)

_CONVERTOR = re.compile(r":\w+\}")
"""Starlette's converter in a path parameter, as in `{model:path}`."""

SECURITY = {
    "token": {
        "type": "http",
        "scheme": "bearer",
        "description": "A token of `frameledger token new`. Without a token file the gateway serves this machine only.",
    }
}


def routes(described: Sequence[BaseRoute]) -> list[BaseRoute]:
    """Returns the routes of the document of these routes, and of its page."""

    @cache
    def found() -> dict[str, Any]:
        return document(described)

    async def openapi(_: Request) -> Response:
        return JSONResponse(found())

    async def docs(_: Request) -> Response:
        return HTMLResponse(document_page.page(found()))

    return [Route("/openapi.json", openapi, methods=["GET"]), Route("/docs", docs, methods=["GET"])]


def document(described: Iterable[BaseRoute]) -> dict[str, Any]:
    """Returns the document."""
    listed = [route for route in described if isinstance(route, DescribedRoute)]
    models = {
        answer["model"]
        for route in listed
        for answer in route.operation["responses"].values()
        if answer.get("model") is not None
    }
    schemas, shared = TypeAdapter.json_schemas(
        [(model, "serialization", TypeAdapter(model)) for model in models],
        ref_template="#/components/schemas/{model}",
    )
    paths: dict[str, Any] = {}
    for route in listed:
        responses = {
            status: _answer(answer, schemas) for status, answer in route.operation["responses"].items()
        }
        for method in route.methods or ():
            paths.setdefault(_CONVERTOR.sub("}", route.path), {})[method.lower()] = {
                **route.operation,
                "responses": responses,
            }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Frameledger", "version": version("frameledger"), "description": DESCRIPTION},
        "paths": paths,
        "components": {"schemas": {**shared.get("$defs", {}), **SCHEMAS}, "securitySchemes": SECURITY},
    }


def _answer(answer: dict[str, Any], schemas: Mapping[Any, Any]) -> dict[str, Any]:
    if "model" not in answer:
        return answer
    model = answer["model"]
    schema = {"type": "object"} if model is None else schemas[model, "serialization"]
    return {"description": answer["description"], "content": {JSON: {"schema": schema}}}
