"""`/schemas/`: the JSON Schema of each frame type, from the release (`events/schemas`)."""

from __future__ import annotations

from functools import cache
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from frameledger.frames import FRAME_TYPES
from frameledger_services import package_data
from frameledger_services.gateway.dependencies import Dependencies
from frameledger_services.gateway.problems import ProblemError

FOLDER = "/schemas/"
MEDIA_TYPE = "application/schema+json"

FRAME: dict[str, Any] = {
    "type": "object",
    "description": "One event of a conversation. Every type has these fields; its own are in its JSON "
    f"Schema, listed at {FOLDER}. A frame with an `id` is stored byte for byte, and counts once however often "
    "it is sent. A type or a field that this release does not know is stored too.",
    "externalDocs": {"url": FOLDER, "description": "The JSON Schema of each type."},
    "required": ["type"],
    "properties": {
        "type": {
            "description": "The name of the frame.",
            "type": "string",
            "minLength": 1,
            "maxLength": 255,
            "examples": list(FRAME_TYPES),
        },
        "v": {"description": "The version of its type's schema.", "type": "integer", "minimum": 1},
        "id": {
            "description": "Identifies the frame within its conversation, so that a repetition is recognised.",
            "type": ["string", "null"],
            "minLength": 1,
            "maxLength": 255,
        },
        "produced_at": {
            "description": "When it was produced, by the producer's clock; RFC 3339.",
            "type": ["string", "null"],
        },
        "metadata": {"description": "Any object; stored and never interpreted.", "type": "object"},
    },
}
"""The common fields of all frames, for the OpenAPI document."""


def routes(_: Dependencies) -> list[BaseRoute]:
    """Returns the routes of the list, and of each schema."""

    async def listed(_: Request) -> Response:
        return JSONResponse({"schemas": [f"{FOLDER}{name}" for name in sorted(_found())]})

    async def schema(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _found():
            raise ProblemError("not-found", f"There is no schema {name!r}; {FOLDER} is the list.")
        return Response(_found()[name], media_type=MEDIA_TYPE)

    return [Route(FOLDER, listed, methods=["GET"]), Route(FOLDER + "{name}", schema, methods=["GET"])]


@cache
def _found() -> dict[str, bytes]:
    return {
        file.name: file.read_bytes() for file in (package_data.folder("events") / "schemas").glob("*.json")
    }
