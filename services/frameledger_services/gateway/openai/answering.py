"""Asks a question and returns its answer, whole or streamed. All of OpenAI's APIs share it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Generic, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from frameledger_services.gateway import problems
from frameledger_services.gateway.access import caller, read_log
from frameledger_services.gateway.dependencies import Dependencies
from frameledger_services.gateway.live import event_stream
from frameledger_services.gateway.live.hub import TooManyFollowersError
from frameledger_services.gateway.media_types import JSON
from frameledger_services.gateway.openai import conversation, models
from frameledger_services.gateway.openai.answer_stream import AnswerStream, AnswerWriter
from frameledger_services.gateway.openai.asking import Asking
from frameledger_services.gateway.openai.conversation import Named
from frameledger_services.gateway.openai.failures import problem_of
from frameledger_services.gateway.openai.followers import Followers
from frameledger_services.gateway.openai.following import Following
from frameledger_services.gateway.openai.listening import Listening
from frameledger_services.gateway.openai.question import AskedQuestion
from frameledger_services.gateway.openai.request import CompletionRequest
from frameledger_services.gateway.problems import ProblemError

R = TypeVar("R", bound=CompletionRequest)


def check_may_read(request: Request) -> None:
    """Raise `forbidden` for a caller whose token is redacting."""
    if caller.of(request.scope).redact:
        raise ProblemError("forbidden", "A redacting token may not use the OpenAI API, which returns text.")


class Answers(Generic[R]):
    """Answers the requests of one API in this process."""

    def __init__(
        self,
        dependencies: Dependencies,
        follow: Callable[[Dependencies, R, AskedQuestion], Following],
        write: Callable[[Dependencies, R, Following], Awaitable[AnswerWriter]],
    ) -> None:
        """`follow` starts following the answer to a request. `write` is called when the answer has begun."""
        self._dependencies = dependencies
        self._follow = follow
        self._write = write
        self._followers = Followers(dependencies.marks)

    async def answer(self, request: Request, chat_request: R, named: Named) -> Response:
        """Ask the conversation, and return its answer.

        If the process dies after the question was published, a repeated request finds that question and returns its
        answer.
        """
        # Checked before anything is published: without a free slot for a follower the answer could not be sent.
        self._dependencies.hub.check_room()
        await models.check(self._dependencies, chat_request.model)
        asking = Asking(self._dependencies, request, chat_request, named)
        key = named.context_id, chat_request.sha256
        async with self._followers.held(key, is_shared=asking.may_be_again):
            question = await asking.ask()
            read_log.note(request.scope, question.context_id, question.version)
            listening = self._listening(request, chat_request, question, may_be_again=asking.may_be_again)
        try:
            following = listening.following
            await following.begin()
            if following.is_closed:
                raise self._why_closed(listening)
            if (failure := following.answer.failure) is not None:
                raise problem_of(failure)
            writer = await self._write(self._dependencies, chat_request, following)
            if chat_request.stream:
                return AnswerStream(listening, writer)
            return await self._complete_response(listening, writer)
        except ProblemError as problem:
            problem.headers = {**(problem.headers or {}), **conversation.in_header(question.context_id)}
            await listening.close(gave_up=problem.word == "no-answer")
            raise
        except BaseException:
            await listening.close()
            raise

    def _listening(
        self, request: Request, chat_request: R, question: AskedQuestion, *, may_be_again: bool = False
    ) -> Listening:
        try:
            following = self._follow(self._dependencies, chat_request, question)
        except TooManyFollowersError:
            # Other requests have taken the free slots since. A repetition of this request finds its question.
            raise ProblemError(
                "too-many",
                "This gateway has reached its limit of streams.",
                headers=conversation.in_header(question.context_id),
            ) from None
        interrupts = self._dependencies.settings.gateway_openai_interrupt
        is_good = partial(caller.is_still_good, request.scope)
        return Listening(
            following,
            self._followers,
            chat_request.sha256,
            request.receive,
            is_good,
            interrupts=interrupts,
            may_be_again=may_be_again,
        )

    async def _complete_response(self, listening: Listening, writer: AnswerWriter) -> Response:
        following = listening.following
        while not following.is_over and not following.is_closed:
            await following.next(event_stream.HEARTBEAT_SECONDS)
        # A whole answer is sent in one piece, so the guard does not check it on the way.
        listening.check()
        if listening.is_gone or not following.is_over:
            raise self._why_closed(listening)
        if (failure := following.answer.failure) is not None:
            raise problem_of(failure)
        await listening.close()
        headers = {"Cache-Control": "no-store", **conversation.in_header(following.question.context_id)}
        return Response(writer.whole(), media_type=JSON, headers=headers)

    def _why_closed(self, listening: Listening) -> ProblemError:
        if listening.is_refused:
            return ProblemError(
                "unauthorised", "The token was revoked or changed, or has expired, during the answer."
            )
        if listening.is_gone:
            # Nobody receives it, but the metrics count it, and it must not count as a failure of the gateway.
            return ProblemError("client-gone", "The client disconnected.")
        return problems.draining()
