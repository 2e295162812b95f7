"""Calls that a program announces itself, with everything in memory: errors that servers raise at will."""

import asyncio
from contextlib import asynccontextmanager
from time import monotonic

import pytest
from tests.bounds import IN_PROCESS
from tests.unit.test_functions_lifecycle import InMemory, NoHook, OneCall, said

from frameledger.context import LLMContext
from frameledger.frames import FunctionCallFromLLM
from frameledger_services import failpoints
from frameledger_services.functions import FunctionCallParams, local_calls
from frameledger_services.functions.call_state import BackgroundTasks, CallDependencies
from frameledger_services.functions.execution import HandlerExecutor
from frameledger_services.functions.local_calls import LocalCalls
from frameledger_services.functions.options import Options
from frameledger_services.functions.plan import CallPlan
from frameledger_services.store.connections import DatabaseUnavailableError
from frameledger_services.store.tool_calls import CallSnapshot
from frameledger_services.work import Lease, LeaseLostError


class Started(OneCall):
    """Each start is folded at once, and no call is over."""

    async def read_all(self, calls):
        return [await self.read(call) for call in calls]

    @asynccontextmanager
    async def folding(self, context_id, frame_id, call=None, condition=None):
        folded = asyncio.get_running_loop().create_future()
        if condition is None:
            folded.set_result(
                CallSnapshot(monotonic(), 1, "applied", status="running", worker="w", attempt=0)
            )
        yield folded


class OneSession:
    worker_id = "w"

    def __init__(self):
        self.publisher = InMemory()
        self.lease = Lease(IN_PROCESS, monotonic)
        self.lease.renew(monotonic())


async def run_both(session, plan):
    """Run the calls `f` and `g` of one batch, each by its plan. Returns what that raised."""

    def params(call, plan, reporter):
        return FunctionCallParams("f", "t", {}, None, None, LLMContext, reporter)

    async def nothing(*_): ...

    async with asyncio.timeout(IN_PROCESS), asyncio.TaskGroup() as tasks:
        background = BackgroundTasks(tasks)
        deps = CallDependencies(
            statuses=Started(),
            handlers=HandlerExecutor(),
            cancelled=NoHook(),
            background=background,
            stop_secs=1.0,
            notify=nothing,
            params=params,
        )
        try:
            await LocalCalls(deps, plan, failpoints.none).run(
                session,
                "c",
                [FunctionCallFromLLM(function_name=name, tool_call_id=name, arguments={}) for name in "fg"],
                group_id=None,
                run_in_parallel=True,
                group_parallel_tools=True,
                causation_id=None,
            )
        except Exception as error:
            return error
        finally:
            await background.end(0.0)
    return None


@pytest.mark.regression("worker 7")
def test_a_call_whose_plan_cannot_be_read_waits_and_stops_no_other(monkeypatch):
    monkeypatch.setattr(local_calls, "RETRY_SECONDS", 0.0)

    async def run():
        outages, begun = [DatabaseUnavailableError("The database restarts.")] * 3, asyncio.Event()

        async def pays(params):
            begun.set()
            while outages:
                turn = asyncio.Event()
                asyncio.get_running_loop().call_soon(turn.set)
                await turn.wait()
            return "paid"

        async def plan(call):
            if call.ordinal == 1:
                await begun.wait()
                if outages:
                    raise outages.pop()
            return CallPlan(Options(), IN_PROCESS, function=pays, is_async=True)

        session = OneSession()
        assert await run_both(session, plan) is None
        return session.publisher.frames

    frames = asyncio.run(run())
    assert said(frames).count("FunctionCallResultFrame") == 2
    assert [frame.result for frame in frames if frame.type == "FunctionCallResultFrame"] == ["paid"] * 2


@pytest.mark.regression("worker 7")
def test_a_batch_that_loses_its_lease_raises_that_and_no_group_of_errors():
    session = OneSession()

    async def plan(call):
        session.lease.end()
        raise DatabaseUnavailableError("The database restarts.")

    assert isinstance(asyncio.run(run_both(session, plan)), LeaseLostError)
