"""`POST /v1/chat/completions`: a question to a conversation, and its answer as a completion."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from frameledger_services.gateway import body
from frameledger_services.gateway.dependencies import Dependencies
from frameledger_services.gateway.openai import answering, chunks, conversation
from frameledger_services.gateway.openai import request as requests
from frameledger_services.gateway.openai.answering import Answers
from frameledger_services.gateway.openai.following import Following
from frameledger_services.gateway.openai.question import AskedQuestion
from frameledger_services.gateway.openai.request import CompletionRequest


class Completions:
    """The endpoint of chat completions."""

    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies
        self._answers = Answers[CompletionRequest](dependencies, _follow, _write)

    async def complete(self, request: Request) -> Response:
        """Answer a request."""
        answering.check_may_read(request)
        content = await body.read_bytes(request, body.JSON_TYPES)
        # In a thread: the body may have megabytes, and the schemas of its functions may take seconds to check.
        chat_request = await asyncio.to_thread(requests.read, content)
        named = conversation.named(
            request, chat_request.conversation, self._dependencies.settings.gateway_chat_id_headers
        )
        return await self._answers.answer(request, chat_request, named)


def _follow(dependencies: Dependencies, _: CompletionRequest, question: AskedQuestion) -> Following:
    return Following(dependencies, question)


async def _write(_: Dependencies, chat_request: CompletionRequest, following: Following) -> chunks.Writer:
    return chunks.Writer(chat_request, following)
