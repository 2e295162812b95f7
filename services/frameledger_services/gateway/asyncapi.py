"""`/asyncapi.json`: the AsyncAPI document of the topics, as `frameledger asyncapi` prints it."""

from __future__ import annotations

import json

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from frameledger_services.event_log.asyncapi import document
from frameledger_services.gateway.dependencies import Dependencies
from frameledger_services.gateway.media_types import JSON


def routes(dependencies: Dependencies) -> list[Route]:
    """Returns the route. The document is made on the first request."""
    encoded: list[bytes] = []

    async def answer(_: Request) -> Response:
        if not encoded:
            encoded.append(json.dumps(document(dependencies.settings), ensure_ascii=False).encode())
        return Response(encoded[0], media_type=JSON)

    return [Route("/asyncapi.json", answer, methods=["GET"])]
