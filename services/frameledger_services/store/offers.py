"""The functions that live workers offer: their tools, and those whose calls a model may cancel."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from frameledger_services.cancel_tools import PREFIX
from frameledger_services.database_types import Connection


async def tools_on_offer(
    connection: Connection, services: Sequence[str] | None = None
) -> dict[str, dict[str, Any]]:
    """Returns the tools by name, in OpenAI's form, of all services or of these. Functions without a schema are omitted.

    If two workers offer one name, the tool of the younger worker is returned.
    """
    cursor = await connection.execute(
        """
        SELECT worker.offers::text
        FROM live_workers() AS worker
        WHERE worker.kind = 'functions' AND (%(services)s::text[] IS NULL OR worker.service = ANY (%(services)s))
        ORDER BY worker.started_at
        """,
        {"services": None if services is None else list(services)},
    )
    schemas: dict[str, dict[str, Any]] = {}
    for (text,) in await cursor.fetchall():
        for offer in json.loads(text).get("functions", ()):
            if offer.get("schema") is not None:
                schemas[offer["name"]] = offer["schema"]
    return dict(sorted(schemas.items()))


async def cancellable_functions(connection: Connection) -> list[str]:
    """Returns the functions whose calls a model may cancel with a built-in tool, sorted. If an application itself
    serves a function with the name of that tool, advertised or not, the application's function takes precedence."""
    cursor = await connection.execute(
        f"""
        SELECT DISTINCT function_name
        FROM offered_functions()
        WHERE (options ->> 'cancellable_by_llm')::boolean AND NOT (options ->> 'cancel_on_interruption')::boolean
            AND NOT EXISTS (
                SELECT FROM live_workers() AS own
                WHERE own.kind = 'functions' AND '{PREFIX}' || function_name = ANY (own.serves)
            )
        ORDER BY function_name
        """
    )
    return [name for (name,) in await cursor.fetchall()]
