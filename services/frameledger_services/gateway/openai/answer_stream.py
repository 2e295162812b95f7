"""Streams an answer as server-sent events, in the format of the requested API."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from frameledger_services.gateway.live import event_stream, protocol, timed_send
from frameledger_services.gateway.media_types import EVENT_STREAM
from frameledger_services.gateway.openai import conversation, errors
from frameledger_services.gateway.openai.failures import problem_of
from frameledger_services.gateway.openai.following import Following
from frameledger_services.gateway.openai.listening import Listening
from frameledger_services.gateway.problems import KINDS, ProblemError

HEARTBEAT = b": heartbeat\n"
"""A comment. It is not followed by an empty line, which OpenAI's client for Python takes for an event without data once
an event had an `id`."""


class AnswerWriter(Protocol):
    """Writes one answer in the form of an API."""

    def whole(self) -> bytes:
        """Returns a finished answer as one body."""

    def begin(self) -> bytes:
        """Returns the first events of a streamed answer."""

    def news(self) -> bytes:
        """Returns the events for the text since the last call, or `b""` if there is none."""

    def end(self) -> bytes:
        """Returns the last events of a finished answer."""

    def broken(self, error: Mapping[str, Any]) -> bytes:
        """Returns the last event of an answer that breaks off. `error` is in OpenAI's format."""


class AnswerStream(Response):
    """A streamed answer, sent at its client's pace."""

    media_type = EVENT_STREAM

    def __init__(self, listening: Listening, writer: AnswerWriter) -> None:
        # The base's constructor is not called: it would set Content-Length.
        self.status_code = 200
        self.background = None
        context_id = listening.following.question.context_id
        self.init_headers({**event_stream.HEADERS, **conversation.in_header(context_id)})
        self._listening = listening
        self._writer = writer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the answer is finished or the client is gone."""
        writer = self._writer
        try:
            await send(
                {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            )
            await self._send(send, writer.begin() + writer.news())
            following = self._listening.following
            while not following.is_over and not following.is_closed:
                has_more = await following.next(event_stream.HEARTBEAT_SECONDS)
                await self._send(send, writer.news() if has_more else HEARTBEAT)
            await self._send(send, self._end(following))
            await timed_send.send_end(send)
        except TimeoutError:
            self._listening.is_gone = True
            protocol.abort(scope)
        except (Exception, asyncio.CancelledError):
            raise
        except BaseException:
            # The client's token is no longer valid: the guard aborts the response.
            self._listening.is_gone = True
            raise
        finally:
            await self._listening.close()

    def _end(self, following: Following) -> bytes:
        if (failure := following.answer.failure) is not None:
            problem = problem_of(failure)
        elif following.is_over:
            return self._writer.end()
        else:
            problem = ProblemError(
                "draining", "The gateway is stopping. The conversation receives the rest of the answer."
            )
        kind = KINDS[problem.word]
        return self._writer.broken(errors.written(problem.word, kind.status, str(problem), problem.members))

    async def _send(self, send: Send, data: bytes) -> None:
        if data:
            await timed_send.send_piece(send, data)
