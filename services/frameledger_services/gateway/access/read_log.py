"""The read audit: a log line for each response with content of conversations.

It has the token, the conversation, the versions, and the trace of the request; never the content.
"""

from __future__ import annotations

from functools import lru_cache

from starlette.datastructures import QueryParams
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from frameledger import headers as record_headers
from frameledger_services.gateway.access import caller, policy
from frameledger_services.gateway.raw_paths import path_of
from frameledger_services.logs import FrequentEvent

PART_PARAMETERS = ("version", "at", "from", "to", "after", "before", "era", "limit", "prefix")
"""Parameters that say which part was read. The text of a search is omitted: it may quote a conversation."""

_TRACEPARENT = record_headers.TRACEPARENT.encode()


def _read_event(
    token: str, token_id: str | None, context_id: str | None, path: str, trace_id: str | None
) -> FrequentEvent:
    """Returns the event of these reads."""
    make = _kept if len(path) <= policy.MAX_KEPT else _event
    return make(token, token_id, context_id, path, trace_id)


def _event(
    token: str, token_id: str | None, context_id: str | None, path: str, trace_id: str | None
) -> FrequentEvent:
    return FrequentEvent(
        "gateway",
        "gateway.read",
        token=token,
        token_id=token_id,
        context_id=context_id,
        path=path,
        trace_id=trace_id,
    )


# A client that polls repeats the same one.
_kept = lru_cache(maxsize=1_024)(_event)


class ReadLog:
    """ASGI middleware, behind the guard."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        is_read = scope["type"] == "http" and scope["method"] == "GET"
        if not is_read or not policy.needed("GET", path_of(scope)).needs_token:
            await self._app(scope, receive, send)
            return

        async def noted(message: Message) -> None:
            if message["type"] == "http.response.start" and 200 <= message["status"] < 300:
                about = policy.needed("GET", path_of(scope)).context_id
                # The ETag of a context is its version. Names of headers are lower-case here.
                note(scope, about, _text(dict(message["headers"]).get(b"etag")))
            await send(message)

        await self._app(scope, receive, noted)


def note(scope: Scope, context_id: str | None, version: str | int | None) -> None:
    """Log that the response returns content of a conversation. For a `GET` the middleware does so."""
    asking = caller.of(scope)
    sent = dict(scope["headers"])
    _read_event(
        asking.name, asking.token_id, context_id, path_of(scope), _trace_id(sent.get(_TRACEPARENT))
    ).log(part=_part(scope["query_string"], sent.get(b"last-event-id")), version=version)


def _trace_id(traceparent: bytes | None) -> str | None:
    if traceparent is None:
        return None
    return record_headers.trace_id_in(
        record_headers.traceparent_of({record_headers.TRACEPARENT: traceparent})
    )


def _part(query: bytes, last_event_id: bytes | None) -> dict[str, str]:
    """Returns which part was requested."""
    part: dict[str, str] = {}
    if query:
        parameters = QueryParams(query)
        part = {name: parameters[name] for name in PART_PARAMETERS if name in parameters}
    if last_event_id is not None:
        part["after"] = last_event_id.decode("latin-1")
    return part


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("latin-1")
