"""Ids may hold slashes: paths are matched as they were sent, and an id is decoded once it was found.

ASGI servers decode a path before it is routed, so `/contexts/acme%2Fcall-1` would have one segment more than was meant.
"""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send


class RawPaths:
    """Middleware that puts the path as it was sent in the place of the decoded one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI. Servers that give no `raw_path` are left as they are."""
        await self._app({**scope, "path": path_of(scope)} if "path" in scope else scope, receive, send)


def path_of(scope: Scope) -> str:
    """Returns the path of a request as it was sent."""
    raw: bytes = scope.get("raw_path") or b""
    path: str = scope["path"]
    return raw.partition(b"?")[0].decode("latin-1") if raw else path
