"""An endless conversation, for measurements that should not depend on its length."""

from __future__ import annotations

from collections.abc import Iterator

from frameledger.fold import Folding
from frameledger.frames import (
    AnyFrame,
    FunctionCallFromLLM,
    FunctionCallInProgressFrame,
    FunctionCallResultFrame,
    FunctionCallsStartedFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    TranscriptionFrame,
    UserStartedSpeakingFrame,
    UserStoppedSpeakingFrame,
)


def talking(folding: Folding) -> Iterator[AnyFrame]:
    """Yields frames without end, each folded before it is yielded; all of them are applied.

    The user asks, the model calls a function and answers with its result, and so on: five messages in thirty frames.
    The conversation must not have an open run at the start.
    """
    for frame in _frames(folding):
        folding.step(frame)
        yield frame


def _frames(folding: Folding) -> Iterator[AnyFrame]:
    count = 0
    while True:
        count += 1
        call, day = f"call-{count}", {"day": count}
        yield UserStartedSpeakingFrame(id=f"{count}-start")
        yield TranscriptionFrame(id=f"{count}-words", text="And what about the day after that?")
        yield UserStoppedSpeakingFrame(id=f"{count}-stop")
        asking = FunctionCallFromLLM(function_name="look_up", tool_call_id=call, arguments=day)
        yield from _response(folding, f"{count}-a", "One moment, I am looking that up", asking)
        yield FunctionCallInProgressFrame(
            id=f"{count}-call",
            tool_call_id=call,
            function_name="look_up",
            arguments=day,
            cancel_on_interruption=True,
            call_attempt=1,
        )
        yield FunctionCallResultFrame(
            id=f"{count}-result",
            tool_call_id=call,
            function_name="look_up",
            arguments=day,
            result={"planned": []},
            call_attempt=1,
        )
        yield from _response(folding, f"{count}-b", "On that day nothing is planned so far, I am glad to say")


def _response(
    folding: Folding, name: str, text: str, asking: FunctionCallFromLLM | None = None
) -> Iterator[AnyFrame]:
    """Returns the frames with which an inference service answers the open run."""
    run = folding.state.runs.open
    if run is None:
        raise RuntimeError("no run is open that this could answer")
    run_id = run.run_id
    yield LLMFullResponseStartFrame(id=f"{name}-start", run_id=run_id, attempt=1)
    for place, word in enumerate(text.split()):
        yield LLMTextFrame(id=f"{name}-{place}", text=f" {word}", run_id=run_id, attempt=1)
    if asking is not None:
        yield FunctionCallsStartedFrame(
            id=f"{name}-calls", function_calls=(asking,), run_id=run_id, attempt=1
        )
    yield LLMFullResponseEndFrame(id=f"{name}-end", run_id=run_id, attempt=1)
