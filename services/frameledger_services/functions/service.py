"""`FunctionService`: the functions of an application, run for all conversations."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar
from uuid import uuid4

from frameledger.errors import RefusedError
from frameledger.frames import (
    AnyFrame,
    FunctionCallFromLLM,
    LLMSetToolsFrame,
)
from frameledger.tools import MISSING_FUNCTION_CALL_MESSAGE_TEMPLATE, FunctionSchema, ToolsSchema
from frameledger_services import failpoints, logs, work
from frameledger_services.claims import ClaimedCall
from frameledger_services.failpoints import Failpoint
from frameledger_services.functions.registry import DirectFunction, FunctionRegistry, Handler
from frameledger_services.functions.runtime import Runtime, ServiceSetup
from frameledger_services.providers.hooks import Hooks
from frameledger_services.providers.service import LLMService
from frameledger_services.settings import Settings

STOP_SECS = 4.0
"""How long a handler has to stop when it is told to, before its call is settled without it."""

ADVERTISED_SECS = 600.0
"""How long the projector may take to fold a tool list. After that the one in force says which handlers stay."""

Tool = Handler | DirectFunction | FunctionSchema | dict[str, Any]

H = TypeVar("H", bound=Handler)

_log = logs.get_logger("functions")


class NotRunningError(RefusedError, RuntimeError):
    """The service does not run, and only a running one can do this.

    Remedy: Start it first: `async with service`, or `await service.start()`.
    """


class FunctionService(Hooks, work.BackgroundService):
    """Runs the functions of an application, for all conversations. One for each process and event loop.

    Handlers may be async or plain; a plain one runs in a thread. An async handler that blocks the event loop holds up
    the other calls of this process; its lease it keeps (heartbeats have a thread of their own).

    Hooks (`event_handler`): `on_function_calls_started(service, function_calls)` once for each announcement, before its
    calls begin: where `run_function_calls` announces them, and for a model's own run in each process that runs some of
    them, with those that it serves; and `on_function_calls_cancelled(service, function_calls)` once for each act of
    this process that cancelled some: an interruption, a deadline, the model's own wish. They may be lost with the
    process.
    """

    EVENTS = frozenset({"on_function_calls_started", "on_function_calls_cancelled"})
    MISSING_FUNCTION_CALL_MESSAGE_TEMPLATE = MISSING_FUNCTION_CALL_MESSAGE_TEMPLATE

    def __init__(
        self,
        settings: Settings,
        registry: FunctionRegistry | None = None,
        *,
        service: str = "functions",
        run_in_parallel: bool = True,
        group_parallel_tools: bool = True,
        function_call_timeout_secs: float | None = None,
        enable_async_tool_cancellation: bool | None = None,
        app_resources: Any = None,
        llm: LLMService[Any] | None = None,
        slots: int | None = None,
        stop_secs: float = STOP_SECS,
        failpoint: Failpoint = failpoints.none,
    ) -> None:
        """`service` is the name that all who share these calls have; all of them serve the same functions.

        `run_in_parallel` and `group_parallel_tools` are for `run_function_calls`. `function_call_timeout_secs` counts
        from a call's dispatch, where its function has no limit of its own. `enable_async_tool_cancellation`: every
        asynchronous function counts as cancellable by the model. For both, None means what the settings say.
        `app_resources` is passed to every handler as it is, and `llm` as a handle with `run_inference`. `slots` is how
        many calls go on at once. `stop_secs` is how long a handler has to stop when it is told to.
        """
        super().__init__()
        if function_call_timeout_secs is None:
            function_call_timeout_secs = settings.function_call_timeout_secs
        if not (math.isfinite(function_call_timeout_secs) and function_call_timeout_secs > 0):
            raise ValueError(
                f"function_call_timeout_secs is a number of seconds above 0, not {function_call_timeout_secs!r}"
            )
        self.registry = registry if registry is not None else FunctionRegistry()
        if enable_async_tool_cancellation is None:
            enable_async_tool_cancellation = settings.enable_async_tool_cancellation
        if enable_async_tool_cancellation:
            self.registry.enable_async_tool_cancellation = True
        self.run_in_parallel = run_in_parallel
        self.group_parallel_tools = group_parallel_tools
        self._setup = ServiceSetup(
            settings,
            self.registry,
            function_call_timeout_secs,
            # The worker cancels what has not stopped after its grace, and then nothing could be said any more.
            min(stop_secs, 0.8 * settings.work_grace_secs),
            app_resources,
            llm,
            self.notify,
            self.has_handlers,
            failpoint,
        )
        at_once = settings.work_slots if slots is None else slots
        self._worker = work.Worker(
            settings,
            work.CALLS,
            self._perform,
            service=service,
            serves=self.registry.serves(),
            serves_all=self.registry.serves_all,
            offers=self.registry.offers(),
            slots=at_once,
            per_key=at_once,
            failpoint=failpoint,
        )
        self._running: Runtime | None = None

    async def run(self, stopping: asyncio.Event) -> None:
        """Run calls until `stopping` is set, then finish what can be finished, and hand over the rest.

        Raises what waiting does not mend: a database of another shape, or a bug.
        """
        if self._running is not None:
            raise RuntimeError("The service runs already.")
        model = self._setup.model
        if model is not None:
            await model.start()
        try:
            await self._run(stopping)
        except BaseExceptionGroup as errors:
            raise _only(errors) from None
        finally:
            self._running = None
            if model is not None:
                await model.stop()

    @property
    def app_resources(self) -> Any:
        """The very object that every handler is given."""
        return self._setup.app_resources

    async def worker_id(self) -> str:
        """Who it is in the table `workers` now; another one after each life. Waits until it lives."""
        return (await self._worker.ready()).worker_id

    # The application's side.

    def register_function(self, function_name: str | None, handler: Handler, **options: Any) -> None:
        """As `FunctionRegistry.register_function`. Also while it runs."""
        self.registry.register_function(function_name, handler, **options)

    def register_direct_function(self, handler: H, **options: Any) -> H:
        """As `FunctionRegistry.register_direct_function`. Also while it runs."""
        return self.registry.register_direct_function(handler, **options)

    def unregister_function(self, function_name: str | None) -> None:
        """As `FunctionRegistry.unregister_function`."""
        self.registry.unregister_function(function_name)

    def unregister_direct_function(self, handler: Handler) -> None:
        """As `FunctionRegistry.unregister_direct_function`."""
        self.registry.unregister_direct_function(handler)

    def has_function(self, function_name: str) -> bool:
        """Whether this process serves the function; the table `workers` answers for all."""
        return self.registry.has_function(function_name)

    async def set_tools(self, context_id: str, functions: Iterable[Tool] | ToolsSchema) -> None:
        """Make these the tools of a conversation: their handlers are registered as advertised, then the list is
        published.

        A function is advertised with its schema; a schema, a tool in OpenAI's form, or all of a `ToolsSchema`, is
        advertised only, and served by whoever serves that name. A handler leaves with its tool, and with the end of
        the conversation. Raises `NotRunningError`, `FunctionSchemaError`, `ReservedNameError`, and what
        publishing raises.
        """
        running = self._need_running()
        if isinstance(functions, ToolsSchema):
            functions = functions.to_wire()
        tools = [
            one
            if isinstance(one, FunctionSchema | dict | DirectFunction)
            else self.registry.direct_function(one)
            for one in functions
        ]
        frame = LLMSetToolsFrame(id=str(uuid4()), tools=tuple(_advertised(one) for one in tools))
        self.registry.advertise(context_id, [one for one in tools if isinstance(one, DirectFunction)])
        running.tool_lists.publishing(context_id)
        await self._update_registration()
        advertising = running.background.start(self._until_advertised(running, context_id, str(frame.id)))
        try:
            await self.push_frame(context_id, frame)
        except BaseException:
            advertising.cancel()
            raise

    async def push_frame(self, context_id: str, frame: AnyFrame, direction: object = None) -> None:
        """Publish a frame to a conversation, within the lease. A log has no direction. Raises `NotRunningError`
        and what publishing raises."""
        self._need_running()
        session = await self._worker.ready()
        await session.publisher.publish(context_id, frame)

    async def run_function_calls(
        self, context_id: str, function_calls: Sequence[FunctionCallFromLLM], *, group_id: str | None = None
    ) -> None:
        """Run calls of a model that somebody else runs: announce them without a run id, and run them here.

        Returns when all have settled or wait for a person. In parallel, or one after another, as the service was told:
        then behind the batches of the context that were announced here before. They are not claimed: if this process
        dies, the timekeeper settles them. An empty list does nothing. Raises
        `NotRunningError`, `LeaseLostError`, and what publishing raises.
        """
        if not function_calls:
            return
        running = self._need_running()
        session = await self._worker.ready()
        # Such a model may be offered the tools by which it cancels; whoever reads its answer need not know them.
        function_calls = [
            call
            if self.registry.cancels(call.function_name) is None
            else call.model_copy(update={"builtin": True})
            for call in function_calls
        ]
        told = [call for call in function_calls if not call.builtin]
        if told:
            await self.notify("on_function_calls_started", told)
        await running.local_calls.run(
            session,
            context_id,
            function_calls,
            group_id=group_id,
            run_in_parallel=self.run_in_parallel,
            group_parallel_tools=self.group_parallel_tools,
        )

    # Its work.

    async def _run(self, stopping: asyncio.Event) -> None:
        loop, changed, leaving = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()

        def wake() -> None:
            loop.call_soon_threadsafe(changed.set)

        unwatch = self.registry.watch(wake)
        running: Runtime | None = None
        try:
            async with asyncio.TaskGroup() as tasks:
                running = self._running = Runtime(self._setup, self, tasks)
                offering = tasks.create_task(self._keep_offering(changed))
                changed.set()
                leave = tasks.create_task(self._leave(stopping, running, leaving))
                try:
                    await self._worker.run(leaving)
                finally:
                    leave.cancel()
                    await running.end()
                    offering.cancel()
        finally:
            unwatch()
            if running is not None:
                await running.close()

    async def _leave(self, stopping: asyncio.Event, running: Runtime, leaving: asyncio.Event) -> None:
        """The worker leaves after the calls that it has not claimed, which need its lease."""
        await stopping.wait()
        await running.local_calls.drain(
            self._setup.settings.work_drain_secs, self._setup.settings.work_grace_secs
        )
        leaving.set()

    async def _perform(self, job: work.Job[ClaimedCall], session: work.Session) -> work.Ending:
        return await self._need_running().perform(job, session)

    async def _keep_offering(self, changed: asyncio.Event) -> None:
        while True:
            await changed.wait()
            changed.clear()
            await self._update_registration()

    async def _update_registration(self) -> None:
        registry = self.registry
        await self._worker.update_registration(
            serves=registry.serves(), serves_all=registry.serves_all, offers=registry.offers()
        )

    async def _until_advertised(self, running: Runtime, context_id: str, frame_id: str) -> None:
        try:
            async with (
                asyncio.timeout(ADVERTISED_SECS),
                running.statuses.folding(context_id, frame_id) as folded,
            ):
                running.tool_lists.published(context_id, (await folded).version or 0)
        except TimeoutError:
            _log.warning("functions.tools_not_folded", context_id=context_id)
        finally:
            running.tool_lists.not_published(context_id)

    def _need_running(self) -> Runtime:
        if self._running is None:
            raise NotRunningError("The function service does not run: `await service.start()` first.")
        return self._running


def _advertised(tool: DirectFunction | FunctionSchema | dict[str, Any]) -> dict[str, Any]:
    if isinstance(tool, DirectFunction):
        tool = tool.signature.schema
    return tool.to_openai() if isinstance(tool, FunctionSchema) else tool


def _only(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error of a group that has one, at any depth; else the group."""
    while len(errors.exceptions) == 1:
        error = errors.exceptions[0]
        if not isinstance(error, BaseExceptionGroup):
            return error
        errors = error
    return errors
