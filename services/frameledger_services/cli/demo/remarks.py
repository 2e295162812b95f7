"""Remarks of the demo on frames of services."""

from __future__ import annotations

from frameledger.frames import (
    AnyFrame,
    FunctionCallInProgressFrame,
    FunctionCallResultFrame,
    FunctionCallResultProperties,
    FunctionCallsStartedFrame,
    LLMFullResponseStartFrame,
    Waiting,
)


def remark(frame: AnyFrame) -> str:
    """Returns an explanation of a service's frame, for readers who do not know its type."""
    match frame:
        case LLMFullResponseStartFrame(attempt=int(attempt)) if attempt > 1:
            return (
                f"The connection to the model was lost. Attempt {attempt} starts over and replaces its text."
            )
        case FunctionCallsStartedFrame(function_calls=calls) if len(calls) > 1:
            return "Two functions in parallel." if len(calls) == 2 else f"{len(calls)} functions in parallel."
        case FunctionCallInProgressFrame(waiting=Waiting(for_=whom)):
            return f"{frame.function_name} waits for a person: {whom}. No process has to run meanwhile."
        case FunctionCallResultFrame(settled_as="ambiguous"):
            return (
                f"A new worker finds {frame.function_name} started and not safe to retry, so it does not run it again. "
                "It is unknown whether it was executed: the call is ambiguous."
            )
        case FunctionCallResultFrame(settled_as="failed"):
            return f"{frame.function_name} failed. The model only learns that it failed; an ErrorFrame has the details."
        case FunctionCallResultFrame(properties=FunctionCallResultProperties(is_final=False)):
            return f"{frame.function_name} continues in the background and reports later."
        case _:
            return ""
