"""`FunctionService` runs an application's functions for all conversations."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar
from uuid import UUID

from frameledger.frames import AnyFrame, FunctionCallFromLLM
from frameledger.tools import MISSING_FUNCTION_CALL_MESSAGE_TEMPLATE, ToolsSchema
from frameledger_services import failpoints, logs, work
from frameledger_services.claims import ClaimedCall
from frameledger_services.exception_groups import sole
from frameledger_services.failpoints import Failpoint
from frameledger_services.functions.registry import FunctionRegistry
from frameledger_services.functions.registry_item import Handler
from frameledger_services.functions.runtime import NotRunningError, Runtime, ServiceSetup
from frameledger_services.functions.tool_setter import AnyTool, ToolSetter
from frameledger_services.providers.hooks import Hooks
from frameledger_services.providers.service import LLMService
from frameledger_services.settings import Settings
from frameledger_services.telemetry import metrics as listed
from frameledger_services.telemetry.metrics_recorder import NO_METRICS, Metrics

STOP_SECONDS = 4.0
"""How long a handler may take to stop when it is asked to. After that its call is settled without it."""

H = TypeVar("H", bound=Handler)

_log = logs.get_logger("functions")


class FunctionService(Hooks, work.BackgroundService):
    """Runs an application's functions for all conversations. Use one per process and event loop.

    Handlers may be async or plain; a plain handler runs in a thread. An async handler that blocks the event loop delays
    the other calls of its process. The process keeps its lease meanwhile, because heartbeats run in a separate thread.

    Hooks (`event_handler`); a process that dies loses them:

    - `on_function_calls_started(service, function_calls)` is called once per announcement, before its calls start. For
      `run_function_calls` it gets all calls, in the process that announces them. For a run of the inference service,
      each process that runs some of the calls gets those that it serves.
    - `on_function_calls_cancelled(service, function_calls)` is called once for the calls of this process that were
      cancelled together: by an interruption, a deadline, or the model.
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
        stop_secs: float = STOP_SECONDS,
        metrics: Metrics = NO_METRICS,
        failpoint: Failpoint = failpoints.none,
    ) -> None:
        """`service` is the service name (consumer group): processes with the same name share the calls and must serve
        the same functions.

        `run_in_parallel` and `group_parallel_tools` apply to `run_function_calls`. `function_call_timeout_secs` is the
        timeout of calls, counted from their dispatch, for functions without one of their own.
        `enable_async_tool_cancellation` lets the model cancel calls of every asynchronous function. For both, None
        takes the value of the settings. Every handler gets `app_resources` unchanged, and `llm` as a handle with
        `run_inference`. `slots` is the maximum number of concurrent calls. `stop_secs` is how long a handler may take
        to stop when it is asked to. `metrics` receives the metrics, for instance a `ProcessMetrics` over the registry
        that your program exposes.
        """
        super().__init__()
        if function_call_timeout_secs is None:
            function_call_timeout_secs = settings.function_call_timeout_secs
        if not (math.isfinite(function_call_timeout_secs) and function_call_timeout_secs > 0):
            raise ValueError(
                f"function_call_timeout_secs must be a number of seconds above 0, not {function_call_timeout_secs!r}"
            )
        self.registry = registry if registry is not None else FunctionRegistry()
        if enable_async_tool_cancellation is None:
            enable_async_tool_cancellation = settings.enable_async_tool_cancellation
        if enable_async_tool_cancellation:
            self.registry.enable_async_tool_cancellation = True
        self.run_in_parallel = run_in_parallel
        self.group_parallel_tools = group_parallel_tools
        self._setup = ServiceSetup(
            settings=settings,
            registry=self.registry,
            timeout_secs=function_call_timeout_secs,
            # The worker cancels jobs that have not ended after its grace period: calls have to be settled before that.
            stop_secs=min(stop_secs, 0.8 * settings.work_grace_secs),
            app_resources=app_resources,
            model=llm,
            notify=self.notify,
            has_handlers=self.has_handlers,
            failpoint=failpoint,
            metrics=metrics,
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
            metrics=metrics,
            failpoint=failpoint,
        )
        self._running: Runtime | None = None
        self._tools = ToolSetter(
            self.registry, self._need_running, self._update_registration, self.push_frame
        )
        metrics.declare(listed.TOOL_DURATION)

    async def run(self, stopping: asyncio.Event) -> None:
        """Same as `BackgroundService.run`. Raises errors that no retry fixes: a database with another schema or of
        another topic prefix, or a bug."""
        model = self._setup.model
        with self._running_alone():
            if model is not None:
                await model.start()
            try:
                await self._run(stopping)
            except BaseExceptionGroup as errors:
                raise sole(errors) from None
            finally:
                self._running = None
                if model is not None:
                    await model.stop()

    @property
    def app_resources(self) -> Any:
        """The object that every handler gets."""
        return self._setup.app_resources

    async def worker_id(self) -> str:
        """Returns the worker's id in the table `workers`, once it takes work. Each session has a new id. Raises
        `NotRunningError`."""
        return (await self._session(self._need_running())).worker_id

    def register_function(self, function_name: str | None, handler: Handler, **options: Any) -> None:
        """Same as `FunctionRegistry.register_function`. May be called while the service runs."""
        self.registry.register_function(function_name, handler, **options)

    def register_direct_function(self, handler: H, **options: Any) -> H:
        """Same as `FunctionRegistry.register_direct_function`. May be called while the service runs."""
        return self.registry.register_direct_function(handler, **options)

    def unregister_function(self, function_name: str | None) -> None:
        """Same as `FunctionRegistry.unregister_function`."""
        self.registry.unregister_function(function_name)

    def unregister_direct_function(self, handler: Handler) -> None:
        """Same as `FunctionRegistry.unregister_direct_function`."""
        self.registry.unregister_direct_function(handler)

    def has_function(self, function_name: str) -> bool:
        """Returns whether this process serves the function. The table `workers` lists those of all processes."""
        return self.registry.has_function(function_name)

    async def set_tools(self, context_id: str, functions: Iterable[AnyTool] | ToolsSchema) -> None:
        """Set the tools of a conversation: register the handlers among them, then publish the list.

        A function is registered and advertised with its schema. A schema, a tool in OpenAI's form, or the content of a
        `ToolsSchema` is only advertised; any worker that serves the name runs its calls. A handler is unregistered when
        a later list omits its tool, and when the conversation ends. Raises `NotRunningError`, `FunctionSchemaError`,
        `ReservedNameError`, and the errors of publishing. After an error the previous handlers stay registered. If the
        list may have been published nevertheless, its handlers stay registered too, and replace those of the same
        names.

        Lists of one conversation that are set at the same time are published and take effect in the order of the calls.
        """
        await self._tools.set(context_id, functions)

    async def push_frame(
        self,
        context_id: str,
        frame: AnyFrame,
        direction: object = None,
        *,
        causation_id: UUID | str | None = None,
    ) -> None:
        """Publish a frame to a conversation while the worker holds its lease. `direction` is ignored.

        `causation_id` is the id of the frame of that conversation that caused this one; None if the application
        publishes it on its own account. Raises `NotRunningError` and the errors of publishing.
        """
        session = await self._session(self._need_running())
        await session.publisher.publish(context_id, frame, causation_id=causation_id)

    async def run_function_calls(
        self,
        context_id: str,
        function_calls: Sequence[FunctionCallFromLLM],
        *,
        group_id: str | None = None,
        causation_id: UUID | str | None = None,
    ) -> None:
        """Announce function calls of a model that the application runs itself, and run them in this process.

        Returns when every call has settled, waits for a person, or was erased. The calls have no run id. They run in
        parallel, or, with `run_in_parallel=False`, one after another and after earlier batches of the same
        conversation. They are not claimed: if this process dies, or its worker loses its lease, which stops their
        handlers, the timekeeper settles them. When this is cancelled, their handlers are stopped, and the calls
        settled. An empty list does nothing.
        `causation_id` is the id of the frame that caused them, if the application knows it. Raises `NotRunningError`,
        `LeaseLostError`, the errors of publishing, and `CallsRefusedError` for calls that the conversation rejected,
        because of its limits or because a call with the same id is open. Rejected calls do not run; the others of the
        batch do.
        """
        if not function_calls:
            return
        running = self._need_running()
        session = await self._session(running)
        # Such a model may receive our cancel tools; the application that reads its answer need not know them.
        function_calls = [
            call
            if self.registry.cancels(call.function_name) is None
            else call.model_copy(update={"builtin": True})
            for call in function_calls
        ]
        announced = [call for call in function_calls if not call.builtin]
        if announced:
            await self.notify("on_function_calls_started", announced)
        await running.local_calls.run(
            session,
            context_id,
            function_calls,
            group_id=group_id,
            run_in_parallel=self.run_in_parallel,
            group_parallel_tools=self.group_parallel_tools,
            causation_id=causation_id,
        )

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
        """Drain the local calls first, since they need the lease of the worker; then let the worker stop."""
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

    async def _session(self, running: Runtime) -> work.Session:
        """Wait for a worker session; during an outage the service has none. Raises `NotRunningError` if it stops
        meanwhile."""
        ready = asyncio.ensure_future(self._worker.ready())
        ended = asyncio.ensure_future(running.ended.wait())
        try:
            await asyncio.wait((ready, ended), return_when=asyncio.FIRST_COMPLETED)
            if ready.done():
                return ready.result()
        finally:
            ready.cancel()
            ended.cancel()
        raise NotRunningError("The function service stopped before it had a worker again.")

    def _need_running(self) -> Runtime:
        if self._running is None:
            raise NotRunningError("The function service is not running: call `await service.start()` first.")
        return self._running
