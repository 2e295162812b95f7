"""Conversations that call a function as a model would, without a model."""

from __future__ import annotations

from frameledger.fold import Conversation, Folding
from frameledger.frames import (
    AnyFrame,
    FunctionCallFromLLM,
    FunctionCallsStartedFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
)
from frameledger.ids import ContextId
from frameledger_services.bench.scene import turn

CALLING = (
    "frameledger_services",
    "run",
    "functions",
    "--module",
    "frameledger_services.bench.functions.tools",
)


def asking(context_id: str, function_name: str) -> list[AnyFrame]:
    """Returns the frames of a new conversation, up to the one that dispatches one call without arguments."""
    folding = Folding(Conversation.new(ContextId(context_id)))
    request = turn(f"Please, {function_name}.")
    for number, frame in enumerate(request):
        folding.step(frame.model_copy(update={"id": f"{context_id}-{number}"}))
    run = folding.state.runs.open
    assert run is not None, "a turn with words opens a run"
    call = FunctionCallFromLLM(function_name=function_name, tool_call_id=f"{context_id}-call", arguments={})
    return [
        *request,
        LLMFullResponseStartFrame(run_id=run.run_id, attempt=1),
        FunctionCallsStartedFrame(function_calls=(call,), run_id=run.run_id, attempt=1),
        LLMFullResponseEndFrame(run_id=run.run_id, attempt=1),
    ]
