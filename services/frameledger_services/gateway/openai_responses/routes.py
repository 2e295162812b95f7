"""The routes of OpenAI's Responses API, if the setting `gateway_openai` is on."""

from __future__ import annotations

from functools import partial
from typing import Any

from starlette.routing import BaseRoute

from frameledger_services.gateway import parameters
from frameledger_services.gateway.access import policy
from frameledger_services.gateway.dependencies import Dependencies
from frameledger_services.gateway.media_types import EVENT_STREAM, JSON
from frameledger_services.gateway.openai import conversation
from frameledger_services.gateway.openai.routes import ASKING_PROBLEMS, CONTEXT, KEY, OpenAIRoute, answer
from frameledger_services.gateway.openai_responses import stored_responses
from frameledger_services.gateway.openai_responses.responses import Responses
from frameledger_services.gateway.openai_responses.stored_responses import ID, STARTING_AFTER, STREAM

ONE = policy.RESPONSES + "/{response_id}"


def routes(dependencies: Dependencies) -> list[BaseRoute]:
    """Returns the routes."""
    return [
        OpenAIRoute(
            dependencies,
            "POST",
            policy.RESPONSES,
            Responses(dependencies).create,
            operation="create_response",
            scope=("append", "read"),
            summary="Responses of OpenAI's API: send input to a conversation, or continue a response.",
            parameters=[CONTEXT, KEY, parameters.TRACE],
            body={
                "required": True,
                "content": {
                    JSON: {"schema": {"$ref": "#/components/schemas/ResponseRequest"}, "example": EXAMPLE}
                },
            },
            answers={"200": _RESPONSE},
            problems=("no-such-response", *ASKING_PROBLEMS),
        ),
        OpenAIRoute(
            dependencies,
            "GET",
            ONE,
            partial(stored_responses.read, dependencies),
            operation="response",
            scope="read",
            summary="Read a response in its current state.",
            parameters=[ID, STREAM, STARTING_AFTER],
            answers={"200": _RESPONSE},
            problems=("bad-parameter", "no-such-context", "no-such-response", "erased"),
        ),
        OpenAIRoute(
            dependencies,
            "POST",
            ONE + "/cancel",
            partial(stored_responses.cancel, dependencies),
            operation="cancel_response",
            scope=("append", "read"),
            summary="Interrupt a response that is in progress.",
            parameters=[ID],
            answers={"200": answer("The response.", "Response")},
            problems=(
                "bad-parameter",
                "no-such-context",
                "no-such-response",
                "erased",
                "not-visible-yet",
                "log-away",
            ),
        ),
    ]


EXAMPLE = {"model": "frameledger", "conversation": "desk-5", "input": "Is there a night train?"}

_RESPONSE: dict[str, Any] = {
    "description": "The response; with `stream` its events.",
    "headers": {conversation.HEADER: {"schema": {"type": "string"}}},
    "content": {
        JSON: {"schema": {"$ref": "#/components/schemas/Response"}},
        EVENT_STREAM: {"schema": {"type": "string"}},
    },
}
