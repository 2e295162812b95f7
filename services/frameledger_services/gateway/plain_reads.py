"""A context as it is now, on the shortest way: what is asked most, and by polling clients again and again.

The router hands it over before it tries its routes one by one. It is the same answer as that of the route in
`contexts`, made without a request and a response object; whatever is asked beside a plain `GET` goes to the route.
"""

from __future__ import annotations

from typing import Any

from starlette.routing import Router
from starlette.types import Receive, Scope, Send

from frameledger_services.gateway import answers, contexts, parameters
from frameledger_services.gateway.access.policy import CONTEXTS
from frameledger_services.gateway.parts import Parts
from frameledger_services.gateway.routes import DescribedRoute, require
from frameledger_services.store.context_json import ContextHead, Moment

FOLDER = f"{CONTEXTS}/"

_REVALIDATED = [(name.lower().encode(), text.encode()) for name, text in answers.REVALIDATED.items()]
_JSON = (b"content-type", answers.JSON.encode())


class PlainReads(Router):
    """The app's router, with a way past its routes."""

    def __init__(self, parts: Parts, routes: Router) -> None:
        """`routes` has those that were there before."""
        super().__init__(routes.routes, redirect_slashes=False)
        self._parts = parts
        self._route: DescribedRoute | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        path: str = scope["path"]
        if scope.get("method") == "GET" and not scope["query_string"] and path.startswith(FOLDER):
            segment = path[len(FOLDER) :]
            if segment and "/" not in segment:
                # As the router does, for whoever counts requests by their route.
                scope["route"] = self._of_contexts()
                await self._answer(scope, send, segment)
                return
        await super().__call__(scope, receive, send)

    async def _answer(self, scope: Scope, send: Send, segment: str) -> None:
        require(scope, "read")
        context_id = parameters.context_id_of(segment, scope)
        asked = Moment(context_id)
        known = [value for name, value in scope["headers"] if name == b"if-none-match"]
        if known:
            head = await self._parts.heads.read(asked)
            if head is None:
                raise await contexts.missing(self._parts, context_id)
            tag = contexts.tag(head)
            if answers.is_among(b",".join(known).decode("latin-1"), tag):
                await _send(send, 304, head, [])
                return
        found = await self._parts.contexts.read(asked)
        if found is None:
            raise await contexts.missing(self._parts, context_id)
        body = contexts.written(context_id, found)
        length = (b"content-length", b"%d" % len(body))
        await _send(send, 200, found, [length, _JSON], body)

    def _of_contexts(self) -> DescribedRoute:
        if self._route is None:
            [self._route] = [
                one
                for one in self.routes
                if isinstance(one, DescribedRoute) and one.path == contexts.PATH and one.methods == {"GET"}
            ]
        return self._route


async def _send(
    send: Send, status: int, head: ContextHead, also: list[tuple[bytes, bytes]], body: bytes = b""
) -> None:
    headers: list[Any] = [*_REVALIDATED, (b"etag", contexts.tag(head).encode()), *also]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
