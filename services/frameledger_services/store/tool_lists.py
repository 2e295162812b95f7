"""The tools that conversations advertise: a tool that a model was given, and the lists that changed.

Each function runs one statement on the caller's connection and changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from frameledger.tools import tool_name, tool_names
from frameledger_services.database_types import Connection
from frameledger_services.store.contexts import loads


async def advertised_schema(
    connection: Connection, context_id: str, version: int, function_name: str
) -> dict[str, Any] | None:
    """Returns the function of that name, in its publisher's form, as the context has it at that version; None if it has
    none."""
    cursor = await connection.execute("SELECT setting_at(%s, 'tools', %s)::text", (context_id, version))
    row = await cursor.fetchone()
    tools = loads(row[0]) if row is not None and row[0] is not None else None
    for tool in tools or ():
        is_function = isinstance(tool, dict) and tool.get("type", "function") in ("function", "custom")
        if is_function and tool_name(tool) == function_name:
            return dict(tool)
    return None


async def changed(connection: Connection, seen: Mapping[str, int]) -> list[tuple[str, int, tuple[str, ...]]]:
    """Returns, for each context whose tool list changed after the version that `seen` has for it, the context's id, the
    version of the newest change, and the names of the current tools. A conversation that ended or was erased has no
    tools."""
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
            -- Tools that were set after the end take precedence: the conversation was continued.
            SELECT frames.version, '[]'
            FROM contexts
            JOIN frames USING (context_id)
            WHERE contexts.context_id = asked.context_id AND contexts.ended AND frames.version > asked.seen
                AND frames.type IN ('EndFrame', 'CancelFrame') AND frames.outcome = 'applied'
            UNION ALL
            SELECT version, '[]'
            FROM erasures
            WHERE erasures.context_id = asked.context_id AND version > asked.seen
            ORDER BY version DESC
            LIMIT 1
        ) AS newest
        """,
        (list(seen), list(seen.values())),
    )
    rows = await cursor.fetchall()
    return [(context_id, version, tool_names(loads(value))) for context_id, version, value in rows]
