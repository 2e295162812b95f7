"""The gateway as a service: an HTTP server in the event loop of the process, which drains when it is stopped."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager

import uvicorn
from starlette.types import ASGIApp

from frameledger.errors import ConfigurationError
from frameledger_services import access, descriptors, logs
from frameledger_services.client import Client
from frameledger_services.gateway.access import security
from frameledger_services.gateway.access.sessions import Sessions
from frameledger_services.gateway.access.sessions import routes as session_routes
from frameledger_services.gateway.app import create_app
from frameledger_services.gateway.dependencies import Dependencies
from frameledger_services.gateway.live.hub import Hub
from frameledger_services.gateway.live.protocol import AbortableProtocol
from frameledger_services.gateway.metrics import RequestMetrics, StreamMetrics
from frameledger_services.gateway.publishing import SOURCE
from frameledger_services.settings import GATEWAY_PORT, Settings
from frameledger_services.store.connections import Connections
from frameledger_services.telemetry.metrics_recorder import NO_METRICS, Metrics

BACKLOG = 2_048

KEEP_ALIVE_SECONDS = 75
"""How long an idle connection stays open: longer than clients and load balancers keep theirs (a minute at most, by
default). The side that sends requests must close first: a request that is sent to a connection while the server closes
it is lost, and a load balancer answers 502."""

_log = logs.get_logger("gateway")


class AddressError(ConfigurationError):
    """The gateway cannot listen at its address. The message says why.

    Remedy: Set `FRAMELEDGER_GATEWAY_HOST` and `FRAMELEDGER_GATEWAY_PORT` to a free address of this machine.
    """


async def serve(settings: Settings, stopping: asyncio.Event, metrics: Metrics = NO_METRICS) -> None:
    """Serve requests until `stopping` is set, then finish those in progress, for at most `gateway_drain_secs`.

    Survives outages of broker and database: requests that need them fail with a problem. Raises
    `AddressError`, `TokensNeededError` and `TokensFileError` if it may not listen there, and `SettingsError` if no
    broker or no database is set.
    """
    access.database_address(settings)
    access.kafka_options(settings)
    # Without a free descriptor a connection is closed before a response could give the reason.
    descriptors.allow_enough()
    async with AsyncExitStack() as stack:
        sessions = Sessions(settings, security.live_tokens(settings))
        listening = stack.enter_context(_listen(settings))
        dependencies = await stack.enter_async_context(connected(settings, stopping, metrics))
        app = create_app(dependencies, routes=session_routes(sessions))
        secured: ASGIApp = security.secured(app, settings, sessions, dependencies)
        if metrics is not NO_METRICS:
            secured = RequestMetrics(secured, metrics, app.routes)
        server = _Server(settings, secured)
        host, port = listening.getsockname()[:2]
        _log.info("gateway.started", address=address(host, port))
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        stopped = asyncio.create_task(stopping.wait())
        await asyncio.wait((serving, stopped), return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not serving.done():
            _log.info("gateway.draining")
        dependencies.hub.close()
        server.should_exit = True
        await serving
    _log.info("gateway.stopped")


@asynccontextmanager
async def connected(
    settings: Settings, stopping: asyncio.Event, metrics: Metrics = NO_METRICS
) -> AsyncIterator[Dependencies]:
    """Yields the shared dependencies of the routes. Connects on first use and closes everything at the end."""
    most = settings.gateway_database_connections
    database = Connections(
        settings,
        "frameledger-gateway",
        most=most,
        within=settings.gateway_request_secs,
        free_within=settings.gateway_database_wait_secs,
    )
    hub = Hub(settings, StreamMetrics(metrics))
    async with (
        # The gateway publishes frames of its clients, who would not see its warnings.
        Client(
            settings, source=SOURCE, connections=most, metrics=metrics, warns_of_misspelled=False
        ) as client,
        _running(hub, stopping),
    ):
        try:
            yield Dependencies(settings, client, database, hub, stopping)
        finally:
            await database.close()


@asynccontextmanager
async def _running(hub: Hub, stopping: asyncio.Event) -> AsyncIterator[None]:
    """Runs the hub during the block. If the hub fails, the process stops, and the end of the block raises the error."""
    working = asyncio.create_task(hub.run())
    working.add_done_callback(lambda _: stopping.set())
    try:
        yield
    finally:
        working.cancel()
        await asyncio.wait([working])
        if not working.cancelled():
            working.result()


def address(host: str, port: int) -> str:
    """Returns the base URL of the gateway."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _Server(uvicorn.Server):
    """A server that leaves the signals to `process`."""

    def __init__(self, settings: Settings, app: ASGIApp) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=AbortableProtocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=max(1, round(settings.gateway_drain_secs)),
            )
        )

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


@contextmanager
def _listen(settings: Settings) -> Iterator[socket.socket]:
    host = settings.gateway_host
    port = GATEWAY_PORT if settings.gateway_port is None else settings.gateway_port
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise AddressError(
            f"The gateway cannot listen at {address(host, port)}: {error.strerror}. Set FRAMELEDGER_GATEWAY_HOST or "
            "FRAMELEDGER_GATEWAY_PORT to another address, or stop the program that has it."
        ) from error
    with listening:
        yield listening
