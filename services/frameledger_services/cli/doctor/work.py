"""What `doctor` says of work: unclaimed runs and calls, and whether a timekeeper ends what is overdue."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from psycopg import AsyncConnection

from frameledger_services import claims
from frameledger_services.claims import NeedsAttention, OpenWork, Unserved
from frameledger_services.cli.doctor.finding import Finding
from frameledger_services.cli.terminal.plural import plural

Connection = AsyncConnection[Any]


async def findings(connection: Connection) -> AsyncIterator[Finding]:
    """Yields all of them: unclaimed runs by the model, and unclaimed calls by the function, that they wait for."""
    runs = await claims.unserved_runs(connection)
    for run in runs:
        yield _of_runs(run)
    if not runs:
        yield Finding("runs", "ok", "No run waits for an inference service that is not there.")
    calls = await claims.unserved_calls(connection)
    for call in calls:
        yield _of_calls(call)
    if not calls:
        yield Finding("calls", "ok", "No call waits for a function that is not there.")
    for left in await claims.calls_needing_attention(connection):
        yield _of_left(left)
    yield _timekeeper(await claims.open_work(connection))


def _of_runs(unserved: Unserved) -> Finding:
    waits = _waits(unserved, "run")
    if unserved.name is None:
        return Finding(
            "runs",
            "fail",
            f"{waits}, and no inference service lives.",
            "Start one: `frameledger run inference`; its log says why it ended.",
        )
    return Finding(
        "runs",
        "fail",
        f"{waits} for the model {unserved.name}, and no inference service that lives serves that.",
        "Start one: `frameledger run inference`; --models says which ones it serves, all if none are named.",
    )


def _of_calls(unserved: Unserved) -> Finding:
    return Finding(
        "calls",
        "fail",
        f"{_waits(unserved, 'call')} for the function {unserved.name}, and no function service that lives has that.",
        "Start the one that does: `frameledger run functions --module ...`; its log says why it ended.",
    )


def _of_left(left: NeedsAttention) -> Finding:
    one = left.count == 1
    oldest = f"{_age(left.oldest_secs)}{'' if one else ' at most'}: {left.tool_call_id} of {left.context_id}"
    calls = "One call" if one else f"{left.count:,} calls"
    if left.why == "lost":
        return Finding(
            "calls",
            "warn",
            f"{calls} had begun, and the worker is gone that ran {'it' if one else 'them'}, for {oldest}.",
            "A function service that serves it takes it over, or a timekeeper settles it: run them both.",
        )
    if left.why == "waiting":
        return Finding(
            "calls",
            "warn",
            f"{calls} {'waits' if one else 'wait'} for a person, for {oldest}.",
            "`frameledger calls list` says for whom, and how to answer.",
        )
    return Finding(
        "calls",
        "warn",
        f"{calls} {'is' if one else 'are'} ambiguous, for {oldest}. Nobody knows whether it happened.",
        "Find out, with the idempotency key that `frameledger calls list` shows, and say so as it shows.",
    )


def _age(seconds: float) -> str:
    for unit, name in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:,.0f} {name}"
    return f"{seconds:,.0f} s"


def _waits(unserved: Unserved, what: str) -> str:
    if unserved.count == 1:
        return f"One {what} has waited {unserved.oldest_secs:,.0f} s"
    return f"{unserved.count:,} {what}s have waited up to {unserved.oldest_secs:,.0f} s"


def _timekeeper(work: OpenWork) -> Finding:
    counts = {"run": work.runs, "call": work.calls, "speaker": work.speakers}
    shown = ", ".join(plural(count, what) for what, count in counts.items() if count)
    if work.timekeepers:
        who = "One lives" if work.timekeepers == 1 else f"{work.timekeepers} live"
        return Finding("timekeeper", "ok", f"{who}.")
    if not shown:
        return Finding("timekeeper", "ok", "None lives, and nothing is open that one could end.")
    return Finding(
        "timekeeper",
        "warn",
        f"None lives, and open are: {shown}. What is overdue of them is not ended by anybody.",
        "Start one: `frameledger run timekeeper`, or everything with `frameledger up`.",
    )
