"""What `doctor` says of conversations that a provider does not take as they are: a client put something into one."""

from __future__ import annotations

from typing import Any

from psycopg import AsyncConnection

from frameledger_services.cli.doctor_finding import Finding
from frameledger_services.cli.frame_words import line

LOOKED_AT = 1_000
"""So many refused runs are looked at, the newest first."""

NAMED = 3

# A later run that was not refused says that the context was put right.
_REFUSED = """
    SELECT refused.context_id, refused.error
    FROM (
        SELECT context_id, requested_version, closed_at, error FROM runs
        WHERE error_code IN ('context_refused', 'unmappable') ORDER BY closed_at DESC LIMIT %(looked_at)s
    ) AS refused
    WHERE NOT EXISTS (
        SELECT FROM runs AS later
        WHERE later.context_id = refused.context_id AND later.requested_version > refused.requested_version
            AND later.status <> 'dropped'
    )
    ORDER BY refused.closed_at DESC
"""


async def finding(connection: AsyncConnection[Any]) -> Finding:
    """How many conversations had their latest run refused for what is in them, and what was said of the newest."""
    rows = await (await connection.execute(_REFUSED, {"looked_at": LOOKED_AT})).fetchall()
    if not rows:
        return Finding("requests", "ok", "No provider refuses what is in a conversation.")
    what = (
        "One conversation is not answered"
        if len(rows) == 1
        else f"{len(rows):,} conversations are not answered"
    )
    named = "; ".join(
        f"{context_id}: {line(error or 'no reason was given')}" for context_id, error in rows[:NAMED]
    )
    return Finding(
        "requests",
        "warn",
        f"{what}, since the provider refuses what is in it as it is. {named}{'; ...' if len(rows) > NAMED else ''}",
        "`frameledger show CONTEXT` shows its messages; what a client put there wrongly (a role that nobody knows, a "
        "part without a form) is replaced with an LLMMessagesUpdateFrame.",
    )
