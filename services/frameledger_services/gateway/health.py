"""`/livez` and `/readyz`: whether the process runs, and whether it is to be sent requests."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from frameledger_services import database
from frameledger_services.gateway.parts import Parts
from frameledger_services.store.connections import DatabaseError
from frameledger_services.store.schema import SchemaError


def routes(parts: Parts) -> list[BaseRoute]:
    """Returns the two routes."""

    async def live(_: Request) -> Response:
        return JSONResponse({"live": True})

    async def ready(_: Request) -> Response:
        """Every connection that is made checks the schema."""
        checks = {"draining": "yes" if parts.stopping.is_set() else "no"}
        try:
            await parts.database.read(database.ping)
            checks["database"] = "ok"
        except (DatabaseError, SchemaError) as error:
            checks["database"] = str(error)
        is_ready = checks == {"draining": "no", "database": "ok"}
        return JSONResponse({"ready": is_ready, "checks": checks}, status_code=200 if is_ready else 503)

    return [Route("/livez", live, methods=["GET"]), Route("/readyz", ready, methods=["GET"])]
