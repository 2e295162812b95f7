"""Responses that were requested earlier: `GET /v1/responses/{id}` and its `/cancel`.

A response is read from the frames of its conversation, from its question up to the next one. Any process returns the
same response at any time; an answer in progress is returned as it is now.
"""

from __future__ import annotations

import asyncio
from contextlib import closing
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from frameledger_services.gateway import conversations, parameters, problems
from frameledger_services.gateway.access import caller, read_log
from frameledger_services.gateway.access.caller import Caller
from frameledger_services.gateway.dependencies import Dependencies
from frameledger_services.gateway.live import event_stream
from frameledger_services.gateway.media_types import JSON
from frameledger_services.gateway.openai import answering, conversation
from frameledger_services.gateway.openai.answer import Answer
from frameledger_services.gateway.openai.answer_stream import AnswerStream
from frameledger_services.gateway.openai.followers import Followers
from frameledger_services.gateway.openai.following import Following
from frameledger_services.gateway.openai.listening import Listening
from frameledger_services.gateway.openai.question import AskedQuestion
from frameledger_services.gateway.openai_responses import response_ids
from frameledger_services.gateway.openai_responses.response import ResponseWriter
from frameledger_services.gateway.openai_responses.response_events import PieceByPiece, ResponseEvents
from frameledger_services.gateway.openai_responses.response_ids import ResponseId
from frameledger_services.gateway.parameters import INT64_MAX
from frameledger_services.gateway.problems import ProblemError
from frameledger_services.store import conversation_state
from frameledger_services.store.answered_requests import AnsweredRequest, answered_request

ID = parameters.in_path(
    parameters.text("response_id", "", most=response_ids.MAX_CHARACTERS),
    "response_id",
    "The `id` of the response.",
    "resp_MjpkZXNrLTU",
)
STREAM = parameters.flag(
    "stream", "`true`: stream its events from the first one on, as server-sent events. Default: `false`."
)
STARTING_AFTER = parameters.integer(
    "starting_after", "With `stream=true`: only events after the one with this `sequence_number`."
)


def read_id(text: str, caller: Caller, *, param: str | None = None) -> ResponseId:
    """Parse the id of a response. Raises `no-such-response` for text that is no id, and for a response in a
    conversation that the caller may not see. `param` is the parameter of a body that has the id."""
    response_id = response_ids.parse(text)
    if response_id is None or not caller.may_see(response_id.context_id):
        raise _unknown(text, param)
    return response_id


async def find(
    dependencies: Dependencies, response_id: ResponseId, param: str | None = None
) -> AnsweredRequest:
    """Returns the request of a response. Raises `no-such-response`, and `erased` if its conversation was erased."""
    stored_request = await dependencies.database.read(
        answered_request, response_id.context_id, response_id.version, response_id.version
    )
    if stored_request is not None:
        return stored_request
    why = await conversations.missing(dependencies, response_id.context_id)
    if isinstance(why, ProblemError) and why.members["receipt"]["version"] >= response_id.version:
        raise why
    raise _unknown(str(response_id), param)


async def read(dependencies: Dependencies, request: Request) -> Response:
    """Answer with a response as it is now, or with `stream` with its events until it ends."""
    response_id, stored_request = await _stored_request(dependencies, request)
    last = STARTING_AFTER.of(request)
    if STREAM.of(request):
        answer = PieceByPiece(stored_request.version)
        following = _follow(dependencies, response_id, stored_request, answer)
        writer = ResponseEvents(
            ResponseWriter(stored_request, following), answer, -1 if last is None else last
        )
        # A client that only reads does not interrupt the answer when it disconnects.
        is_good = partial(caller.is_still_good, request.scope)
        listening = Listening(
            following,
            Followers(dependencies.marks),
            str(response_id),
            request.receive,
            is_good,
            interrupts=False,
        )
        return AnswerStream(listening, writer)
    if last is not None:
        raise ProblemError(
            "bad-parameter", "starting_after: only with `stream=true`.", param="starting_after"
        )
    return _answered(response_id, await written(dependencies, response_id, stored_request))


async def written(
    dependencies: Dependencies, response_id: ResponseId, stored_request: AnsweredRequest
) -> ResponseWriter:
    """Returns a response as it is now."""
    with closing(_follow(dependencies, response_id, stored_request)) as following:
        await _catch_up(following)
        return ResponseWriter(stored_request, following)


async def cancel(dependencies: Dependencies, request: Request) -> Response:
    """Interrupt an answer in progress, and answer with the response. One that has ended is not changed.

    It has the effect of a client that disconnects: an answer after which another question was asked, and a call in the
    background, are not interrupted. In these cases the response is returned as it is, in progress. If the process dies
    after the interruption, a repeated request finds that the answer has ended, and interrupts nothing.
    """
    response_id, stored_request = await _stored_request(dependencies, request)
    with closing(_follow(dependencies, response_id, stored_request)) as following:
        await _catch_up(following)
        if not following.is_over:
            await _interrupt(dependencies, following)
        read_log.note(request.scope, response_id.context_id, following.version)
        return _answered(response_id, ResponseWriter(stored_request, following))


async def _stored_request(dependencies: Dependencies, request: Request) -> tuple[ResponseId, AnsweredRequest]:
    answering.check_may_read(request)
    response_id = read_id(ID.in_path_of(request), caller.of(request.scope))
    return response_id, await find(dependencies, response_id)


def _follow(
    dependencies: Dependencies,
    response_id: ResponseId,
    stored_request: AnsweredRequest,
    answer: Answer | None = None,
) -> Following:
    since = None if stored_request.opened_version is None else stored_request.since
    return Following(
        dependencies,
        AskedQuestion(response_id.context_id, stored_request.version, since),
        answer,
        until=stored_request.until,
    )


async def _catch_up(following: Following) -> None:
    """Read an answer up to the newest frame."""
    while not following.is_over and not following.has_all:
        await _read_on(following)


async def _interrupt(dependencies: Dependencies, following: Following) -> None:
    """Interrupt the answer, and read it to its end. If it cannot be interrupted, read it up to the newest frame. Raises
    `not-visible-yet`."""
    context_id, newest = following.question.context_id, INT64_MAX
    if not await following.interrupt():
        # It may have ended since it was read.
        _, newest = await dependencies.database.read(conversation_state.goes_on, context_id)
    try:
        async with asyncio.timeout(dependencies.settings.gateway_request_secs):
            while not following.is_over and following.version < newest:
                await _read_on(following)
    except TimeoutError:
        raise ProblemError(
            "not-visible-yet",
            "The interruption is published, but the end of the answer is not stored yet.",
            headers=conversation.in_header(context_id),
        ) from None


async def _read_on(following: Following) -> None:
    if following.is_closed:
        raise problems.draining()
    await following.next(event_stream.HEARTBEAT_SECONDS)


def _answered(response_id: ResponseId, writer: ResponseWriter) -> Response:
    headers = {"Cache-Control": "no-store", **conversation.in_header(response_id.context_id)}
    return Response(writer.whole(), media_type=JSON, headers=headers)


def _unknown(text: str, param: str | None) -> ProblemError:
    why = f"There is no response with the id {text[:100]!r}."
    if param is None:
        return ProblemError("no-such-response", why)
    return ProblemError("no-such-response", why, param=param, code="previous_response_not_found")
