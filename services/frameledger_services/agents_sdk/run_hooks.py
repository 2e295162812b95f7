"""`FrameledgerRunHooks`: which models and tools the runs of an application used, and how they ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from frameledger_services.agents_sdk.publishing import Publishing
from frameledger_services.agents_sdk.runs import Runs
from frameledger_services.agents_sdk.values import Fields
from frameledger_services.client import Conversations
from frameledger_services.extras import needed

with needed("agents"):
    from agents import AgentsException, RunHooks, default_tool_error_function
    from agents.tracing import get_current_span

FLUSH_SECONDS = 5.0

_BREAKS_OFF = (asyncio.CancelledError, KeyboardInterrupt, GeneratorExit)
"""Errors by which somebody stops a run, which has none of its own."""


@dataclass(eq=False)
class _Scope:
    """An `async with` of hooks: the tasks that begin in it know it."""

    hooks: FrameledgerRunHooks
    outer: _Scope | None


_scope: ContextVar[_Scope | None] = ContextVar("frameledger_agents_sdk_scope", default=None)


class FrameledgerRunHooks(RunHooks[Any]):
    """Tells the log of a conversation what its runs did: each answer with its model, tokens and time, each call of a
    tool with what became of it, handoffs, and what was broken off. `facts_runs` and `facts_calls` have them then.

        hooks = FrameledgerRunHooks("ticket-7", client)
        result = await Runner.run(agent, "Where is my order?", session=session, hooks=hooks)

    It writes no message: those are the session's. A run waits for nothing of it and never fails by it, whatever becomes
    of the servers: frames wait in bounded memory, and `lost` says how many did not fit.

    The SDK does not tell hooks of a run that is cancelled or fails. `async with hooks:` around a run does, as the run
    ends; without, the next answer that begins says that the one before was broken off.
    """

    def __init__(
        self,
        session_id: str,
        client: Conversations,
        *,
        provider: str | None = None,
        model: str | None = None,
    ) -> None:
        """`session_id` is the conversation. The client stays its owner's, as of `FrameledgerSession`. `provider` and
        `model` are told instead of what the agents name: the SDK does not say if a `RunConfig` names another."""
        self.session_id = session_id
        self._runs = Runs(session_id, provider, model)
        self._publishing = Publishing(session_id, client)

    @property
    def unpublished(self) -> int:
        """Frames that wait to be published."""
        return self._publishing.unpublished

    @property
    def lost(self) -> int:
        """Frames that are not on the log and will not be."""
        return self._publishing.lost

    async def flush(self, within: float = FLUSH_SECONDS) -> bool:
        """Wait until the log has all, for so many seconds at most; for before the client is closed. Returns whether it
        has."""
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
        failed = None if kind is None or issubclass(kind, _BREAKS_OFF) else kind.__name__
        self._tell(lambda: self._runs.ended(scope, failed, isinstance(error, AgentsException)))

    async def on_agent_start(self, context: Any, agent: Any) -> None:
        self._tell(lambda: self._runs.agent_began(self._scope(), context, agent))

    async def on_agent_end(self, context: Any, agent: Any, output: Any) -> None:
        self._tell(lambda: self._runs.agent_ended(self._scope(), context, agent))

    async def on_handoff(self, context: Any, from_agent: Any, to_agent: Any) -> None:
        self._tell(lambda: self._runs.handed_off(self._scope(), context, from_agent, to_agent))

    async def on_llm_start(self, context: Any, agent: Any, system_prompt: Any, input_items: Any) -> None:
        self._tell(lambda: self._runs.answer_began(self._scope(), context, agent))

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        self._tell(lambda: self._runs.answer_ended(self._scope(), context, agent, response))

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        self._tell(lambda: self._runs.call_began(self._scope(), context, tool))

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
        self._tell(
            lambda: self._runs.call_ended(self._scope(), context, tool, result, has_failed(context, result))
        )

    def _scope(self) -> _Scope | None:
        scope = _scope.get()
        while scope is not None and scope.hooks is not self:
            scope = scope.outer
        return scope

    def _tell(self, frames: Callable[[], list[Fields]]) -> None:
        try:
            self._publishing.put(frames())
        except Exception as error:
            self._publishing.lost += 1
            self._publishing.say("what a run did could not be told", error)


def has_failed(context: Any, result: Any) -> bool:
    """Whether a tool failed that returned this. The SDK gives the model a text in the place of the result: its own says
    so, and of another the span does, where the application traces."""
    span = get_current_span()
    if span is not None and span.error is not None:
        return True
    told = default_tool_error_function(context, Exception())
    return isinstance(result, str) and bool(told) and result.startswith(told)
