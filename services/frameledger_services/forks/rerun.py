"""Reruns: calls a model again at a recorded version of a conversation, without repeating any effect.

A rerun is a separate conversation, an *experiment*: a fork of the moment with `metadata.experiment` in its context
frame, so that lists omit it. The new answer of the model is published there, so it can be read, shown and verified like
any other.

**Isolation.** No function worker ever receives a call of a rerun, and no inference worker its runs. That does not
depend on careful code: the experiment is a *recording* (`react: false`, rule RA5.recording). The fold emits no effects
for a recording, so nothing reaches the outbox, the topics that workers read, or their claims. The alternative would be
to dispatch calls and claim them before a worker does. That is a race: lost once, it can repeat a payment. So the model
is called in this process, with the provider's own adapter; calls are announced without a run id, which by RA5.commit
are never dispatched; and they get recorded results.

**Results.** A call gets the recorded result of the same function with equal arguments, each result once, in the order
of the original calls. Any other call is answered `not available in a rerun`, and listed. A call that ran in the
background in the original is answered at once, like all others: a rerun does not compare how a model waits.

**The context** is the one that the model saw: unlike in a fork, calls that were running are not cancelled in it,
because a text about that would be an artificial difference. With the same provider and settings the first request
equals the recorded one byte for byte, except for cancel tools, which are not offered.

**Causes.** The cause of the first request is the opening, that of a call's start its announcement, that of its result
its start, and that of the next request the newest result. So the causes of every frame of an experiment lead to the
fork.

If the process dies, the experiment ends at that point: nothing waits for it, and a new rerun is a new experiment.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

from frameledger.fold import Conversation, Folding
from frameledger.frames import (
    AnyFrame,
    ErrorFrame,
    FunctionCallFromLLM,
    FunctionCallInProgressFrame,
    FunctionCallResultFrame,
    FunctionCallsStartedFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    Usage,
)
from frameledger_services.client import forking
from frameledger_services.forks.answer import AnswerCall, ModelAnswer, UsedTokens
from frameledger_services.forks.original import Original
from frameledger_services.forks.recorded_results import NOT_AVAILABLE, RecordedResults
from frameledger_services.forks.rerun_model import Changes, ModelOutput, RerunModel
from frameledger_services.providers.errors import ProviderError
from frameledger_services.providers.out_of_band import OutOfBand

MAX_REQUESTS = 10
"""Maximum requests of a rerun. A model that still calls functions after that is stopped, and the answer says so."""

Publish = Callable[[str, Sequence[AnyFrame], str | None], Awaitable[object]]
"""Publishes frames of a conversation, given the id of the frame that caused them."""


class Rerunner:
    """Calls a model again at recorded versions, many concurrently. `clock` returns seconds."""

    def __init__(
        self, inference: OutOfBand, changes: Changes, publish: Publish, clock: Callable[[], float]
    ) -> None:
        self._model = RerunModel(inference, changes, clock)
        self._publish = publish

    async def rerun(self, original: Original) -> ModelAnswer:
        """Call the model once. If the provider fails, the answer has the error. Raises `ForkRefusedError` for a context
        that is too large for a frame, before anything is sent or published, and what publishing raises."""
        experiment = _Experiment(self._model, self._publish, original, f"rerun-{secrets.token_hex(6)}")
        return await experiment.run()


class _Experiment:
    """A rerun in progress."""

    def __init__(self, model: RerunModel, publish: Publish, original: Original, context_id: str) -> None:
        self._model = model
        self._publish = publish
        self._original = original
        self._context_id = context_id
        self._results = RecordedResults(original.calls)
        self._folding = Folding(Conversation.new(context_id))
        self._opening = model.opening(original)
        self._answers: dict[int, str | None] = {}
        # The cause of the next request: the opening, and then the newest result of a call.
        self._cause: str | None = None
        self._answer = ModelAnswer(context_id=context_id)

    async def run(self) -> ModelAnswer:
        forking.check_size(self._opening, self._original.origin)
        [self._cause] = await self._append([self._opening], None)
        positions = [position for position, _ in self._folding.messages.rows()]
        self._answers = dict(zip(positions, self._original.stored.answers, strict=False))
        try:
            for _ in range(MAX_REQUESTS):
                if not await self._request():
                    return self._answer
        except ProviderError as error:
            sentence = self._model.without_secrets(str(error))
            await self._append([ErrorFrame(message=sentence, code=error.code, fatal=True)], self._cause)
            return replace(self._answer, error=sentence)
        return replace(self._answer, error=f"It still called functions after {MAX_REQUESTS} requests.")

    async def _request(self) -> bool:
        """Send the next request. Returns whether the answer has calls, whose results the model has to see."""
        rows = self._folding.messages.rows()
        answers = [self._answers.get(position) for position, _ in rows]
        request = self._model.request(self._folding, self._original, answers)
        self._answer = replace(
            self._answer,
            provider=request.provider,
            model=request.model,
            requests=self._answer.requests + 1,
        )
        output = await self._model.ask(request)
        start = LLMFullResponseStartFrame(
            provider=request.provider, model=request.model, request_sha256=request.sha256
        )
        frames, calls = self._renamed([start, *output.frames])
        ids = await self._append(frames, self._cause)
        announced = {
            call.tool_call_id: id_
            for id_, frame in zip(ids, frames, strict=True)
            if isinstance(frame, FunctionCallsStartedFrame)
            for call in frame.function_calls
        }
        for call in calls:
            beginning, result = self._answer_call(call)
            [began] = await self._append([beginning], announced[call.tool_call_id])
            [self._cause] = await self._append([result], began)
        for position, message in self._folding.messages.rows()[len(rows) :]:
            if message.get("role") != "tool":
                self._answers[position] = f"request {self._answer.requests}"
        self._note(output)
        return bool(calls)

    def _renamed(self, frames: Sequence[AnyFrame]) -> tuple[list[AnyFrame], list[FunctionCallFromLLM]]:
        """Returns the frames with ids of calls that are unique in the experiment, and the calls."""
        renamed: list[AnyFrame] = []
        calls: list[FunctionCallFromLLM] = []
        for frame in frames:
            if isinstance(frame, FunctionCallsStartedFrame):
                for call in frame.function_calls:
                    number = len(self._answer.calls) + len(calls) + 1
                    name = f"call_{self._context_id.removeprefix('rerun-')}_{number}"
                    calls.append(call.model_copy(update={"tool_call_id": name}))
                frame = frame.model_copy(update={"function_calls": tuple(calls)})
            renamed.append(frame)
        return renamed, calls

    def _answer_call(self, call: FunctionCallFromLLM) -> tuple[AnyFrame, AnyFrame]:
        """Returns the start and the result of a call, and records how it was answered."""
        recorded = self._results.take(call.function_name, call.arguments)
        noted = AnswerCall(
            call.function_name, call.arguments, "not available" if recorded is None else "recorded"
        )
        self._answer = replace(self._answer, calls=(*self._answer.calls, noted))
        named: dict[str, Any] = {
            "function_name": call.function_name,
            "tool_call_id": call.tool_call_id,
            "arguments": call.arguments,
        }
        return (
            FunctionCallInProgressFrame(**named, cancel_on_interruption=True),
            FunctionCallResultFrame(
                **named,
                result=NOT_AVAILABLE if recorded is None else recorded.result,
                settled_as="failed" if recorded is None or recorded.status == "failed" else None,
                run_llm=False,
            ),
        )

    def _note(self, output: ModelOutput) -> None:
        """Add the output of a request to the answer."""
        before = self._answer
        text = "".join(frame.text for frame in output.frames if isinstance(frame, LLMTextFrame)).strip()
        first = before.first_text_seconds
        if first is None and output.first_text_seconds is not None:
            first = (before.seconds or 0.0) + output.first_text_seconds
        usage = next((f.usage for f in output.frames if isinstance(f, LLMFullResponseEndFrame)), None)
        self._answer = replace(
            before,
            text="\n".join(one for one in (before.text, text) if one),
            tokens=before.tokens + _tokens(usage),
            seconds=(before.seconds or 0.0) + output.seconds,
            first_text_seconds=first,
        )

    async def _append(self, frames: Sequence[AnyFrame], cause: str | None) -> list[str]:
        """Fold frames like a projector, and publish them. Returns their ids."""
        ids = [str(uuid4()) for _ in frames]
        named = [frame.model_copy(update={"id": id_}) for frame, id_ in zip(frames, ids, strict=True)]
        for one in named:
            self._folding.step(one)
        await self._publish(self._context_id, named, cause)
        return ids


def _tokens(usage: Usage | None) -> UsedTokens:
    if usage is None:
        return UsedTokens()
    return UsedTokens(
        usage.input_tokens, usage.output_tokens, usage.cache_read_tokens, usage.cache_write_tokens
    )
