"""The span of a batch. Only a batch with a frame whose trace is recorded has one; single frames have none."""

from __future__ import annotations

from collections.abc import Sequence

from frameledger.frames import AnyFrame
from frameledger.frames.response import LLMThoughtTextFrame, TextFrame
from frameledger.record import LoggedFrame
from frameledger_services.projector.decoded import DecodedRecord
from frameledger_services.projector.rows import Rows
from frameledger_services.telemetry import names, tracing
from frameledger_services.telemetry.message_spans import of_context, processing
from frameledger_services.telemetry.tracing import Span

MAX_LINKS = 32


def batch_span(topic: str, group: str, batch: Sequence[DecodedRecord]) -> Span:
    """Begins the span of a batch, if it is to be recorded.

    If the recorded frames belong to one trace, the span is in that trace, below that of the first frame. If they belong
    to several, it has a trace of its own, with links to them. A piece of text alone does not begin a span: an answer
    has hundreds.
    """
    if not tracing.is_possible():
        return Span(None)
    # A frame whose trace is not recorded costs nothing beyond this.
    sampled = [
        logged
        for _, logged in batch
        if isinstance(logged, LoggedFrame) and tracing.is_sampled(logged.traceparent)
    ]
    by_trace: dict[str, LoggedFrame] = {}
    for logged in sampled:
        if not _is_piece(logged.frame):
            by_trace.setdefault(logged.trace_id or "", logged)
    if not by_trace:
        return Span(None)
    count = {names.MESSAGING_BATCH_MESSAGE_COUNT: len(batch)}
    first, *others = by_trace.values()
    if not others:
        return processing(topic, group, first.traceparent, count | of_context(first.context_id))
    links = tuple(one.traceparent or "" for one in by_trace.values())
    return processing(topic, group, None, count, links=links[:MAX_LINKS])


def note_outcomes(span: Span, parts: Sequence[Rows]) -> None:
    """Record the outcomes of the frames on the span."""
    if span.is_recording:
        outcomes = [frame.outcome for part in parts for frame in part.frames]
        span.set(names.BATCH_APPLIED, outcomes.count("applied"))
        span.set(names.BATCH_IGNORED, outcomes.count("ignored"))


def _is_piece(frame: AnyFrame) -> bool:
    return isinstance(frame, TextFrame | LLMThoughtTextFrame) and frame.type not in _COMPLETE_TEXTS


_COMPLETE_TEXTS = {"TranscriptionFrame"}
"""Types of text frames that have a complete text."""
