"""The span of a job, and the ids that are added to every log line within it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from frameledger_services import logs
from frameledger_services.claims import Claimed, ClaimedCall, ClaimedRun
from frameledger_services.telemetry import names
from frameledger_services.telemetry.message_spans import of_context, processing
from frameledger_services.telemetry.tracing import Span, Value

STALE_SECONDS = 300.0
"""Work that was requested longer ago than this gets a trace of its own: a trace that lasts an hour is not readable."""


@dataclass(frozen=True, slots=True)
class WorkSource:
    """Where a worker's work arrives."""

    topic: str
    group: str


@contextmanager
def job_span(claimed: Claimed, source: WorkSource, worker_id: str) -> Iterator[Span]:
    """Yields the span of a job, which is current within the block: a child of the span that requested the work, or in a
    new trace with a link to that span, if the work is old or was another worker's before."""
    with (
        logs.bound(**_ids(claimed)),
        processing(
            source.topic,
            source.group,
            claimed.traceparent,
            of_context(claimed.context_id, claimed.version)
            | {names.WORKER_ID: worker_id, names.QUEUE_SECONDS: round(claimed.age_secs, 3)}
            | _attributes(claimed),
            new_trace=claimed.taken_over or claimed.age_secs > STALE_SECONDS,
        ) as span,
    ):
        yield span


def _attributes(claimed: Claimed) -> dict[str, Value | None]:
    match claimed:
        case ClaimedRun():
            return {
                names.RUN_ID: claimed.run_id,
                names.RUN_ATTEMPT: claimed.attempt,
                names.RUN_TRIGGER: claimed.trigger,
            }
        case ClaimedCall():
            return {
                names.RUN_ID: claimed.run_id,
                names.GEN_AI_TOOL_CALL_ID: claimed.tool_call_id,
                names.GEN_AI_TOOL_NAME: claimed.function_name,
                names.CALL_ATTEMPT: claimed.call_attempt,
            }
    return {}


def _ids(claimed: Claimed) -> dict[str, str | int | None]:
    ids: dict[str, str | int | None] = {"context_id": claimed.context_id, "version": claimed.version}
    if isinstance(claimed, ClaimedRun | ClaimedCall):
        ids["run_id"] = claimed.run_id
    if isinstance(claimed, ClaimedCall):
        ids["tool_call_id"] = claimed.tool_call_id
    return ids
