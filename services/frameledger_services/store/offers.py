"""The tools that live function workers offer, as a model is told of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from psycopg import AsyncConnection


async def tools_on_offer(
    connection: AsyncConnection[Any], services: Sequence[str] | None = None
) -> dict[str, dict[str, Any]]:
    """The tools by name, in OpenAI's form, of all services or of these. Functions without a schema are left out.

    Of two workers that offer one name the younger one's is taken.
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
    found: dict[str, dict[str, Any]] = {}
    for (text,) in await cursor.fetchall():
        for offer in json.loads(text).get("functions", ()):
            if offer.get("schema") is not None:
                found[offer["name"]] = offer["schema"]
    return dict(sorted(found.items()))
