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
from frameledger_services.gateway.parts import Parts
from frameledger_services.store.connections import DatabaseError
from frameledger_services.store.schema import SchemaError
from frameledger_services.telemetry.health import AWAY, CHECK_SECONDS, OK


def routes(parts: Parts) -> list[BaseRoute]:
    """Returns the two routes."""

    async def live(_: Request) -> Response:
        return JSONResponse({"live": True})

    async def ready(_: Request) -> Response:
        results = await asyncio.gather(_database(parts), _log(parts))
        checks = dict(zip(("database", "log"), results, strict=True))
        checks["draining"] = "yes" if parts.stopping.is_set() else "no"
        is_ready = checks == {"database": OK, "log": OK, "draining": "no"}
        # Anybody may ask, so addresses and what servers say are for `frameledger doctor`.
        return JSONResponse({"ready": is_ready, "checks": checks}, status_code=200 if is_ready else 503)

    return [Route("/livez", live, methods=["GET"]), Route("/readyz", ready, methods=["GET"])]


async def _database(parts: Parts) -> str:
    """Every connection that is made checks the schema."""
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            await parts.database.read(database.ping)
    except SchemaError:
        return "It is of another release."
    except (DatabaseError, TimeoutError):
        return AWAY
    return OK


async def _log(parts: Parts) -> str:
    topic = TopicNames(parts.settings.topic_prefix).frames
    try:
        async with asyncio.timeout(CHECK_SECONDS), broker.connect(parts.settings) as brokers:
            return OK if await brokers.find(topic) is not None else "The topic of frames is not there."
    except (BrokerError, TimeoutError):
        return AWAY
