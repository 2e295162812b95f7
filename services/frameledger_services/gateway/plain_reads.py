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
from frameledger_services.gateway.conversations import PATH
from frameledger_services.gateway.dependencies import Dependencies
from frameledger_services.gateway.live import complete_response
from frameledger_services.gateway.media_types import JSON
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
"""The header lines of a response with a context, to be formatted with its tag and its length."""


class PlainReads:
    """ASGI middleware, outside of all others that make decisions."""

    def __init__(self, app: ASGIApp, dependencies: Dependencies, guard: Guard, limit: RateLimit) -> None:
        """`guard` and `limit` are those of the normal path, `app`."""
        self._app = app
        self._dependencies = dependencies
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
        """Answer the request if it has a plain answer. Returns whether it was answered."""
        asked = self._asked(scope, segment)
        if asked is None:
            return False
        context_id, known = asked
        try:
            answer = await self._read(context_id, known)
        except Exception as error:
            # Even a bug: the normal path reports and logs it.
            scope[contexts.FAILURE] = error
            return False
        if answer is None:
            return False
        tag, body = answer
        if body is None:
            metrics.note_template(scope, PATH, 304)
            await _send(send, 304, [*_ALWAYS, (b"etag", tag.encode())])
            return True
        read_log.note(scope, context_id, tag)
        metrics.note_template(scope, PATH, 200)
        head = _HEAD % (tag.encode(), len(body))
        if not complete_response.has_sent(scope, head, body):
            lines = (line.partition(b": ") for line in head.splitlines())
            await _send(send, 200, [(name, value) for name, _, value in lines], body)
        return True

    def _asked(self, scope: Scope, segment: str) -> tuple[str, str | None] | None:
        """Returns the requested conversation, which the caller may read, and the entity tags that it knows, or None for
        none. Returns None if the normal path has to answer."""
        known = None
        for name, value in scope["headers"]:
            if name == b"if-none-match":
                known = value if known is None else known + b"," + value
            elif name == b"origin":
                # The normal path decides which other origins may read the response.
                return None
        try:
            self._guard.admit(scope)
            context_id = parameters.context_id_of(segment, scope)
        except (ProblemError, FrameledgerError):
            return None
        if caller.of(scope).redact or not self._limit.has_taken(scope):
            return None
        return context_id, None if known is None else known.decode("latin-1")

    async def _read(self, context_id: str, known: str | None) -> tuple[str, bytes | None] | None:
        """Returns the newest tag and its context, which is None if the client knows the tag. Returns None if there is
        no such conversation."""
        dependencies = self._dependencies
        if known is not None or context_id in dependencies.kept:
            head = await dependencies.newest.read(context_id)
            if head is None:
                dependencies.kept.drop(context_id)
                return None
            tag = contexts.tag(head)
            if known is not None and answers.is_among(known, tag):
                return tag, None
            body = dependencies.kept.get(context_id, tag)
            if body is not None:
                return tag, body
        context = await dependencies.contexts.read(WantedContext(context_id))
        if context is None:
            return None
        tag, body = contexts.tag(context), contexts.written(context_id, context)
        dependencies.kept.keep(context_id, tag, body)
        return tag, body


async def _send(send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes = b"") -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
