"""What a provider publishes of the run that it answers, beside the frames that it yields."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar, Token

from frameledger.frames import (
    AnyFrame,
    FunctionCallFromLLM,
    FunctionCallsStartedFrame,
    LLMTextFrame,
    Usage,
)
from frameledger_services.providers.request import Request

Push = Callable[[AnyFrame], Awaitable[None]]

_push: ContextVar[Push] = ContextVar("push_frame")


class Pushing:
    """The part of `LLMService` that publishes frames. Where they go is set for each task: one task answers one run."""

    run_in_parallel: bool
    group_parallel_tools: bool

    def announcement(
        self, request: Request, calls: Sequence[FunctionCallFromLLM]
    ) -> FunctionCallsStartedFrame:
        """The announcement of an answer's calls, with the service's terms and the cancel tools marked as builtin."""
        marked = [
            call.model_copy(update={"builtin": True}) if call.function_name in request.builtin_tools else call
            for call in calls
        ]
        return FunctionCallsStartedFrame(
            function_calls=tuple(marked),
            run_in_parallel=self.run_in_parallel,
            group_parallel_tools=self.group_parallel_tools,
        )

    def pushing_to(self, push: Push) -> Token[Push]:
        """From now on, in this task, `push_frame` publishes with `push`. `stop_pushing` takes the token."""
        return _push.set(push)

    def stop_pushing(self, token: Token[Push]) -> None:
        _push.reset(token)

    async def push_frame(self, frame: AnyFrame, direction: object = None) -> None:
        """Publish a frame of the run that this task answers, with the context's key, its run id and its attempt.

        `direction` is Pipecat's and ignored; a log has one.
        Raises RuntimeError outside of a run: an answer out of band publishes nothing.
        """
        push = _push.get(None)
        if push is None:
            raise RuntimeError(
                f"{frame.name} was pushed outside of a run, and there is nowhere to push it to"
            )
        await push(frame)

    async def push_usage(self, usage: Usage) -> None:
        """Publish the tokens used so far, before the end, which may never come. Does nothing out of band."""
        push = _push.get(None)
        if push is not None:
            await push(LLMTextFrame(text="", usage=usage))

    async def run_function_calls(self, function_calls: Sequence[FunctionCallFromLLM]) -> None:
        """Announce calls of the run that this task answers; its end frame dispatches them. None for an empty list.

        `on_function_calls_started` is called where the announcement is published.
        """
        if function_calls:
            await self.push_frame(
                FunctionCallsStartedFrame(
                    function_calls=tuple(function_calls),
                    run_in_parallel=self.run_in_parallel,
                    group_parallel_tools=self.group_parallel_tools,
                )
            )
