"""`FrameledgerRunHooks`: records the models and tools that an application's runs use, and how the runs end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from frameledger_services.agents_sdk.mirror import mirror_frame
from frameledger_services.agents_sdk.publishing import Publishing
from frameledger_services.agents_sdk.runs import Runs
from frameledger_services.agents_sdk.values import Fields
from frameledger_services.client import Conversations, with_defaults
from frameledger_services.extras import needed

with needed("agents"):
    from agents import AgentsException, RunHooks, default_tool_error_function
    from agents.tool import default_tool_timeout_error_message
    from agents.tracing import get_current_span

FLUSH_SECONDS = 5.0

_STOPS_A_RUN = (asyncio.CancelledError, KeyboardInterrupt, GeneratorExit)
"""Exceptions that stop a run without being its own error."""


@dataclass(eq=False)
class _Scope:
    """An `async with` block of hooks. Tasks that start in it inherit it."""

    hooks: FrameledgerRunHooks
    outer: _Scope | None


_scope: ContextVar[_Scope | None] = ContextVar("frameledger_agents_sdk_scope", default=None)


class FrameledgerRunHooks(RunHooks[Any]):
    """Publishes what the runs of a conversation did: each answer with its model, tokens and duration, each tool call
    with its result, handoffs and interruptions. `facts_runs` and `facts_calls` then contain them.

        hooks = FrameledgerRunHooks("ticket-7", client)
        result = await Runner.run(agent, "Where is my order?", session=session, hooks=hooks)

    It writes no messages: the session does. It never blocks a run and never makes it fail, whatever happens to the
    servers: frames wait in bounded memory, and `lost` counts those that did not fit.

    The SDK does not call hooks for a run that is cancelled or fails. Use `async with hooks:` around a run to record its
    end; otherwise the next answer that starts records the previous one as interrupted. Runs at the same time need it,
    around each or all of them.
    """

    def __init__(
        self,
        session_id: str,
        client: Conversations,
        *,
        provider: str | None = None,
        model: str | None = None,
    ) -> None:
        """`session_id` is the conversation. The caller closes the client, as for `FrameledgerSession`. `provider` and
        `model` replace those of the agents: the SDK does not report whether a `RunConfig` overrides them."""
        self.session_id = session_id
        self._runs = Runs(provider, model)
        self._mirror = with_defaults(mirror_frame(session_id)).model_dump(mode="json", exclude_none=True)
        self._publishing = Publishing(session_id, client)

    @property
    def unpublished(self) -> int:
        """The number of frames that wait to be published."""
        return self._publishing.unpublished

    @property
    def lost(self) -> int:
        """The number of frames that are not on the log and will not be."""
        return self._publishing.lost

    async def flush(self, within: float = FLUSH_SECONDS) -> bool:
        """Wait until all frames are published, for at most `within` seconds. Call it before closing the client. Returns
        whether all are published."""
        return await self._publishing.flush(within)

    async def __aenter__(self) -> Self:
        _scope.set(_Scope(self, _scope.get()))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        scope = self._scope()
        if scope is None:
            return
        _scope.set(scope.outer)
        failed = None if kind is None or issubclass(kind, _STOPS_A_RUN) else kind.__name__
        self._record(lambda: self._runs.end(scope, failed, isinstance(error, AgentsException)))

    async def on_agent_start(self, context: Any, agent: Any) -> None:
        self._record(lambda: self._runs.agent_started(self._scope(), context, agent))

    async def on_agent_end(self, context: Any, agent: Any, output: Any) -> None:
        self._record(lambda: self._runs.agent_ended(self._scope(), context, agent))

    async def on_handoff(self, context: Any, from_agent: Any, to_agent: Any) -> None:
        self._record(lambda: self._runs.handed_off(self._scope(), context, from_agent, to_agent))

    async def on_llm_start(self, context: Any, agent: Any, system_prompt: Any, input_items: Any) -> None:
        self._record(lambda: self._runs.answer_started(self._scope(), context, agent))

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        self._record(lambda: self._runs.answer_ended(self._scope(), context, agent, response))

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        self._record(lambda: self._runs.call_started(self._scope(), context, tool))

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
        self._record(
            lambda: self._runs.call_ended(
                self._scope(), context, tool, result, has_failed(context, tool, result)
            )
        )

    def _scope(self) -> _Scope | None:
        scope = _scope.get()
        while scope is not None and scope.hooks is not self:
            scope = scope.outer
        return scope

    def _record(self, frames: Callable[[], list[Fields]]) -> None:
        try:
            if told := frames():
                # With the mirror frame each time, as in the session: the conversation may have been erased since.
                self._publishing.put([self._mirror, *told])
        except Exception as error:
            self._publishing.lost += 1
            self._publishing.say("an event of a run could not be recorded", error)


def has_failed(context: Any, tool: Any, result: Any) -> bool:
    """Returns whether the tool that returned this failed. The SDK replaces the result of a failed tool by a text for
    the model. Its default texts are recognized; with a custom text, the span has the error if the application uses
    tracing, and if the tool has not timed out."""
    span = get_current_span()
    if span is not None and span.error is not None:
        return True
    timeout = getattr(tool, "timeout_seconds", None)
    if timeout is not None and getattr(tool, "timeout_error_function", None) is None:
        timeout_text = default_tool_timeout_error_message(tool_name=tool.name, timeout_seconds=timeout)
        if result == timeout_text:
            return True
    default_text = default_tool_error_function(context, Exception())
    return isinstance(result, str) and bool(default_text) and result.startswith(default_text)
