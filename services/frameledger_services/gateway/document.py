"""The OpenAPI document of all routes, and a page that shows it without loading external files."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from typing import Any

from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Route

from frameledger_services.gateway import text_page
from frameledger_services.gateway.answers import JSON
from frameledger_services.gateway.problems import KINDS, PAGES
from frameledger_services.gateway.routes import DescribedRoute
from frameledger_services.gateway.schemas import FRAME
from frameledger_services.gateway.text_page import prose

DESCRIPTION = (
    "Conversations with language models, as they are and as they were. Frames are appended, contexts are read at any "
    "version. An error is a problem (RFC 9457): its `type` is the address of a page that explains it."
)

_CONVERTOR = re.compile(r":\w+\}")
"""What Starlette has in a path beside the name of a parameter: `{model:path}`."""

_TEXT = {"type": "string"}
_INTEGER = {"type": "integer"}
_TIME = {"type": "string", "format": "date-time"}
_MAYBE_TEXT = {"type": ["string", "null"]}
_MAYBE_INTEGER = {"type": ["integer", "null"]}
_VALUES: dict[str, Any] = {"type": "array", "items": {}}


def _object(
    description: str, optional: Mapping[str, Any] | None = None, /, **properties: Any
) -> dict[str, Any]:
    return {
        "type": "object",
        "description": description,
        "required": list(properties),
        "properties": {**properties, **(optional or {})},
    }


_STORED = _object(
    "What became of a frame.",
    id=_TEXT,
    place=_TEXT,
    version=_MAYBE_INTEGER,
    outcome=_MAYBE_TEXT,
    reason=_MAYBE_TEXT,
    duplicate={"type": "boolean"},
)

_COMPLETED = {
    "type": "boolean",
    "description": "Of an append: whether some got an id and a time, or a version that they expect.",
}

SCHEMAS = {
    "Problem": _object(
        "Why a request was not done (RFC 9457).",
        type={"type": "string", "enum": [f"{PAGES}{word}" for word in KINDS]},
        title=_TEXT,
        status=_INTEGER,
        detail=_TEXT,
        instance=_TEXT,
    ),
    "Frame": FRAME,
    "Context": _object(
        "A context: messages, tools, tool choice and settings, as a model gets them.",
        context_id=_TEXT,
        version=_INTEGER,
        newest=_INTEGER,
        era=_INTEGER,
        logged_at=_MAYBE_TEXT,
        parked_version=_MAYBE_INTEGER,
        open_run_id=_MAYBE_TEXT,
        positions={"type": "array", "items": _INTEGER},
        messages=_VALUES,
        answers={"type": "array", "items": _MAYBE_TEXT},
        tools={},
        tool_choice={},
        settings={},
        prompt_caching={"type": ["boolean", "null"]},
        skip_tts={"type": ["boolean", "null"]},
        mirror=_MAYBE_TEXT,
    ),
    "FramePage": _object(
        "Stored frames in the order of their versions.",
        context_id=_TEXT,
        frames={
            "type": "array",
            "items": {"$ref": "#/components/schemas/StoredFrame"},
        },
    ),
    "StoredFrame": _object(
        "A stored frame, with what became of it. `frame` comes last, and is the value of the record byte for byte; "
        "but where that has ends of lines, these are spaces, and `raw` is the value as a text.",
        {"raw": _TEXT},
        version=_INTEGER,
        id=_TEXT,
        type=_TEXT,
        outcome=_TEXT,
        reason=_MAYBE_TEXT,
        logged_at=_TIME,
        produced_at=_MAYBE_TEXT,
        source=_MAYBE_TEXT,
        run_id=_MAYBE_TEXT,
        tool_call_id=_MAYBE_TEXT,
        causation_id=_MAYBE_TEXT,
        trace_id=_MAYBE_TEXT,
        place=_object("Where it lies on the log.", partition=_INTEGER, generation=_INTEGER, offset=_INTEGER),
        frame={"type": "object", "required": ["type"]},
    ),
    "Appended": _object(
        "Frames that are stored: `place` is topic:generation:partition:offset.",
        {"completed": _COMPLETED},
        context_id=_TEXT,
        version=_MAYBE_INTEGER,
        frames={"type": "array", "items": _STORED},
    ),
    "Accepted": _object(
        "Frames that are on the log. `detail`: why they are not seen stored, if that was waited for.",
        {"completed": _COMPLETED},
        context_id=_TEXT,
        detail=_MAYBE_TEXT,
        frames={"type": "array", "items": _object("A frame.", id=_TEXT, place=_TEXT)},
    ),
}

SCHEMAS |= {
    "OpenAIError": _object(
        "An error as OpenAI's API has it.",
        error=_object("What is wrong.", message=_TEXT, type=_TEXT, param=_MAYBE_TEXT, code=_MAYBE_TEXT),
    ),
    "CompletionRequest": {
        "type": "object",
        "description": "As of OpenAI's chat completions. What cannot be honoured is refused by name.",
        "required": ["messages"],
        "properties": {
            "messages": {"type": "array", "items": {"type": "object"}, "minItems": 1},
            "model": _MAYBE_TEXT,
            "stream": {"type": ["boolean", "null"]},
            "tools": {
                "description": "Functions of the client's own, which answers their calls by tool messages.",
                "type": ["array", "null"],
                "items": {"type": "object", "required": ["type", "function"]},
            },
            "conversation": {"description": "The conversation: its id, or an object with it."},
        },
    },
    "RunAgentInput": {
        "type": "object",
        "description": "As of AG-UI 1.0. `messages` is the whole history; `tools` are functions of the "
        "client's own, whose calls it answers with tool messages; `state` is passed over.",
        "required": ["threadId", "runId", "messages"],
        "properties": {
            "threadId": {
                "type": "string",
                "minLength": 1,
                "maxLength": 255,
                "description": "The conversation.",
            },
            "runId": {"type": "string", "minLength": 1, "maxLength": 255},
            "parentRunId": {"type": "string"},
            "messages": {"type": "array", "items": {"type": "object", "required": ["id", "role"]}},
            "tools": {"type": "array", "items": {"type": "object", "required": ["name"]}},
            "context": {"type": "array", "items": {"type": "object", "required": ["description", "value"]}},
            "forwardedProps": {"description": "Kept in the metadata of the frame that asks."},
            "resume": {"type": "array", "items": {"type": "object", "required": ["interruptId", "status"]}},
        },
    },
    "Completion": _object(
        "The answer.",
        id=_TEXT,
        object=_TEXT,
        created=_INTEGER,
        model=_TEXT,
        choices=_VALUES,
        usage={"type": ["object", "null"]},
        conversation=_object("The conversation.", id=_TEXT),
    ),
    "ResponseRequest": {
        "type": "object",
        "description": "As of OpenAI's responses. `input` is what is new. What cannot be honoured is refused by name.",
        "required": ["input"],
        "properties": {
            "input": {
                "description": "Text, or items: message, function_call, function_call_output.",
                "type": ["string", "array"],
            },
            "instructions": _MAYBE_TEXT,
            "model": _MAYBE_TEXT,
            "stream": {"type": ["boolean", "null"]},
            "store": {"description": "Every response is stored.", "enum": [True, None]},
            "metadata": {"type": ["object", "null"], "additionalProperties": _TEXT},
            "previous_response_id": _MAYBE_TEXT,
            "conversation": {"description": "The conversation: its id, or an object with it."},
            "tools": {
                "description": "Functions of the client's own, which answers their calls by function_call_output.",
                "type": ["array", "null"],
                "items": {"type": "object", "required": ["type", "name"]},
            },
        },
    },
    "Response": _object(
        "A response.",
        id=_TEXT,
        object=_TEXT,
        created_at={"type": "number"},
        status={"type": "string", "enum": ["in_progress", "completed", "incomplete", "cancelled", "failed"]},
        model=_TEXT,
        output=_VALUES,
        error={"type": ["object", "null"]},
        usage={"type": ["object", "null"]},
        conversation=_object("The conversation.", id=_TEXT),
    ),
    "Model": _object("A model.", id=_TEXT, object=_TEXT, created=_INTEGER, owned_by=_TEXT),
    "ModelList": _object(
        "Models.",
        object=_TEXT,
        data={"type": "array", "items": {"$ref": "#/components/schemas/Model"}},
    ),
}

SECURITY = {
    "token": {
        "type": "http",
        "scheme": "bearer",
        "description": "A token of `frameledger token new`. Without a token file the gateway is for this machine only.",
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
        return HTMLResponse(_page(found()))

    return [Route("/openapi.json", openapi, methods=["GET"]), Route("/docs", docs, methods=["GET"])]


def document(described: Iterable[BaseRoute]) -> dict[str, Any]:
    """Returns the document."""
    found = [route for route in described if isinstance(route, DescribedRoute)]
    models = {
        answer["model"]
        for route in found
        for answer in route.operation["responses"].values()
        if answer.get("model") is not None
    }
    schemas, shared = TypeAdapter.json_schemas(
        [(model, "serialization", TypeAdapter(model)) for model in models],
        ref_template="#/components/schemas/{model}",
    )
    paths: dict[str, Any] = {}
    for route in found:
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


def _page(found: dict[str, Any]) -> str:
    return text_page.page(
        "Frameledger over HTTP",
        f'<p>{prose(DESCRIPTION)} For programs: <a href="/openapi.json">OpenAPI</a>.</p>'
        f"{''.join(_operations(found))}<h2>Problems</h2><dl>{''.join(_problems())}</dl>",
    )


def _operations(found: dict[str, Any]) -> Iterator[str]:
    for path, operations in found["paths"].items():
        for method, operation in operations.items():
            [scopes] = operation["security"][0].values()
            yield (
                f"<h2><code>{method.upper()} {html.escape(path)}</code></h2>"
                f"<p>{prose(operation['summary'])} Scope: {', '.join(scopes)}.</p><dl>"
            )
            for parameter in operation.get("parameters", ()):
                about = prose(parameter.get("description", ""))
                yield f"<dt><code>{html.escape(parameter['name'])}</code> ({parameter['in']})</dt><dd>{about}</dd>"
            for status, answer in operation["responses"].items():
                yield f"<dt>{status}</dt><dd>{prose(answer['description'])}</dd>"
            yield "</dl>"


def _problems() -> Iterator[str]:
    for word, kind in KINDS.items():
        yield (
            f'<dt>{kind.status} <a href="{PAGES}{word}">{word}</a></dt>'
            f"<dd>{prose(kind.meaning)} {prose(kind.remedy)}</dd>"
        )
