"""Redacting tokens: text is removed from the responses of all routes.

It wraps the whole app, so routes need not know about it. A response in a format that it cannot redact is not sent.
"""

from __future__ import annotations

import json
from typing import Any

from starlette.datastructures import URL, MutableHeaders, QueryParams
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from frameledger_services.gateway import problems
from frameledger_services.gateway.access import caller, policy
from frameledger_services.gateway.access.shapes import ANSWER, FRAME, PROBLEM, Shape, redacted
from frameledger_services.gateway.media_types import EVENT_STREAM, JSON, NDJSON, PROBLEM_JSON
from frameledger_services.gateway.problems import ProblemError
from frameledger_services.gateway.raw_paths import path_of

SEARCH = "q"
"""The parameter that searches words: a caller that may not read them must not discover them by searching."""

END_OF_STREAM = b"[DONE]"
"""The only event of the compatible APIs that is not JSON."""


class RedactedAnswers:
    """ASGI middleware, behind the guard."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http" or not caller.of(scope).redact or _has_no_words(path_of(scope)):
            await self._app(scope, receive, send)
            return
        parameters = QueryParams(scope["query_string"])
        if SEARCH in parameters:
            problem = ProblemError("forbidden", "A redacting token may not search for text.")
            await problems.response(URL(scope=scope), problem)(scope, receive, send)
            return
        answer = _Answer(scope, receive, send, FRAME if "raw" in parameters else ANSWER)
        await self._app(scope, receive, answer.send)


def _has_no_words(path: str) -> bool:
    return policy.is_of_the_process(path) or not policy.needed("GET", path).needs_token


class _Answer:
    """One response: JSON is redacted when it is complete, NDJSON line by line, events one by one."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, shape: Shape) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._shape = shape
        self._start: Message | None = None
        self._kind = ""
        self._left = b""
        self._data: list[bytes] = []

    async def send(self, message: Message) -> None:
        """Send a message of the app, redacted."""
        if message["type"] == "http.response.start":
            await self._begin(message)
        elif self._kind == "as it is":
            await self._send(message)
        elif message["type"] == "http.response.body":
            await self._go_on(message.get("body", b""), is_last=not message.get("more_body", False))
        else:
            raise NotImplementedError(f"{message['type']} is not redacted")

    async def _begin(self, start: Message) -> None:
        headers = MutableHeaders(scope=start)
        has_words = start["status"] != 204 and self._scope["method"] != "HEAD"
        kind = headers.get("content-type", "").partition(";")[0].strip()
        if kind == PROBLEM_JSON and has_words:
            self._shape = PROBLEM
            kind = JSON
        elif start["status"] >= 300:
            has_words = False
        if not has_words:
            self._kind = "as it is"
        elif kind in (JSON, NDJSON, EVENT_STREAM):
            self._kind = kind
        else:
            self._kind = "refused"
            return
        if "content-length" in headers and self._kind != "as it is":
            del headers["content-length"]
        if self._kind == JSON:
            self._start = start
        else:
            await self._send(start)

    async def _go_on(self, body: bytes, *, is_last: bool) -> None:
        if self._kind == "refused":
            if is_last:
                problem = ProblemError("forbidden", "A redacting token may not read this.")
                await problems.response(URL(scope=self._scope), problem)(
                    self._scope, self._receive, self._send
                )
            return
        self._left += body
        if self._kind == JSON:
            if is_last:
                await self._send_json()
            return
        end = len(self._left) if is_last else self._left.rfind(b"\n") + 1
        lines, self._left = self._left[:end], self._left[end:]
        as_lines = self._events if self._kind == EVENT_STREAM else self._ndjson
        await self._send(
            {"type": "http.response.body", "body": as_lines(lines, is_last), "more_body": not is_last}
        )

    async def _send_json(self) -> None:
        assert self._start is not None
        body = _without_words(self._left, self._shape)
        MutableHeaders(scope=self._start)["content-length"] = str(len(body))
        await self._send(self._start)
        await self._send({"type": "http.response.body", "body": body})

    def _ndjson(self, lines: bytes, _: bool) -> bytes:
        return b"".join(
            _without_words(line, self._shape) + b"\n" for line in lines.split(b"\n") if line.strip()
        )

    def _events(self, lines: bytes, is_last: bool) -> bytes:
        """An event's data may be on several lines; an empty line ends it."""
        written = []
        for line in lines.splitlines():
            if line.startswith(b"data:"):
                self._data.append(line.removeprefix(b"data:").removeprefix(b" "))
                continue
            if self._data and not line:
                written.append(b"data: " + self._event())
            written.append(line)
        if self._data and is_last:
            written.append(b"data: " + self._event())
        return b"".join(line + b"\n" for line in written)

    def _event(self) -> bytes:
        data, self._data = b"\n".join(self._data), []
        return data if data == END_OF_STREAM else _without_words(data, self._shape)


def _without_words(text: bytes, shape: Shape) -> bytes:
    """Returns redacted JSON. Text that is not JSON is redacted as one JSON string."""
    try:
        value: Any = json.loads(text)
    except ValueError:
        value = text.decode(errors="replace")
    return json.dumps(redacted(value, shape), separators=(",", ":")).encode()
