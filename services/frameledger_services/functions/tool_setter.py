"""Sets the tools of a conversation: registers the handlers among them, and publishes the list."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any
from uuid import uuid4

from frameledger.frames import LLMSetToolsFrame
from frameledger.ids import ContextId
from frameledger.record import outgoing
from frameledger.tools import FunctionSchema, ToolsSchema
from frameledger_services import logs
from frameledger_services.event_log.publish_errors import RecordRefusedError
from frameledger_services.functions.queues import Queues
from frameledger_services.functions.registry import FunctionRegistry
from frameledger_services.functions.registry_item import DirectFunction, Handler
from frameledger_services.functions.runtime import NotRunningError, Runtime

ADVERTISED_SECONDS = 600.0
"""How long to wait for the projector to fold a tool list. After that the stored list decides which handlers stay."""

AnyTool = Handler | DirectFunction | FunctionSchema | dict[str, Any]

_log = logs.get_logger("functions")


class ToolSetter:
    """Sets tools for one service, for one conversation after another or for several at once."""

    def __init__(
        self,
        registry: FunctionRegistry,
        need_running: Callable[[], Runtime],
        register: Callable[[], Awaitable[None]],
        push_frame: Callable[[str, LLMSetToolsFrame], Awaitable[None]],
    ) -> None:
        """`need_running` raises `NotRunningError`; `register` stores in the database what is served now; `push_frame`
        publishes to a conversation."""
        self._registry = registry
        self._need_running = need_running
        self._register = register
        self._push_frame = push_frame
        self._queues = Queues()

    async def set(self, context_id: str, functions: Iterable[AnyTool] | ToolsSchema) -> None:
        """Same as `FunctionService.set_tools`."""
        self._need_running()
        if isinstance(functions, ToolsSchema):
            functions = functions.to_wire()
        tools = [
            one
            if isinstance(one, FunctionSchema | dict | DirectFunction)
            else self._registry.direct_function(one)
            for one in functions
        ]
        frame = LLMSetToolsFrame(id=str(uuid4()), tools=tuple(_advertised(one) for one in tools))
        # Before any query about the conversation: an invalid id would fail the shared query of all calls.
        outgoing(frame, ContextId(context_id), source="")
        handlers = [one for one in tools if isinstance(one, DirectFunction)]
        # Overlapping calls would unregister each other's handlers.
        async with self._queues.entry(context_id) as entry:
            await entry.until_first()
            await self._set_tools(context_id, frame, handlers)

    async def _set_tools(
        self, context_id: str, frame: LLMSetToolsFrame, handlers: Sequence[DirectFunction]
    ) -> None:
        running = self._need_running()
        before = self._registry.advertised(context_id)
        # Calls may arrive as soon as the list is published, so its handlers are registered first.
        self._registry.advertise(context_id, handlers)
        running.tool_lists.publishing(context_id)
        advertising = running.background.start(self._until_advertised(running, context_id, str(frame.id)))
        # Not in the task itself: a task that is cancelled before its first step never gets here.
        advertising.add_done_callback(lambda _: running.tool_lists.not_awaited(context_id))
        try:
            await self._register()
            await self._push_frame(context_id, frame)
        except BaseException as error:
            advertising.cancel()
            if isinstance(error, RecordRefusedError | NotRunningError | ValueError):
                # It is not on the log. After any other error it may be, and its handlers stay until a list decides
                # otherwise.
                self._registry.restore_advertised(context_id, before)
            raise
        self._registry.keep_advertised(context_id, [one.name for one in handlers])

    async def _until_advertised(self, running: Runtime, context_id: str, frame_id: str) -> None:
        try:
            async with (
                asyncio.timeout(ADVERTISED_SECONDS),
                running.statuses.folding(context_id, frame_id) as folded,
            ):
                running.tool_lists.folded(context_id, (await folded).version or 0)
        except TimeoutError:
            _log.warning("functions.tools_not_folded", context_id=context_id)


def _advertised(tool: DirectFunction | FunctionSchema | dict[str, Any]) -> dict[str, Any]:
    if isinstance(tool, DirectFunction):
        tool = tool.signature.schema
    return tool.to_openai() if isinstance(tool, FunctionSchema) else tool
