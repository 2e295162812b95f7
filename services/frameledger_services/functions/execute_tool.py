"""The span of a handler: which function ran for which call, for how long, and whether it raised. It contains neither
arguments nor results."""

from __future__ import annotations

from frameledger_services.functions.call_frames import CallAttempt
from frameledger_services.functions.execution import HandlerEnd, NotBegun, Raised, Stopped
from frameledger_services.telemetry import names, tracing
from frameledger_services.telemetry.message_spans import of_context
from frameledger_services.telemetry.tracing import Span


def execute_tool(call: CallAttempt) -> Span:
    """Begins the span of a call's handler."""
    if not tracing.is_possible():
        return tracing.start(names.EXECUTE_TOOL, "internal")
    return tracing.start(
        f"{names.EXECUTE_TOOL} {call.function_name}",
        "internal",
        attributes={
            names.GEN_AI_OPERATION_NAME: names.EXECUTE_TOOL,
            names.GEN_AI_TOOL_NAME: call.function_name,
            names.GEN_AI_TOOL_TYPE: "function",
            names.GEN_AI_TOOL_CALL_ID: call.tool_call_id,
            **of_context(call.context_id, call.requested_version),
        },
    )


def end_of(span: Span, ended: HandlerEnd) -> None:
    """End the span as the handler ended. A handler that did not begin has no span."""
    match ended:
        case NotBegun():
            return
        case Raised(summary):
            span.fail(summary.partition(":")[0])
        case Stopped():
            span.set(names.INTERRUPTED, True)
    span.end()
