"""`/livez` and `/readyz`: whether the process runs, and whether it accepts requests."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from frameledger_services import database
from frameledger_services.event_log import broker
from frameledger_services.event_log.broker import BrokerError
from frameledger_services.event_log.topics import TopicNames
from frameledger_services.gateway.dependencies import Dependencies
from frameledger_services.store.connections import DatabaseError, DatabaseRefusedError
from frameledger_services.store.schema import SchemaError
from frameledger_services.telemetry.health import AWAY, CHECK_SECONDS, KEPT_SECONDS, OK, REFUSED


def routes(dependencies: Dependencies) -> list[BaseRoute]:
    """Returns the two routes."""
    servers = _Servers(dependencies)

    async def live(_: Request) -> Response:
        return JSONResponse({"live": True})

    async def ready(_: Request) -> Response:
        checks = await servers.checks() | {"draining": "yes" if dependencies.stopping.is_set() else "no"}
        is_ready = checks == {"database": OK, "log": OK, "draining": "no"}
        # Anybody may ask, so addresses and error messages of servers are shown only by `frameledger doctor`.
        return JSONResponse({"ready": is_ready, "checks": checks}, status_code=200 if is_ready else 503)

    return [Route("/livez", live, methods=["GET"]), Route("/readyz", ready, methods=["GET"])]


class _Servers:
    """The checks of database and log: at most one at a time, and one in `KEPT_SECONDS`, because anybody may ask and
    each check connects to a broker."""

    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies
        self._checking: asyncio.Task[dict[str, str]] | None = None
        self._kept_until = 0.0

    async def checks(self) -> dict[str, str]:
        """Returns `OK` or the problem of each."""
        is_old = asyncio.get_running_loop().time() >= self._kept_until
        if self._checking is None or (self._checking.done() and is_old):
            self._checking = asyncio.create_task(self._check())
        # A caller that disconnects does not cancel a check that others wait for.
        return await asyncio.shield(self._checking)

    async def _check(self) -> dict[str, str]:
        results = await asyncio.gather(_database(self._dependencies), _log(self._dependencies))
        self._kept_until = asyncio.get_running_loop().time() + KEPT_SECONDS
        return dict(zip(("database", "log"), results, strict=True))


async def _database(dependencies: Dependencies) -> str:
    """Returns the state of the database. Every new connection checks the schema."""
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            await dependencies.database.read(database.ping)
    except SchemaError:
        return "Its schema belongs to another release."
    except DatabaseRefusedError:
        return REFUSED
    except (DatabaseError, TimeoutError):
        return AWAY
    return OK


async def _log(dependencies: Dependencies) -> str:
    topic = TopicNames(dependencies.settings.topic_prefix).frames
    try:
        async with asyncio.timeout(CHECK_SECONDS), broker.connect(dependencies.settings) as brokers:
            return OK if await brokers.find(topic) is not None else "The topic of frames does not exist."
    except (BrokerError, TimeoutError):
        return AWAY
