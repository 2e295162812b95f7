"""`POST /v1/chat/completions`: a question to a conversation, and its answer whole or as it comes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from frameledger_services import logs
from frameledger_services.client import BrokerError
from frameledger_services.gateway import body, problems
from frameledger_services.gateway.access import caller, read_log
from frameledger_services.gateway.live import event_stream, protocol
from frameledger_services.gateway.live.hub import TooManyFollowersError
from frameledger_services.gateway.openai import chunks, conversation, errors, models
from frameledger_services.gateway.openai import request as requests
from frameledger_services.gateway.openai.answer import Failure
from frameledger_services.gateway.openai.asked import Asked
from frameledger_services.gateway.openai.asking import Asking
from frameledger_services.gateway.openai.following import Following
from frameledger_services.gateway.parts import Parts
from frameledger_services.gateway.problems import KINDS, ProblemError

REFUSED = ("context_refused", "unmappable")
"""Codes of a failure that the request can mend."""

HOPELESS = ("provider_refused",)
"""Codes of a failure that stays however often one tries."""

_TOOLS = b'"tools"'

_log = logs.get_logger("gateway")


class Completions:
    """The answers that this process gives."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._followers: Counter[Asked] = Counter()
        """How many requests follow an answer: one that is sent again follows it too."""

    async def complete(self, request: Request) -> Response:
        """Answer a request."""
        if caller.of(request.scope).redact:
            raise ProblemError(
                "forbidden", "A redacting token may not use chat completions, which return text."
            )
        content = await body.read_bytes(request, body.JSON_TYPES)
        # The schemas of functions may take a second to check: not in the event loop.
        wanted = (
            await asyncio.to_thread(requests.read, content) if _TOOLS in content else requests.read(content)
        )
        named = conversation.named(request, wanted.conversation, self._parts.settings.gateway_chat_id_headers)
        # Before anything is said: without room for a follower nobody could tell the answer.
        self._parts.hub.check_room()
        await models.check(self._parts, wanted.model)
        asked = await Asking(self._parts, request, wanted, named).ask()
        read_log.note(request.scope, asked.context_id, asked.version)
        listening = self._listening(request, asked)
        try:
            following = listening.following
            await following.begin()
            if following.is_closed:
                raise self._why_closed(listening)
            if (failure := following.answer.failure) is not None:
                raise problem_of(failure)
            writer = chunks.Writer(wanted, following)
            if wanted.stream:
                return CompletionStream(listening, writer, asked)
            return await self._whole(listening, writer)
        except ProblemError as problem:
            problem.headers = {**(problem.headers or {}), **conversation.in_header(asked.context_id)}
            await listening.close(gave_up=problem.word == "no-answer")
            raise
        except BaseException:
            await listening.close()
            raise

    def _listening(self, request: Request, asked: Asked) -> Listening:
        try:
            return Listening(self._parts, asked, self._followers, request.receive)
        except TooManyFollowersError:
            # Others took the room meanwhile. The same request again finds its question.
            raise ProblemError(
                "too-many",
                "This gateway has reached its limit of streams.",
                headers=conversation.in_header(asked.context_id),
            ) from None

    async def _whole(self, listening: Listening, writer: chunks.Writer) -> Response:
        following = listening.following
        while not following.is_over and not following.is_closed:
            await following.next(event_stream.HEARTBEAT_SECONDS)
        if not following.is_over:
            raise self._why_closed(listening)
        if (failure := following.answer.failure) is not None:
            raise problem_of(failure)
        await listening.close()
        headers = {"Cache-Control": "no-store", **conversation.in_header(following.asked.context_id)}
        return Response(writer.completion(), media_type="application/json", headers=headers)

    def _why_closed(self, listening: Listening) -> ProblemError:
        if listening.is_gone:
            # Nobody reads this.
            return ProblemError("no-answer", "The client is gone.")
        return problems.draining()


class Listening:
    """A client that waits for an answer: when it goes away, the answer is interrupted."""

    def __init__(
        self, parts: Parts, asked: Asked, followers: Counter[Asked], receive: Callable[[], Awaitable[object]]
    ) -> None:
        self.following = Following(parts, asked)
        self.is_gone = False
        self._parts = parts
        self._followers = followers
        self._followers[asked] += 1
        self._watching = asyncio.create_task(self._watch(receive))
        self._is_closed = False

    async def close(self, *, gave_up: bool = False) -> None:
        """Listen no longer. Twice does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        following = self.following
        following.close()
        self._watching.cancel()
        self._followers[following.asked] -= 1
        is_last = self._followers[following.asked] <= 0
        if is_last:
            del self._followers[following.asked]
        is_wanted = not (self.is_gone or gave_up) or following.is_over
        if is_wanted or not is_last or not self._parts.settings.gateway_openai_interrupt:
            return
        try:
            await following.interrupt()
        except BrokerError as error:
            _log.warning("gateway.not_interrupted", context_id=following.asked.context_id, reason=str(error))

    async def _watch(self, receive: Callable[[], Awaitable[object]]) -> None:
        while True:
            message = await receive()
            if isinstance(message, dict) and message["type"] == "http.disconnect":
                break
        self.is_gone = True
        self.following.close()


class CompletionStream(Response):
    """The answer as it comes, as chunks in server-sent events."""

    media_type = "text/event-stream"

    def __init__(self, listening: Listening, writer: chunks.Writer, asked: Asked) -> None:
        # Not the base's, which would say how long the body is.
        self.status_code = 200
        self.background = None
        self.init_headers({**event_stream.HEADERS, **conversation.in_header(asked.context_id)})
        self._listening = listening
        self._writer = writer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the answer is finished or the client is gone."""
        try:
            await send(
                {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            )
            await self._send(send, self._writer.role() + self._news())
            following = self._listening.following
            while not following.is_over and not following.is_closed:
                has_more = await following.next(event_stream.HEARTBEAT_SECONDS)
                await self._send(send, self._news() if has_more else chunks.HEARTBEAT)
            await self._send(send, self._end())
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            self._listening.is_gone = True
            protocol.abort(scope)
        finally:
            await self._listening.close()

    def _news(self) -> bytes:
        """Chunks with what was said since."""
        text = self._listening.following.answer.more()
        return self._writer.text(text) if text else b""

    def _end(self) -> bytes:
        following = self._listening.following
        if (failure := following.answer.failure) is not None:
            problem = problem_of(failure)
        elif following.is_over:
            return self._writer.end()
        else:
            problem = ProblemError(
                "draining", "The gateway is stopping. The conversation receives the rest of the answer."
            )
        kind = KINDS[problem.word]
        return self._writer.error(errors.written(problem.word, kind.status, str(problem), problem.members))

    async def _send(self, send: Send, data: bytes) -> None:
        """Returns when there is room for more. Raises TimeoutError for a client that reads nothing."""
        if data:
            async with asyncio.timeout(event_stream.SEND_SECONDS):
                await send({"type": "http.response.body", "body": data, "more_body": True})


def problem_of(failure: Failure) -> ProblemError:
    """Returns the problem that an answer failed so."""
    word = "answer-refused" if failure.code in REFUSED else "answer-failed"
    # OpenAI's clients try again after a 5xx unless they are told not to.
    headers = {"X-Should-Retry": "false"} if failure.code in HOPELESS else {}
    return ProblemError(word, failure.message, headers=headers, code=failure.code)
