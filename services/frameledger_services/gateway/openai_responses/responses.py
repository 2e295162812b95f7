"""`POST /v1/responses`: a question to a conversation, and its answer as a response."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from frameledger_services.gateway import body
from frameledger_services.gateway.dependencies import Dependencies
from frameledger_services.gateway.openai import answering
from frameledger_services.gateway.openai.answer import Answer
from frameledger_services.gateway.openai.answering import Answers
from frameledger_services.gateway.openai.following import Following
from frameledger_services.gateway.openai.question import AskedQuestion
from frameledger_services.gateway.openai_responses import request as requests
from frameledger_services.gateway.openai_responses.continuing import continued
from frameledger_services.gateway.openai_responses.references import stored_items
from frameledger_services.gateway.openai_responses.request import ResponseRequest
from frameledger_services.gateway.openai_responses.response import ResponseWriter
from frameledger_services.gateway.openai_responses.response_events import PieceByPiece, ResponseEvents
from frameledger_services.gateway.problems import ProblemError
from frameledger_services.store.answered_requests import answered_request


class Responses:
    """The endpoint that creates responses."""

    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies
        self._answers = Answers[ResponseRequest](dependencies, _follow, _write)

    async def create(self, request: Request) -> Response:
        """Answer a request."""
        answering.check_may_read(request)
        content = await body.read_bytes(request, body.JSON_TYPES)
        # In a thread: the body may have megabytes, and the schemas of its functions may take seconds to check.
        parsed = await asyncio.to_thread(requests.parse, content)
        stored = await stored_items(self._dependencies, request, parsed.given_input)
        response_request = await asyncio.to_thread(requests.read, parsed, stored)
        response_request, named = await continued(self._dependencies, request, response_request)
        return await self._answers.answer(request, response_request, named)


def _follow(
    dependencies: Dependencies, response_request: ResponseRequest, question: AskedQuestion
) -> Following:
    # Only a streamed answer is read in pieces, which cannot be taken back when a worker dies.
    answer = PieceByPiece(question.version) if response_request.stream else Answer(question.version)
    return Following(dependencies, question, answer)


async def _write(dependencies: Dependencies, _: ResponseRequest, following: Following) -> ResponseEvents:
    question = following.question
    # The last of several results requests the run, and another client may have sent it.
    version = question.version if question.since is None else following.version
    request = await dependencies.database.read(answered_request, question.context_id, version)
    if request is None:
        raise ProblemError("erased", "The conversation was erased.", context_id=question.context_id)
    return ResponseEvents(ResponseWriter(request, following), following.answer)
