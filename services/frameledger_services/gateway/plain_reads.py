"""The fast path for reading the current context, the most frequent request, which polling clients repeat.

It runs before all other middleware and handles requests whose response is a context, or 304, with the same decisions,
headers and log lines as the normal path. Everything else, including rejections and failures, takes the normal path.
"""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from frameledger.errors import FrameledgerError
from frameledger_services.gateway import answers, contexts, metrics, parameters
from frameledger_services.gateway.access import caller, read_log
from frameledger_services.gateway.access.guard import Guard
from frameledger_services.gateway.access.policy import CONTEXTS
from frameledger_services.gateway.access.rate_limit import RateLimit
from frameledger_services.gateway.access.response_headers import ENCODED
from frameledger_services.gateway.live import complete_response
from frameledger_services.gateway.media_types import JSON
from frameledger_services.gateway.parts import Parts
from frameledger_services.gateway.problems import ProblemError
from frameledger_services.gateway.raw_paths import path_of
from frameledger_services.store.context_json import WantedContext

FOLDER = f"{CONTEXTS}/"

_ALWAYS = [*((name.lower().encode(), text.encode()) for name, text in answers.REVALIDATED.items()), *ENCODED]

_HEAD = b"".join(
    b"%b: %b\r\n" % one
    for one in (
        *_ALWAYS,
        (b"etag", b"%b"),
        (b"content-type", JSON.encode()),
        (b"content-length", b"%d"),
    )
)
"""The header lines of a response with a context, for its tag and its length."""


class PlainReads:
    """ASGI middleware, outside of all others that decide something."""

    def __init__(self, app: ASGIApp, parts: Parts, guard: Guard, limit: RateLimit) -> None:
        """`guard` and `limit` are those of the long way, `app`."""
        self._app = app
        self._parts = parts
        self._guard = guard
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] == "http" and scope["method"] == "GET" and not scope["query_string"]:
            path = path_of(scope)
            segment = path[len(FOLDER) :] if path.startswith(FOLDER) else ""
            if segment and "/" not in segment and await self._has_answered(scope, send, segment):
                return
        await self._app(scope, receive, send)

    async def _has_answered(self, scope: Scope, send: Send, segment: str) -> bool:
        known = None
        for name, value in scope["headers"]:
            if name == b"if-none-match":
                known = value if known is None else known + b"," + value
            elif name == b"origin":
                # The long way decides which other origins may read it.
                return False
        try:
            self._guard.admit(scope)
            context_id = parameters.context_id_of(segment, scope)
        except (ProblemError, FrameledgerError):
            return False
        if caller.of(scope).redact or not self._limit.has_taken(scope):
            return False
        try:
            answer = await self._read(context_id, None if known is None else known.decode("latin-1"))
        except Exception as error:
            # Also one that is a bug: the long way says and logs what it is.
            scope[contexts.FAILURE] = error
            return False
        if answer is None:
            return False
        tag, body = answer
        if body is None:
            metrics.note_template(scope, contexts.PATH, 304)
            headers = [*_ALWAYS, (b"etag", tag.encode())]
            await send({"type": "http.response.start", "status": 304, "headers": headers})
            await send({"type": "http.response.body"})
            return True
        read_log.note(scope, context_id, tag)
        metrics.note_template(scope, contexts.PATH, 200)
        head = _HEAD % (tag.encode(), len(body))
        if complete_response.has_sent(scope, head, body):
            return True
        headers = [(name, value) for name, _, value in (line.partition(b": ") for line in head.splitlines())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})
        return True

    async def _read(self, context_id: str, known: str | None) -> tuple[str, bytes | None] | None:
        """Returns the newest tag and its context, which is None if the tag is a `known` one; None if there is none."""
        parts = self._parts
        if known is not None or context_id in parts.kept:
            head = await parts.newest.read(context_id)
            if head is None:
                parts.kept.drop(context_id)
                return None
            tag = contexts.tag(head)
            if known is not None and answers.is_among(known, tag):
                return tag, None
            body = parts.kept.get(context_id, tag)
            if body is not None:
                return tag, body
        context = await parts.contexts.read(WantedContext(context_id))
        if context is None:
            return None
        tag, body = contexts.tag(context), contexts.written(context_id, context)
        parts.kept.keep(context_id, tag, body)
        return tag, body
