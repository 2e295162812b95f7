"""The spans of messages: publishing frames and processing effects."""

from __future__ import annotations

from collections.abc import Mapping

from frameledger_services.telemetry import names, tracing
from frameledger_services.telemetry.tracing import Span, Value

SYSTEM = "kafka"


def of_context(context_id: str, version: int | None = None) -> dict[str, Value | None]:
    """Returns the attributes that identify a conversation."""
    return {
        names.GEN_AI_CONVERSATION_ID: context_id,
        names.SESSION_ID: context_id,
        names.CONTEXT_VERSION: version,
    }


def sending(topic: str, context_id: str, count: int, traceparent: str | None) -> Span:
    """Start the span of a publish, a child of `traceparent` or else of the current span."""
    if not tracing.is_possible():
        return tracing.start(names.SEND, "producer", parent=traceparent)
    attributes = _of_topic(topic, names.SEND) | of_context(context_id)
    if count > 1:
        attributes[names.MESSAGING_BATCH_MESSAGE_COUNT] = count
    return tracing.start(f"{names.SEND} {topic}", "producer", parent=traceparent, attributes=attributes)


def processing(
    topic: str,
    group: str,
    traceparent: str | None,
    attributes: Mapping[str, Value | None],
    *,
    new_trace: bool = False,
    links: tuple[str, ...] = (),
) -> Span:
    """Start the span of processing a message of this topic, a child of `traceparent`, or with `new_trace` in a new
    trace with a link to it. Without `traceparent` it is in a new trace, because the current span belongs to another
    message."""
    if not tracing.is_possible():
        return Span(traceparent)
    return tracing.start(
        f"{names.PROCESS} {topic}",
        "consumer",
        parent=traceparent,
        new_trace=new_trace or traceparent is None,
        links=links,
        attributes=_of_topic(topic, names.PROCESS)
        | {names.MESSAGING_CONSUMER_GROUP_NAME: group}
        | dict(attributes),
    )


def settling(
    context_id: str, call_id: str, function: str, of_call: str | None, parent: str | None = None
) -> Span:
    """Start the span of settling a call: in a new trace, or as a child of `parent`, with a link to `of_call`, the trace
    of the call, which ended earlier."""
    if not tracing.is_possible():
        return Span(parent)
    return tracing.start(
        f"{names.SETTLE_CALL} {function}",
        "internal",
        parent=parent,
        new_trace=parent is None,
        links=() if of_call is None else (of_call,),
        attributes=of_context(context_id)
        | {names.GEN_AI_TOOL_CALL_ID: call_id, names.GEN_AI_TOOL_NAME: function},
    )


def _of_topic(topic: str, operation: str) -> dict[str, Value | None]:
    return {
        names.MESSAGING_SYSTEM: SYSTEM,
        names.MESSAGING_OPERATION_NAME: operation,
        names.MESSAGING_OPERATION_TYPE: operation,
        names.MESSAGING_DESTINATION_NAME: topic,
    }
