"""The gateway's middleware without servers: tokens, sessions, limits and headers, before an app that answers every
request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from frameledger_services.gateway import problems
from frameledger_services.gateway.access import caller, tokens
from frameledger_services.gateway.access import sessions as page_sessions
from frameledger_services.gateway.access.security import live_tokens, secured
from frameledger_services.gateway.access.sessions import Sessions
from frameledger_services.settings import Settings

HOME = "http://127.0.0.1:18080"
ALL = ("read", "append", "admin")


class Gateway:
    """A gateway whose app answers every request with the name of the caller, or at `/stream` with pieces that the test
    releases."""

    def __init__(self, folder: Path, *, open_to_all: bool = False, host: str = HOME, **settings: Any) -> None:
        self.file = folder / "tokens.json"
        self.settings = Settings(
            gateway_tokens_file=None if open_to_all else self.file, data_dir=folder, **settings
        )
        if not open_to_all:
            self.admin = self.token("admin", ALL)
        self.host = host
        self.live = live_tokens(self.settings)
        self.sessions = Sessions(self.settings, self.live)
        self.reached: list[tuple[str, str, str | None]] = []
        self.pieces: asyncio.Queue[bytes] = asyncio.Queue()
        every = Route(
            "/{path:path}", self._answer, methods=["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"]
        )
        self.app = secured(
            Starlette(routes=[*page_sessions.routes(self.sessions), every], exception_handlers=HANDLERS),
            self.settings,
            self.sessions,
        )

    def token(self, name: str, scopes: Sequence[str] = ("read",), **more: Any) -> str:
        """Creates a token of this name, and returns it."""
        return tokens.create(self.file, name, scopes, now=datetime.now(UTC), **more)[1]

    async def _answer(self, request: Request) -> Response:
        asking = caller.of(request.scope)
        self.reached.append((request.method, request.url.path, asking.name))
        if request.url.path.endswith("/stream"):
            return StreamingResponse(self._stream(), media_type="text/event-stream")
        return JSONResponse(asking.name, headers={"ETag": '"41"'})

    async def _stream(self) -> AsyncIterator[bytes]:
        while True:
            yield await self.pieces.get()

    def ask(self, path: str, method: str = "GET", *, token: str | None = None, **more: Any) -> httpx.Response:
        return self.ask_all([(path, method, token, more)])[0]

    def ask_all(self, asked: Sequence[tuple[str, str, str | None, dict[str, Any]]]) -> list[httpx.Response]:
        """Returns the answers to several requests of one browser, one after another. Each is a path, a method, a token,
        and what else httpx takes."""

        async def all_of_them() -> list[httpx.Response]:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url=self.host) as http:
                return [
                    await http.request(method, path, **with_token(token, more))
                    for path, method, token, more in asked
                ]

        return asyncio.run(all_of_them())


def with_token(token: str | None, more: dict[str, Any]) -> dict[str, Any]:
    headers = httpx.Headers(more.get("headers"))
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    return {**more, "headers": headers}


def said(answer: httpx.Response) -> tuple[int, str]:
    """Returns the status of a problem and its name."""
    assert answer.headers["content-type"] == "application/problem+json"
    return answer.status_code, answer.json()["type"].removeprefix("/problems/")


async def _problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, problems.ProblemError)
    return problems.answer(request, error)


async def _bug(_: Request, error: Exception) -> Response:
    BUGS.append(error)
    return Response(status_code=500)


BUGS: list[Exception] = []
"""The exceptions of the app that are no problem responses."""

HANDLERS = {problems.ProblemError: _problem, Exception: _bug}


@pytest.fixture(name="gateway")
def guarded_gateway(tmp_path: Path) -> Gateway:
    return Gateway(tmp_path)
