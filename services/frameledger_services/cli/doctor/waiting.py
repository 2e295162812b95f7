"""Findings of `doctor` about parked conversations, dead letters and the outbox."""

from __future__ import annotations

from collections.abc import AsyncIterator

from frameledger_services.cli.doctor.finding import Finding
from frameledger_services.database_types import Connection
from frameledger_services.store import dead_letters, work_to_do

OLD_OUTBOX_SECONDS = 30.0


async def findings(connection: Connection) -> AsyncIterator[Finding]:
    """Yields all three findings, also if nothing waits."""
    left = await work_to_do.count(connection)
    rejected = await dead_letters.count_not_retried(connection)
    yield Finding(
        "parked",
        "warn" if left.contexts_parked else "ok",
        f"Parked conversations: {left.contexts_parked:,}.",
        "See `frameledger parked`.",
    )
    yield Finding(
        "dead letters",
        "warn" if rejected else "ok",
        f"Dead letters: {rejected:,}.",
        "See `frameledger dlq list`.",
    )
    if left.outbox_oldest_seconds <= OLD_OUTBOX_SECONDS:
        yield Finding("outbox", "ok", "The outbox is empty.")
        return
    least = "At least " if left.outbox == work_to_do.MAX_COUNTED else ""
    yield Finding(
        "outbox",
        "warn",
        f"{least}{left.outbox:,} effects or forwards wait to be published, the oldest for "
        f"{left.outbox_oldest_seconds:,.0f} s.",
        "The projector of their partition publishes them. Check that one is running and that Kafka answers.",
    )
