"""Routing by the undecoded path, because ids may contain slashes. A path segment is decoded after it was matched.

ASGI servers decode a path before routing, so `/contexts/acme%2Fcall-1` would have one segment too many.
"""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send


class RawPaths:
    """Middleware that replaces the decoded path with the path as it was sent."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI. Without a `raw_path` from the server the path is not changed."""
        await self._app({**scope, "path": path_of(scope)} if "path" in scope else scope, receive, send)


def path_of(scope: Scope) -> str:
    """Returns the path of a request as it was sent."""
    raw: bytes = scope.get("raw_path") or b""
    path: str = scope["path"]
    return raw.partition(b"?")[0].decode("latin-1") if raw else path
