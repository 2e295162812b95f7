"""Findings of `doctor` about work: unclaimed runs and calls, calls that need attention, and the timekeeper."""

from __future__ import annotations

from collections.abc import AsyncIterator

from frameledger_services import claims
from frameledger_services.claims import NeedsAttention, OpenWork, Unserved
from frameledger_services.cli.doctor.finding import Finding
from frameledger_services.cli.terminal.plural import plural
from frameledger_services.database_types import Connection


async def findings(connection: Connection) -> AsyncIterator[Finding]:
    """Yields all findings: unclaimed runs by model, unclaimed calls by function, and the others."""
    runs = await claims.unserved_runs(connection)
    for run in runs:
        yield _of_runs(run)
    if not runs:
        yield Finding("runs", "ok", "No run waits for an inference service.")
    calls = await claims.unserved_calls(connection)
    for call in calls:
        yield _of_calls(call)
    if not calls:
        yield Finding("calls", "ok", "No call waits for a function service.")
    for left in await claims.calls_needing_attention(connection):
        yield _of_left(left)
    yield _timekeeper(await claims.open_work(connection))


def _of_runs(unserved: Unserved) -> Finding:
    waits = _waits(unserved, "run")
    if unserved.name is None:
        return Finding(
            "runs",
            "fail",
            f"{waits}, and no inference service is running.",
            "Start one: `frameledger run inference`. The log of the last one says why it stopped.",
        )
    return Finding(
        "runs",
        "fail",
        f"{waits} for the model {unserved.name}, and no running inference service serves it.",
        "Start one: `frameledger run inference`. Without --models it serves all models.",
    )


def _of_calls(unserved: Unserved) -> Finding:
    return Finding(
        "calls",
        "fail",
        f"{_waits(unserved, 'call')} for the function {unserved.name}, and no running function service has it.",
        "Start one that has it: `frameledger run functions --module ...`. The log of the last one says why it stopped.",
    )


def _of_left(left: NeedsAttention) -> Finding:
    is_single = left.count == 1
    oldest = (
        f"{_age(left.oldest_secs)}{'' if is_single else ' at most'}: {left.tool_call_id} of {left.context_id}"
    )
    calls = "One call" if is_single else f"{left.count:,} calls"
    if left.why == "lost":
        return Finding(
            "calls",
            "warn",
            f"{calls} lost {'its' if is_single else 'their'} worker while running, for {oldest}.",
            "A function service takes it over, or the timekeeper settles it: run both.",
        )
    if left.why == "waiting":
        return Finding(
            "calls",
            "warn",
            f"{calls} {'waits' if is_single else 'wait'} for a person, for {oldest}.",
            "`frameledger calls list` shows for whom, and the command that answers it.",
        )
    return Finding(
        "calls",
        "warn",
        f"{calls} {'is' if is_single else 'are'} ambiguous, for {oldest}. It is unknown whether it was executed.",
        "Look up the idempotency key that `frameledger calls list` shows, and record the result with its command.",
    )


def _age(seconds: float) -> str:
    for unit, name in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:,.0f} {name}"
    return f"{seconds:,.0f} s"


def _waits(unserved: Unserved, noun: str) -> str:
    if unserved.count == 1:
        return f"One {noun} has waited {unserved.oldest_secs:,.0f} s"
    return f"{unserved.count:,} {noun}s have waited up to {unserved.oldest_secs:,.0f} s"


def _timekeeper(work: OpenWork) -> Finding:
    counts = {"run": work.runs, "call": work.calls, "speaker": work.speakers}
    shown = ", ".join(plural(count, what) for what, count in counts.items() if count)
    if work.timekeepers:
        who = "1 timekeeper is" if work.timekeepers == 1 else f"{work.timekeepers} timekeepers are"
        return Finding("timekeeper", "ok", f"{who} running.")
    if not shown:
        return Finding(
            "timekeeper", "ok", "No timekeeper is running, and nothing is open that it could close."
        )
    return Finding(
        "timekeeper",
        "warn",
        f"No timekeeper is running: the timeouts of {shown} are not enforced.",
        "Start one: `frameledger run timekeeper`, or everything: `frameledger up`.",
    )
