"""An application's hooks for calls, each called once per group of calls."""

import asyncio

import pytest

from frameledger_services.functions.call_frames import CallAttempt
from frameledger_services.functions.notifications import CancelledHook


def attempt(ordinal):
    return CallAttempt(
        scope=f"effect-{ordinal}",
        context_id="ctx",
        requested_version=1,
        ordinal=ordinal,
        tool_call_id=f"call-{ordinal}",
        function_name="look_up",
        arguments={},
        group_id=None,
        attempt=1,
        worker_id="worker",
    )


@pytest.mark.regression("worker 172")
def test_a_call_that_is_taken_over_while_its_batch_is_being_cancelled_is_in_the_hook_of_the_batch():
    told = []

    class Connections:
        async def read(self, *_):
            return {(1, 0), (1, 1)}

    async def hook(calls):
        told.append([call.tool_call_id for call in calls])

    async def run():
        here, taken_over = attempt(0), attempt(1)
        async with asyncio.TaskGroup() as tasks:
            cancelled = CancelledHook(Connections(), tasks.create_task, hook)
            cancelled.call_begins(here)
            await cancelled.interrupted(here, 5)
            cancelled.call_begins(taken_over)
            await cancelled.interrupted(taken_over, 5)
            for call in (here, taken_over):
                cancelled.cancelled(call, 5)
                cancelled.call_ended(call)
        assert told == [["call-0", "call-1"]]

    asyncio.run(run())
