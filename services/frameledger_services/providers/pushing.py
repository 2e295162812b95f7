"""Publishing frames of a run from within a provider, in addition to the frames that it yields."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar, Token

from frameledger.frames import AnyFrame, FunctionCallFromLLM, FunctionCallsStartedFrame, LLMTextFrame, Usage
from frameledger_services.providers.request import Request

Push = Callable[[AnyFrame], Awaitable[None]]

_push: ContextVar[Push] = ContextVar("push_frame")


class Pushing:
    """The part of `LLMService` that publishes frames. Each task has its own destination: one task answers one run."""

    run_in_parallel: bool
    group_parallel_tools: bool

    def announcement(
        self, request: Request, calls: Sequence[FunctionCallFromLLM]
    ) -> FunctionCallsStartedFrame:
        """Returns the announcement of an answer's calls, with the options of the service. Calls of cancel tools are
        marked as built in."""
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
        """Make `push_frame` publish with `push` in the current task. Pass the returned token to `stop_pushing`."""
        return _push.set(push)

    def stop_pushing(self, token: Token[Push]) -> None:
        """Undo `pushing_to`."""
        _push.reset(token)

    async def push_frame(self, frame: AnyFrame, direction: object = None) -> None:
        """Publish a frame of the run that the current task answers. It gets the run's id and attempt.

        `direction` is part of Pipecat's interface and ignored. Raises RuntimeError outside of a run: out-of-band
        inference publishes nothing.
        """
        push = _push.get(None)
        if push is None:
            raise RuntimeError(
                f"{frame.name} was pushed outside of a run, so it has no conversation to be published to"
            )
        await push(frame)

    async def push_usage(self, usage: Usage) -> None:
        """Publish the tokens used so far, in case the answer never ends. Does nothing outside of a run."""
        push = _push.get(None)
        if push is not None:
            await push(LLMTextFrame(text="", usage=usage))

    async def run_function_calls(self, function_calls: Sequence[FunctionCallFromLLM]) -> None:
        """Announce calls of the run that the current task answers. The end frame of the answer dispatches them.

        An empty list does nothing. The hook `on_function_calls_started` is called before the announcement is published.
        """
        if function_calls:
            await self.push_frame(
                FunctionCallsStartedFrame(
                    function_calls=tuple(function_calls),
                    run_in_parallel=self.run_in_parallel,
                    group_parallel_tools=self.group_parallel_tools,
                )
            )
