"""Handlers that came with a context's tools leave when a folded tool list omits them (semantics 5.1), or when the
conversation ends: a process that outlives many conversations does not keep the tools of all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import structlog
from psycopg import AsyncConnection

from frameledger.tools import tool_names
from frameledger_services.functions.registry import FunctionRegistry
from frameledger_services.store.connections import Connections, DatabaseError
from frameledger_services.store.contexts import loads

LOOK_SECONDS = 1.0
"""Between two looks. A call that comes meanwhile is still served: the model asked when it still had the tool."""

_log = structlog.get_logger("functions")


class Advertised:
    """Follows the tool lists of the contexts whose tools brought handlers to a registry."""

    def __init__(self, registry: FunctionRegistry, reading: Connections) -> None:
        self._registry = registry
        self._reading = reading
        self._seen: dict[str, int] = {}
        self._publishing: set[str] = set()

    def publishing(self, context_id: str) -> None:
        """A new list is on its way: until it is folded, the one that is in force says nothing."""
        self._publishing.add(context_id)

    def published(self, context_id: str, version: int) -> None:
        """It was folded at that version; what is older than that does not count."""
        self._seen[context_id] = max(version, self._seen.get(context_id, 0))
        self._publishing.discard(context_id)

    def not_published(self, context_id: str) -> None:
        """It is not on the log, or nobody folds it: the list that is in force counts."""
        self._publishing.discard(context_id)

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            followed = self._registry.advertising() - self._publishing
            self._seen = {key: seen for key, seen in self._seen.items() if key in followed | self._publishing}
            if followed:
                try:
                    await self._look({context_id: self._seen.get(context_id, 0) for context_id in followed})
                except DatabaseError as error:
                    _log.warning("cannot follow the tool lists of contexts", error=str(error))
            await asyncio.sleep(LOOK_SECONDS)

    async def _look(self, seen: Mapping[str, int]) -> None:
        for context_id, version, names in await self._reading.read(_changed, seen):
            # What was asked for may be older than what was set meanwhile.
            if context_id not in self._publishing and version > self._seen.get(context_id, 0):
                self._seen[context_id] = version
                self._registry.keep_advertised(context_id, names)


async def _changed(
    connection: AsyncConnection[Any], seen: Mapping[str, int]
) -> list[tuple[str, int, tuple[str, ...]]]:
    cursor = await connection.execute(
        """
        SELECT asked.context_id, newest.version, newest.tools
        FROM unnest(%s::text[], %s::bigint[]) AS asked (context_id, seen)
        CROSS JOIN LATERAL (
            (
                SELECT valid_from AS version, value::text AS tools
                FROM context_settings
                WHERE context_settings.context_id = asked.context_id AND name = 'tools' AND valid_from > asked.seen
                ORDER BY valid_from DESC
                LIMIT 1
            )
            UNION ALL
            -- The end of the conversation, unless tools were set after it, for one that is going to go on.
            SELECT frames.version, '[]'
            FROM contexts
            JOIN frames USING (context_id)
            WHERE contexts.context_id = asked.context_id AND contexts.ended AND frames.version > asked.seen
                AND frames.type IN ('EndFrame', 'CancelFrame') AND frames.outcome = 'applied'
            ORDER BY version DESC
            LIMIT 1
        ) AS newest
        """,
        (list(seen), list(seen.values())),
    )
    rows = await cursor.fetchall()
    return [(context_id, version, tool_names(loads(value))) for context_id, version, value in rows]
