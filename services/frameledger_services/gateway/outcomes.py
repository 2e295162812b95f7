"""Outcomes of appended frames: the response of an append, and the route that reads outcomes later.

`POST /v1/contexts/{id}/frames/outcomes` takes the ids and places that an append returned. It needs the same scope as
appending and returns nothing of the frames' content. It is a POST because the list may be long.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from frameledger.headers import read_place
from frameledger.surrogates import has_half
from frameledger_services.client import NotVisibleError, PublishedFrame
from frameledger_services.client import outcomes as client_outcomes
from frameledger_services.event_log.topics import TopicNames
from frameledger_services.gateway import answers, body, parameters, preferences
from frameledger_services.gateway.conversations import PATH
from frameledger_services.gateway.dependencies import Dependencies
from frameledger_services.gateway.media_types import JSON
from frameledger_services.gateway.problems import ProblemError
from frameledger_services.gateway.routes import DescribedRoute

OUTCOMES = f"{PATH}/frames/outcomes"


def routes(dependencies: Dependencies) -> list[BaseRoute]:
    """Returns the route."""
    topic = TopicNames(dependencies.settings.topic_prefix).frames

    async def outcomes(request: Request) -> Response:
        context_id = parameters.context_id(request)
        published = await _published(request, topic)
        seconds = preferences.wait_seconds(request, dependencies.settings.gateway_request_secs)
        if not seconds:
            # A client that does not wait gets the outcomes that are stored now, however long the query takes.
            outcome = await dependencies.database.read(client_outcomes.stored, context_id, published)
            if outcome is None:
                return accepted(request, context_id, published, "They are not stored yet.")
            return _known(request, context_id, outcome)
        try:
            stored = await dependencies.client.until_stored(context_id, published, within=seconds)
        except NotVisibleError as error:
            return accepted(request, context_id, published, str(error))
        return _known(request, context_id, stored)

    return [
        DescribedRoute(
            "POST",
            OUTCOMES,
            outcomes,
            scope="append",
            summary="Read the outcomes of appended frames, by the ids and places in the response of the append.",
            parameters=[parameters.CONTEXT, PREFER],
            body={"required": True, "content": {JSON: {"schema": _BODY, "example": EXAMPLE}}},
            answers={200: APPENDED, 202: ACCEPTED},
            problems=(
                "bad-parameter",
                "no-such-context",
                "too-large",
                "unsupported-media-type",
            ),
        )
    ]


def _schema(name: str) -> dict[str, Any]:
    return {JSON: {"schema": {"$ref": f"#/components/schemas/{name}"}}}


APPENDED: dict[str, Any] = {
    "description": "All frames are stored; the response has their versions and outcomes.",
    "content": _schema("Appended"),
}
ACCEPTED: dict[str, Any] = {
    "description": "The frames are on the log and not stored yet. Read their outcomes later; do not append again.",
    "headers": {"Location": {"schema": {"type": "string"}}},
    "content": _schema("Accepted"),
}

PREFER = parameters.header(
    "Prefer",
    "How long to wait until the frames are stored. `wait=10`: at most 10 seconds, and no more than the gateway's "
    "limit; 202 if they are not stored by then. `respond-async`: not at all. Default: `wait=5`.",
)

EXAMPLE = {"frames": [{"id": "0198d3c2-7a55-7c11-9b7d-0d3f3a1c9f52", "place": "llm.frames:1:0:17"}]}

_BODY = {
    "type": "object",
    "required": ["frames"],
    "properties": {
        "frames": {
            "type": "array",
            "description": "The `id` and `place` of each frame, as the append returned them.",
            "minItems": 1,
            "maxItems": body.MAX_FRAMES,
            "items": {
                "type": "object",
                "required": ["id", "place"],
                "properties": {
                    "id": {"type": "string", "minLength": 1, "maxLength": 255},
                    "place": {"type": "string", "pattern": r"^[a-zA-Z0-9._-]+:\d{1,9}:\d{1,9}:\d{1,18}$"},
                },
            },
        }
    },
}


def accepted(
    request: Request,
    context_id: str,
    published: Sequence[PublishedFrame],
    why: str | None = None,
    **also: Any,
) -> Response:
    """Returns the response for frames that are on the log. `why` says why they are not known to be stored; None if the
    client did not wait."""
    about = {
        "context_id": context_id,
        "detail": why,
        **also,
        "frames": [{"id": one.frame_id, "place": str(one)} for one in published],
    }
    path = request.url.path.removesuffix("/outcomes")
    again = "&".join(f"id={quote(one.frame_id, safe='')}" for one in published[:20])
    headers = {"Location": f"{path}?{again}", **preferences.applied(request, is_stored=False)}
    return answers.json_answer(about, status=202, headers=headers)


def appended(context_id: str, stored: Sequence[PublishedFrame], **also: Any) -> dict[str, Any]:
    """Returns the body of the response for stored frames."""
    return {
        "context_id": context_id,
        "version": max((one.version for one in stored if one.version is not None), default=None),
        **also,
        "frames": [
            {
                "id": one.frame_id,
                "version": one.version,
                "outcome": one.outcome,
                "reason": one.reason,
                "duplicate": one.repeated,
                "place": str(one),
            }
            for one in stored
        ],
    }


def _known(request: Request, context_id: str, stored: Sequence[PublishedFrame]) -> Response:
    headers = preferences.applied(request, is_stored=True)
    return answers.json_answer(appended(context_id, stored), headers=headers)


async def _published(request: Request, topic: str) -> list[PublishedFrame]:
    try:
        parsed = json.loads(await body.read_bytes(request, body.JSON_TYPES))
    except (ValueError, RecursionError) as error:
        raise ProblemError("bad-parameter", f"The body is not valid JSON: {error}.") from None
    listed = parsed.get("frames") if isinstance(parsed, dict) else None
    if not isinstance(listed, list) or not 0 < len(listed) <= body.MAX_FRAMES:
        raise ProblemError(
            "bad-parameter", f'The body is {{"frames": [...]}}, with 1 to {body.MAX_FRAMES} of them.'
        )
    return [_frame(one, topic) for one in listed]


def _is_id(frame_id: str) -> bool:
    """Whether an append may have returned this id."""
    return 0 < len(frame_id) <= 255 and "\x00" not in frame_id and not has_half(frame_id)


def _frame(value: Any, topic: str) -> PublishedFrame:
    match value:
        case {"id": str(frame_id), "place": str(text)} if _is_id(frame_id):
            place = read_place(text.encode(errors="replace"))
            if place is not None and place.topic == topic:
                return PublishedFrame(topic, place.partition, place.offset, place.generation, frame_id)
    raise ProblemError(
        "bad-parameter", f'A frame is {{"id": "...", "place": "{topic}:1:0:17"}}, as an append answered.'
    )
