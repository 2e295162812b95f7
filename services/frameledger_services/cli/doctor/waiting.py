"""What `doctor` says of what was set aside, and of what was decided and is not on Kafka yet."""

from __future__ import annotations

from collections.abc import Iterator

from frameledger_services.cli.doctor.finding import Finding
from frameledger_services.store.queries import Waiting

OLD_OUTBOX_SECONDS = 30.0


def findings(left: Waiting) -> Iterator[Finding]:
    """All of them, also those that say that nothing waits."""
    yield Finding(
        "parked",
        "warn" if left.parked else "ok",
        f"Parked conversations: {left.parked:,}.",
        "`frameledger parked` says why.",
    )
    yield Finding(
        "dead letters",
        "warn" if left.rejected else "ok",
        f"Records set aside: {left.rejected:,}.",
        "`frameledger dlq list` says why.",
    )
    if left.outbox_seconds <= OLD_OUTBOX_SECONDS:
        yield Finding("outbox", "ok", "What was decided is on Kafka.")
        return
    yield Finding(
        "outbox",
        "warn",
        f"{left.outbox:,} effects or forwards wait to be published, the oldest for {left.outbox_seconds:,.0f} s.",
        "A projector publishes them when it takes their partition: is one running, and does Kafka answer?",
    )
