"""`DELETE /v1/contexts/{id}`: erases a conversation."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from frameledger_services.gateway import answers, conversations, parameters
from frameledger_services.gateway.access import caller
from frameledger_services.gateway.conversations import PATH
from frameledger_services.gateway.dependencies import Dependencies
from frameledger_services.gateway.media_types import JSON
from frameledger_services.gateway.problems import ProblemError
from frameledger_services.gateway.publishing import publishing
from frameledger_services.gateway.routes import DescribedRoute, bound
from frameledger_services.store import erasures

WHY = parameters.required(
    parameters.text("why", "The reason; the receipt keeps it.", most=1_000), "request 8113"
)


def routes(dependencies: Dependencies) -> list[BaseRoute]:
    """Returns the route."""
    return [
        DescribedRoute(
            "DELETE",
            PATH,
            bound(_erase, dependencies),
            scope="admin",
            summary="Erase a conversation permanently: its frames, messages, runs and calls.",
            parameters=[parameters.CONTEXT, WHY],
            answers={200: {"description": "The receipt.", "content": {JSON: {"schema": {"type": "object"}}}}},
            problems=("bad-parameter", "no-such-context", "erased", "not-visible-yet", "log-away"),
        )
    ]


async def _erase(dependencies: Dependencies, request: Request) -> Response:
    context_id = parameters.context_id(request)
    why = WHY.of(request)
    if why is None:
        raise ProblemError("bad-parameter", "why: a reason for the erasure is expected.")
    await conversations.head_of(dependencies, context_id)
    # Its id is made by the client.
    with publishing(context_id, []):
        try:
            receipt = await dependencies.client.erase(
                context_id,
                why=why,
                requested_by=caller.of(request.scope).name,
                within=dependencies.settings.gateway_request_secs,
            )
        finally:
            dependencies.kept.drop(context_id)
    if not receipt.frame_count:
        # An earlier erasure, which was on the log but not stored yet, deleted everything.
        newest = await dependencies.database.read(erasures.newest_receipt, context_id)
        receipt = receipt if newest is None else newest
    return answers.json_answer(receipt, headers={"Cache-Control": "no-store"})
