"""One life of the function service: what there is while it runs, and how a claimed call becomes a `Calling`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from psycopg import AsyncConnection

from frameledger.tools import tool_name
from frameledger_services import cancel_tools, work
from frameledger_services.claims import ClaimedCall
from frameledger_services.failpoints import Failpoint
from frameledger_services.functions.acts import Acts
from frameledger_services.functions.advertised import Advertised
from frameledger_services.functions.announced import Announced
from frameledger_services.functions.call_frames import Call
from frameledger_services.functions.calling import Calling
from frameledger_services.functions.cancelling import CancelTool
from frameledger_services.functions.contexts import Contexts
from frameledger_services.functions.given import InContext, InferenceHandle
from frameledger_services.functions.handling import Handlers
from frameledger_services.functions.ledger import NAME, Ledger
from frameledger_services.functions.options import Options
from frameledger_services.functions.own_calls import OwnCalls
from frameledger_services.functions.params import FunctionCallParams, FunctionServiceLike
from frameledger_services.functions.planning import Plan, planned
from frameledger_services.functions.registry import (
    FunctionCallRegistryItem,
    FunctionRegistry,
    Schema,
    checker_of,
)
from frameledger_services.functions.reporting import Reporter
from frameledger_services.functions.surroundings import SessionHands, Surroundings
from frameledger_services.functions.tails import Tails
from frameledger_services.providers.service import LLMService
from frameledger_services.settings import Settings
from frameledger_services.store.connections import Connections, DatabaseError
from frameledger_services.store.contexts import loads

STARTED = "on_function_calls_started"

FORWARD_SECS = 0.1
"""How soon a job that was told to stop hears a stronger reason."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What a service was made with."""

    settings: Settings
    registry: FunctionRegistry
    timeout_secs: float
    stop_secs: float
    app_resources: Any
    model: LLMService[Any] | None
    notify: Callable[..., Awaitable[None]]
    has_handlers: Callable[[str], bool]
    failpoint: Failpoint


class Running:
    """Made in a task group, which it needs until `end`."""

    def __init__(self, terms: Terms, service: FunctionServiceLike, tasks: asyncio.TaskGroup) -> None:
        self._terms = terms
        self._service = service
        self._loop = asyncio.get_running_loop()
        self._contexts = Contexts(terms.settings)
        self._handlers = Handlers()
        self.reading = Connections(terms.settings, NAME)
        self.tails = Tails(tasks)
        self.ledger = Ledger(terms.settings, self.reading)
        self.advertised = Advertised(terms.registry, self.reading)
        self._cancelled = partial(terms.notify, "on_function_calls_cancelled")
        self._around = Surroundings(
            self.ledger,
            self._handlers,
            Acts(self.reading, self.tails, self._cancelled),
            self.tails,
            terms.stop_secs,
            terms.notify,
            self._params,
        )
        self._announced = Announced(
            self.reading,
            lambda name, context_id: terms.registry.lookup(name, context_id) is not None,
            partial(terms.has_handlers, STARTED),
            partial(terms.notify, STARTED),
        )
        self.own_calls = OwnCalls(self._around, self.plan, terms.failpoint)
        self._helpers = [
            tasks.create_task(self.ledger.run()),
            tasks.create_task(self.advertised.run()),
        ]

    async def end(self) -> None:
        """Stop what goes on. The worker has left, or is about to."""
        await self._handlers.stop(self._terms.stop_secs)
        await self.tails.end(self._terms.stop_secs)
        for helper in self._helpers:
            helper.cancel()

    async def close(self) -> None:
        """Close connections, once nothing reads any more."""
        self._contexts.close()
        await self.reading.close()

    async def perform(self, job: work.Job[ClaimedCall], session: work.Session) -> work.Ending:
        """One claimed call, as `work.Perform` has it."""
        claimed = job.claimed
        call = _call(claimed, session.worker_id)
        try:
            before = await self.ledger.standing(call) if claimed.status == "running" else None
            plan = await self.plan(call)
        except DatabaseError:
            # Nothing was said of it yet.
            return "untried"
        calling = Calling(
            call,
            plan,
            self._around,
            SessionHands(session, job),
            age_secs=claimed.age_secs,
            started_before=before,
            release_order=job.release_order,
            failpoint=self._terms.failpoint,
        )
        forwarding = self.tails.start(_forward(job, calling))
        try:
            if before is None:
                await self._announced.begins(call)
            return await calling.run()
        finally:
            forwarding.cancel()

    async def plan(self, call: Call) -> Plan:
        """Looked up when the call starts, so that what was registered meanwhile counts. Raises `DatabaseError`."""
        # An application's own tool of that name wins, whoever the inference service took it for.
        if call.builtin and not self._terms.registry.has_its_own(call.function_name):
            item: FunctionCallRegistryItem | None = self._cancel_item(call)
        else:
            item = self._terms.registry.lookup(call.function_name, call.context_id)
        find_schema = partial(self.reading.read, _advertised_schema, call)
        return await planned(item, call.function_name, call.arguments, self._terms.timeout_secs, find_schema)

    def _cancel_item(self, call: Call) -> FunctionCallRegistryItem:
        """The built-in tool that cancels calls of a function. What it does it does once, so it is safe to retry."""
        name = cancel_tools.cancelled_by(call.function_name)
        tool = CancelTool(
            call,
            name,
            self.reading,
            self.ledger,
            partial(self._service.push_frame, call.context_id),
            self._cancelled,
        )

        async def cancel(params: FunctionCallParams) -> str:
            return await tool.cancel(params.arguments.get("tool_call_id"))

        schema = cancel_tools.schema(name)
        options = Options(cancel_on_interruption=True, safe_to_retry=True)
        return FunctionCallRegistryItem(
            call.function_name, cancel, options, schema, checker=checker_of(schema)
        )

    def _params(self, call: Call, plan: Plan, reporter: Reporter) -> FunctionCallParams:
        model = self._terms.model
        return FunctionCallParams(
            call.function_name,
            call.tool_call_id,
            plan.arguments,
            None if model is None else InferenceHandle(model, self._loop),
            InContext(self._service, call.context_id, self._loop),
            partial(self._contexts.load, call.context_id, call.requested_version),
            reporter,
            self._terms.app_resources,
            idempotency_key=call.idempotency_key,
            call_attempt=call.attempt or 1,
            wait=reporter.wait,
        )


def _call(claimed: ClaimedCall, worker_id: str) -> Call:
    return Call(
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
    )


async def _forward(job: work.Job[ClaimedCall], calling: Calling) -> None:
    """Tell the call when its job is to stop, and when the reason becomes a stronger one."""
    await job.stop.wait()
    told: work.StopReason | None = None
    while True:
        if job.why is not None and job.why != told:
            told = job.why
            calling.tell(told)
        await asyncio.sleep(FORWARD_SECS)


async def _advertised_schema(connection: AsyncConnection[Any], call: Call) -> Schema | None:
    """The tool that the model was given under the call's name; null if there is none in that form."""
    cursor = await connection.execute(
        "SELECT setting_at(%s, 'tools', %s)::text", (call.context_id, call.requested_version)
    )
    row = await cursor.fetchone()
    tools = loads(row[0]) if row is not None and row[0] is not None else None
    for tool in tools or ():
        if (
            isinstance(tool, dict)
            and tool.get("type") == "function"
            and tool_name(tool) == call.function_name
        ):
            return tool
    return None
