"""Callers that wait for a worker while its function service stops during an outage."""

import asyncio

import pytest
from tests.bounds import IN_PROCESS
from tests.support.turns import turns

from frameledger.frames import FunctionCallFromLLM, LLMRunFrame
from frameledger_services.functions import FunctionService, NotRunningError
from frameledger_services.functions.call_status import CallStatusReader
from frameledger_services.functions.tool_lists import ToolListFollower
from frameledger_services.settings import Settings
from frameledger_services.work import Worker

ASKING = {
    "push_frame": lambda service: service.push_frame("c", LLMRunFrame()),
    "run_function_calls": lambda service: service.run_function_calls(
        "c", [FunctionCallFromLLM(function_name="f", tool_call_id="t", arguments={})]
    ),
    "set_tools": lambda service: service.set_tools("c", []),
    "worker_id": lambda service: service.worker_id(),
}


@pytest.mark.regression("worker 22")
@pytest.mark.parametrize("asking", ASKING.values(), ids=ASKING)
def test_what_waits_for_a_worker_is_told_when_its_service_stops(monkeypatch, asking):
    async def nothing(*_): ...

    async def without_servers(worker, stopping):
        await stopping.wait()

    monkeypatch.setattr(Worker, "run", without_servers)
    monkeypatch.setattr(CallStatusReader, "run", nothing)
    monkeypatch.setattr(ToolListFollower, "run", nothing)

    async def scenario():
        service, stopping = FunctionService(Settings()), asyncio.Event()
        running = asyncio.create_task(service.run(stopping))
        await turns()
        waiting = asyncio.create_task(asking(service))
        await turns()
        stopping.set()
        await running
        async with asyncio.timeout(IN_PROCESS):
            with pytest.raises(NotRunningError):
                await waiting

    asyncio.run(scenario())


@pytest.mark.regression("worker 22")
@pytest.mark.parametrize("asking", ASKING.values(), ids=ASKING)
def test_a_service_that_was_not_started_says_so(asking):
    async def scenario():
        async with asyncio.timeout(IN_PROCESS):
            with pytest.raises(NotRunningError, match="start"):
                await asking(FunctionService(Settings()))

    asyncio.run(scenario())
