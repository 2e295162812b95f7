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
        if raw := scope.get("raw_path"):
            scope = {**scope, "path": raw.partition(b"?")[0].decode("latin-1")}
        await self._app(scope, receive, send)
