"""How a claimed call becomes a lifecycle, without servers."""

import asyncio
from types import SimpleNamespace

import pytest
from tests.bounds import IN_PROCESS

from frameledger_services.claims import ClaimedCall
from frameledger_services.functions import FunctionService, runtime
from frameledger_services.functions.call_status import CallStatusReader
from frameledger_services.functions.runtime import Runtime
from frameledger_services.functions.tool_lists import ToolListFollower
from frameledger_services.settings import Settings
from frameledger_services.store.connections import DatabaseRefusedError
from frameledger_services.work import Job

CALL = ClaimedCall(
    effect_id="e",
    context_id="c",
    version=2,
    requested_version=1,
    ordinal=0,
    tool_call_id="t",
    function_name="f",
    arguments="{}",
    group_id=None,
    run_id=None,
    call_attempt=1,
    age_secs=5.0,
    status="dispatched",
    safe_to_retry=None,
    interrupted=False,
    builtin=False,
    started_by=None,
    claim="claim",
    causation_id=None,
)


@pytest.mark.regression("worker 13")
def test_the_time_between_claim_and_turn_counts_for_the_deadline(monkeypatch):
    ages = []

    class Lifecycle:
        ended_as = None

        def __init__(self, *_, age_secs, **__):
            ages.append(age_secs)

        def request_stop(self, why): ...

        async def run(self):
            return "done"

    async def nothing(*_): ...

    monkeypatch.setattr(runtime, "CallLifecycle", Lifecycle)
    monkeypatch.setattr(Runtime, "plan", nothing)
    job = Job(CALL)
    # It waited for its turn for a minute.
    job.claimed_at -= 60.0
    assert ending_of(job, monkeypatch) == "done"
    [age] = ages
    assert age >= 65.0


@pytest.mark.regression("worker 120")
def test_why_a_call_cannot_be_read_and_is_released_is_logged(monkeypatch, caplog):
    async def refuses(*_):
        raise DatabaseRefusedError("permission denied")

    monkeypatch.setattr(Runtime, "plan", refuses)
    assert ending_of(Job(CALL), monkeypatch) == "untried"
    assert "permission denied" in caplog.text


def ending_of(job, monkeypatch):
    async def nothing(*_): ...

    monkeypatch.setattr(CallStatusReader, "run", nothing)
    monkeypatch.setattr(ToolListFollower, "run", nothing)

    async def run():
        service = FunctionService(Settings())
        async with asyncio.timeout(IN_PROCESS), asyncio.TaskGroup() as tasks:
            running = Runtime(service._setup, service, tasks)
            ending = await running.perform(job, SimpleNamespace(worker_id="w"))
            await running.end()
        await running.close()
        return ending

    return asyncio.run(run())
