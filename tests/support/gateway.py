"""The gateway in tests: its app in this process, or the service in one of its own."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import IO, Any, TypeVar

import httpx
from pydantic import SecretStr
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp
from tests.bounds import ON_SERVERS
from tests.support.forked_command import Command

from frameledger_services.gateway.access import security
from frameledger_services.gateway.access.sessions import Sessions
from frameledger_services.gateway.access.sessions import routes as session_routes
from frameledger_services.gateway.app import create_app
from frameledger_services.gateway.dependencies import Dependencies
from frameledger_services.gateway.service import connected
from frameledger_services.settings import PREFIX, Settings

_T = TypeVar("_T")

AWAY: dict[str, Any] = {
    "database_url": SecretStr("postgresql://nobody@127.0.0.1:1/none"),
    "kafka_bootstrap_servers": "127.0.0.1:1",
    "gateway_request_secs": 1,
    "gateway_burst": 1_000_000,
    "gateway_ag_ui": True,
}
"""Settings of a gateway without servers: a request that passes the guard is answered 503, within a second."""

CLIENT = {"base_url": "http://localhost", "timeout": ON_SERVERS}


@asynccontextmanager
async def app_of(settings: Settings, token: str | None = None) -> AsyncIterator[httpx.AsyncClient]:
    """Yields a client of the app itself, without a socket, with this token. Without a token everything is allowed,
    unless the settings name a token file."""
    async with connected(settings, asyncio.Event()) as dependencies:
        transport = httpx.ASGITransport(served(dependencies), raise_app_exceptions=False)
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(transport=transport, headers=headers, **CLIENT) as http:
            yield http


def all_routes() -> list[tuple[str, Route]]:
    """Returns every route with its method."""

    async def found() -> list[BaseRoute]:
        async with connected(Settings(**AWAY), asyncio.Event()) as dependencies:
            sessions = Sessions(dependencies.settings, security.live_tokens(dependencies.settings))
            return [*create_app(dependencies).routes, *session_routes(sessions)]

    return [
        (method, route)
        for route in asyncio.run(found())
        if isinstance(route, Route)
        for method in sorted(route.methods or ())
    ]


def served(dependencies: Dependencies, routes: Sequence[BaseRoute] = ()) -> ASGIApp:
    """Returns the app as the service serves it, with these routes too."""
    sessions = Sessions(dependencies.settings, security.live_tokens(dependencies.settings))
    app = create_app(dependencies, routes=[*session_routes(sessions), *routes])
    return security.secured(app, dependencies.settings, sessions, dependencies)


def with_app(
    settings: Settings, work: Callable[[httpx.AsyncClient], Awaitable[_T]], token: str | None = None
) -> _T:
    """Returns what `work` returns, given a client of the app."""

    async def run() -> _T:
        async with asyncio.timeout(ON_SERVERS), app_of(settings, token) as http:
            return await work(http)

    return asyncio.run(run())


@dataclass(slots=True)
class Gateway:
    """A process of `frameledger run gateway`."""

    process: Command
    address: str
    log: IO[bytes]

    def events(self) -> Iterator[dict[str, Any]]:
        """Yields the log lines from now on until the process ends."""
        for line in self.log:
            yield json.loads(line)


@contextmanager
def running(settings: Settings, *, is_heard: bool = True, **also: str) -> Iterator[Gateway]:
    """Run the service during the block, then kill it. `also` are settings for it alone. Its log is discarded unless
    `is_heard`, because a busy gateway would block once the pipe of an unread log is full."""
    given = {
        name: str(getattr(value, "get_secret_value", lambda value=value: value)())
        for name in settings.model_fields_set
        if (value := getattr(settings, name)) is not None
    }
    environment = {f"{PREFIX}{name.upper()}": value for name, value in {**given, **also}.items()}
    process = Command(("run", "gateway"), {**os.environ, **environment, f"{PREFIX}LOG_FORMAT": "json"})
    passing_over = threading.Thread(target=lambda: deque(gateway.log, maxlen=0))
    try:
        gateway = Gateway(process, "", process.errors)
        for event in gateway.events():
            if event["event"] == "gateway.started":
                gateway.address = event["address"]
                break
        assert gateway.address, "it did not begin"
        if not is_heard:
            passing_over.start()
        yield gateway
    finally:
        process.kill()
        if passing_over.ident is not None:
            passing_over.join()
        process.errors.close()
