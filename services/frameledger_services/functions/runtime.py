"""The parts that exist while the function service runs, and how a claimed call becomes a `CallLifecycle`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from frameledger.errors import RefusedError
from frameledger_services import cancel_tools, logs, work
from frameledger_services.claims import ClaimedCall
from frameledger_services.failpoints import Failpoint
from frameledger_services.functions.call_frames import CallAttempt
from frameledger_services.functions.call_lifecycle import CallLifecycle
from frameledger_services.functions.call_state import BackgroundTasks, CallDependencies, JobPublisher
from frameledger_services.functions.call_status import NAME, CallStatusReader
from frameledger_services.functions.cancel_handler import CancelHandler
from frameledger_services.functions.execution import HandlerExecutor
from frameledger_services.functions.handler_api import ContextLoader, InferenceHandle, PipelineHandle
from frameledger_services.functions.local_calls import LocalCalls
from frameledger_services.functions.notifications import CancelledHook, StartedHook
from frameledger_services.functions.options import OptionOverrides
from frameledger_services.functions.params import FunctionCallParams, FunctionServiceLike
from frameledger_services.functions.plan import CallPlan, plan_call
from frameledger_services.functions.registry import FunctionRegistry
from frameledger_services.functions.registry_item import FunctionCallRegistryItem, checker_of
from frameledger_services.functions.reports import Reporter
from frameledger_services.functions.tool_lists import ToolListFollower
from frameledger_services.providers.service import LLMService
from frameledger_services.settings import Settings
from frameledger_services.store import tool_lists
from frameledger_services.store.connections import Connections, DatabaseError
from frameledger_services.telemetry import metrics as listed
from frameledger_services.telemetry.metrics_recorder import NO_METRICS, Metrics

STARTED = "on_function_calls_started"

_log = logs.get_logger("functions")


class NotRunningError(RefusedError, RuntimeError):
    """The function service is not running, and this operation needs a running one.

    Remedy: Start it first: `async with service`, or `await service.start()`.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSetup:
    """The arguments of a service."""

    settings: Settings
    registry: FunctionRegistry
    timeout_secs: float
    stop_secs: float
    app_resources: Any
    model: LLMService[Any] | None
    notify: Callable[..., Awaitable[None]]
    has_handlers: Callable[[str], bool]
    failpoint: Failpoint
    metrics: Metrics = NO_METRICS


class Runtime:
    """One run of the service. Created in a task group, which it needs until `end`."""

    def __init__(self, setup: ServiceSetup, service: FunctionServiceLike, tasks: asyncio.TaskGroup) -> None:
        self._setup = setup
        self._service = service
        self._loop = asyncio.get_running_loop()
        self._contexts = ContextLoader(setup.settings)
        self._connections = Connections(setup.settings, NAME, role="frameledger_worker")
        self.ended = asyncio.Event()
        """Set when the worker has left, or is about to; there will be no other one in this run."""

        self.background = BackgroundTasks(tasks)
        self.statuses = CallStatusReader(setup.settings, self._connections)
        self.tool_lists = ToolListFollower(setup.registry, self._connections)
        self._cancelled = partial(setup.notify, "on_function_calls_cancelled")
        self._deps = CallDependencies(
            statuses=self.statuses,
            handlers=HandlerExecutor(),
            cancelled=CancelledHook(self._connections, self.background.start_unless_ended, self._cancelled),
            background=self.background,
            stop_secs=setup.stop_secs,
            notify=setup.notify,
            params=self._params,
        )
        self._started = StartedHook(
            self._connections,
            lambda name, context_id: setup.registry.lookup(name, context_id) is not None,
            partial(setup.has_handlers, STARTED),
            partial(setup.notify, STARTED),
        )
        self.local_calls = LocalCalls(self._deps, self.plan, setup.failpoint)
        self._helpers = [
            tasks.create_task(self.statuses.run()),
            tasks.create_task(self.tool_lists.run()),
        ]

    async def end(self) -> None:
        """Stop what still runs. The worker has left, or is about to."""
        self.ended.set()
        await self._deps.handlers.stop(self._setup.stop_secs)
        await self.background.end(self._setup.stop_secs)
        for helper in self._helpers:
            helper.cancel()

    async def close(self) -> None:
        """Close connections, after the task group has ended."""
        self._contexts.close()
        await self._connections.close()

    async def perform(self, job: work.Job[ClaimedCall], session: work.Session) -> work.Ending:
        """Run one claimed call, as `work.Perform` defines it."""
        claimed = job.claimed
        call = _attempt(claimed, session.worker_id)
        try:
            before = await self.statuses.read(call) if claimed.status == "running" else None
            plan = await self.plan(call)
        except DatabaseError as error:
            # Nothing of it was published yet.
            _log.warning("call.status_unreadable", **call.names(), error=str(error))
            return "untried"
        lifecycle = CallLifecycle(
            call,
            plan,
            self._deps,
            JobPublisher(session, job),
            age_secs=claimed.age_secs + time.monotonic() - job.claimed_at,
            started_before=before,
            start_next=job.release_order,
            failpoint=self._setup.failpoint,
            span=job.span,
        )
        began = time.perf_counter()
        job.on_stop_request(lifecycle.request_stop)
        if before is None:
            await self._started.call_begins(call)
        ending = await lifecycle.run()
        if ending in ("done", "over") and (ended_as := lifecycle.ended_as) is not None:
            duration = self._setup.metrics.histogram(listed.TOOL_DURATION, call.function_name, ended_as)
            duration.observe(time.perf_counter() - began)
        return ending

    async def plan(self, call: CallAttempt) -> CallPlan:
        """Returns the plan of a call. It is made when the call starts, so that later registrations count.

        Raises `DatabaseError`."""
        registry = self._setup.registry
        # An application's own tool of that name takes precedence, even if the inference service announced it as built
        # in.
        if call.builtin and not registry.has_its_own(call.function_name):
            item: FunctionCallRegistryItem | None = self._cancel_item(call)
        else:
            item = registry.lookup(call.function_name, call.context_id)
        find_schema = partial(
            self._connections.read,
            tool_lists.advertised_schema,
            call.context_id,
            call.requested_version,
            call.function_name,
        )
        return await plan_call(
            item, call.function_name, call.arguments, self._setup.timeout_secs, find_schema
        )

    def _cancel_item(self, call: CallAttempt) -> FunctionCallRegistryItem:
        """Returns the built-in tool that cancels calls of a function."""
        name = cancel_tools.cancelled_by(call.function_name)
        tool = CancelHandler(
            call,
            name,
            self._connections,
            self.statuses,
            partial(self._service.push_frame, call.context_id, causation_id=call.in_progress_id),
            self._cancelled,
        )

        async def cancel(params: FunctionCallParams) -> str:
            return await tool.cancel(params.arguments.get("tool_call_id"))

        schema = cancel_tools.schema(name)
        overrides = OptionOverrides(cancel_on_interruption=True, safe_to_retry=True)
        return FunctionCallRegistryItem(
            call.function_name, cancel, overrides, schema, checker=checker_of(schema)
        )

    def _params(self, call: CallAttempt, plan: CallPlan, reporter: Reporter) -> FunctionCallParams:
        model = self._setup.model
        return FunctionCallParams(
            call.function_name,
            call.tool_call_id,
            plan.arguments,
            None if model is None else InferenceHandle(model, self._loop),
            PipelineHandle(self._service, call.context_id, self._loop, call.in_progress_id),
            partial(self._contexts.load, call.context_id, call.requested_version),
            reporter,
            self._setup.app_resources,
            context_id=call.context_id,
            idempotency_key=call.idempotency_key,
            call_attempt=call.attempt or 1,
            wait=reporter.wait,
        )


def _attempt(claimed: ClaimedCall, worker_id: str) -> CallAttempt:
    return CallAttempt(
        scope=claimed.effect_id,
        context_id=claimed.context_id,
        requested_version=claimed.requested_version,
        ordinal=claimed.ordinal,
        tool_call_id=claimed.tool_call_id,
        function_name=claimed.function_name,
        arguments=claimed.arguments,
        group_id=claimed.group_id,
        attempt=claimed.call_attempt,
        worker_id=worker_id,
        claim=claimed.claim,
        builtin=claimed.builtin,
        dispatched_by=claimed.causation_id,
        started_by=claimed.started_by,
        deaths=claimed.deaths,
    )
