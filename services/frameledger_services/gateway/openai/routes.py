"""The routes of OpenAI's API. Without the setting `gateway_openai` they answer 404, which names the setting."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from frameledger_services.gateway import parameters
from frameledger_services.gateway.access import policy
from frameledger_services.gateway.dependencies import Dependencies
from frameledger_services.gateway.media_types import EVENT_STREAM, JSON
from frameledger_services.gateway.openai import conversation, models
from frameledger_services.gateway.openai.completions import Completions
from frameledger_services.gateway.problems import ProblemError
from frameledger_services.gateway.routes import DescribedRoute, Endpoint
from frameledger_services.settings import PREFIX


class OpenAIRoute(DescribedRoute):
    """A route whose problems have the format of OpenAI's errors."""

    def __init__(
        self,
        dependencies: Dependencies,
        method: str,
        path: str,
        endpoint: Endpoint,
        *,
        problems: Sequence[str],
        answers: Any,
        **about: Any,
    ) -> None:
        super().__init__(
            method,
            path,
            partial(_answered_if_on, dependencies, endpoint),
            answers={},
            problems=(*problems, "not-found"),
            **about,
        )
        content = {JSON: {"schema": {"$ref": "#/components/schemas/OpenAIError"}}}
        self.operation["responses"] = answers | {
            status: {**answer, "content": content} for status, answer in self.operation["responses"].items()
        }


async def _answered_if_on(dependencies: Dependencies, endpoint: Endpoint, request: Request) -> Response:
    if not dependencies.settings.gateway_openai:
        raise ProblemError(
            "not-found", f"The OpenAI API is disabled; the setting {PREFIX}GATEWAY_OPENAI=true enables it."
        )
    return await endpoint(request)


def routes(dependencies: Dependencies) -> list[BaseRoute]:
    """Returns the routes."""
    return [
        OpenAIRoute(
            dependencies,
            "POST",
            policy.COMPLETIONS,
            Completions(dependencies).complete,
            operation="complete",
            scope=("append", "read"),
            summary="Chat completions of OpenAI's API: send messages to a conversation, and receive the answer.",
            parameters=[CONTEXT, KEY, parameters.TRACE],
            body={
                "required": True,
                "content": {
                    JSON: {"schema": {"$ref": "#/components/schemas/CompletionRequest"}, "example": EXAMPLE}
                },
            },
            answers={
                "200": {
                    "description": "The answer; with `stream` as chunks, whose `id` is the version.",
                    "headers": {conversation.HEADER: {"schema": {"type": "string"}}},
                    "content": {
                        JSON: {"schema": {"$ref": "#/components/schemas/Completion"}},
                        EVENT_STREAM: {"schema": {"type": "string"}},
                    },
                }
            },
            problems=ASKING_PROBLEMS,
        ),
        OpenAIRoute(
            dependencies,
            "GET",
            policy.MODELS,
            partial(models.list_models, dependencies),
            operation="models",
            scope="read",
            summary="List the models that inference services offer, as OpenAI's API does.",
            answers={"200": answer("The models.", "ModelList")},
            problems=(),
        ),
        OpenAIRoute(
            dependencies,
            "GET",
            policy.MODELS + "/{model:path}",
            partial(models.get_model, dependencies),
            operation="model",
            scope="read",
            summary="Read one of the models.",
            parameters=[MODEL],
            answers={"200": answer("The model.", "Model")},
            problems=("no-such-model",),
        ),
    ]


ASKING_PROBLEMS = (
    "bad-parameter",
    "bad-frame",
    "answer-refused",
    "no-such-context",
    "no-such-model",
    "conversation-busy",
    "erased",
    "too-large",
    "unsupported-media-type",
    "key-reused",
    "client-gone",
    "answer-failed",
    "no-answer",
    "not-visible-yet",
    "log-away",
)
"""Problems of a route that publishes a question."""

EXAMPLE = {
    "model": "frameledger",
    "conversation": "desk-5",
    "messages": [{"role": "user", "content": "Is there a night train?"}],
}

CONTEXT = parameters.header(
    conversation.HEADER,
    "The id of the conversation, percent-encoded, unless the body names it (`conversation`). Without either, a new "
    "conversation begins; this header of the response names it.",
)
KEY = parameters.header(
    "Idempotency-Key",
    "1 to 255 characters: the same request with the same key is asked once; with another body it is 422.",
)
MODEL = parameters.in_path(parameters.text("model", ""), "model", "The name of the model.", "frameledger")


def answer(description: str, schema: str) -> dict[str, Any]:
    """Returns the description of a JSON response with this schema."""
    return {
        "description": description,
        "content": {JSON: {"schema": {"$ref": f"#/components/schemas/{schema}"}}},
    }
