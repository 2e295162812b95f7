"""Calls that a program announces itself, in memory: errors that cannot be forced on servers."""

import asyncio
import threading
from contextlib import asynccontextmanager
from time import monotonic

import pytest
from tests.bounds import IN_PROCESS
from tests.support.calls_in_memory import InMemory, OneCall, dependencies, outcomes
from tests.support.turns import turns

from frameledger.frames import FunctionCallFromLLM
from frameledger_services import failpoints
from frameledger_services.functions import announcing
from frameledger_services.functions.call_state import BackgroundTasks
from frameledger_services.functions.local_calls import LocalCalls
from frameledger_services.functions.options import Options
from frameledger_services.functions.plan import CallPlan
from frameledger_services.store.call_snapshots import CallSnapshot
from frameledger_services.store.connections import DatabaseUnavailableError
from frameledger_services.work import Lease, LeaseLostError


class Started(OneCall):
    """Each start is folded at once, and no call is over."""

    async def read(self, call):
        return CallSnapshot(monotonic(), 1, "applied", status="running", worker="w", attempt=0)

    async def read_all(self, calls):
        return [await self.read(call) for call in calls]

    @asynccontextmanager
    async def folding(self, context_id, frame_id, call=None, condition=None):
        folded = asyncio.get_running_loop().create_future()
        if condition is None:
            folded.set_result(await self.read(call))
        yield folded


class Away(Started):
    """The database goes away after the fold of the announcement. Each read asks `is_away` whether it still is."""

    def __init__(self, is_away):
        super().__init__()
        self._is_away = is_away

    async def read_all(self, calls):
        if self._is_away():
            raise DatabaseUnavailableError("The database restarts.")
        return await super().read_all(calls)


class OneSession:
    worker_id = "w"

    def __init__(self):
        self.publisher = InMemory()
        self.lease = Lease(IN_PROCESS, monotonic)
        self.lease.renew(monotonic())


async def both(calls, session, *, run_in_parallel=True):
    """Run the calls `f` and `g` of one batch."""
    await calls.run(
        session,
        "c",
        [FunctionCallFromLLM(function_name=name, tool_call_id=name, arguments={}) for name in "fg"],
        group_id=None,
        run_in_parallel=run_in_parallel,
        group_parallel_tools=True,
        causation_id=None,
    )


async def run_both(session, plan, statuses=None):
    """Run the calls `f` and `g` of one batch, each by its plan. Returns what that raised."""
    async with asyncio.timeout(IN_PROCESS), asyncio.TaskGroup() as tasks:
        background = BackgroundTasks(tasks)
        deps = dependencies(background, statuses or Started())
        try:
            await both(LocalCalls(deps, plan, failpoints.none), session)
        except Exception as error:
            return error
        finally:
            await background.end(0.0)
    return None


@pytest.mark.regression("worker 7")
def test_a_call_whose_plan_cannot_be_read_waits_and_stops_no_other(monkeypatch):
    monkeypatch.setattr(announcing, "RETRY_SECONDS", 0.0)

    async def run():
        outages, begun = [DatabaseUnavailableError("The database restarts.")] * 3, asyncio.Event()

        async def pays(params):
            begun.set()
            while outages:
                await turns(1)
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
    assert outcomes(frames).count("FunctionCallResultFrame") == 2
    assert [frame.result for frame in frames if frame.type == "FunctionCallResultFrame"] == ["paid"] * 2


@pytest.mark.regression("worker 7")
def test_a_batch_that_loses_its_lease_raises_that_and_no_group_of_errors():
    session = OneSession()

    async def plan(call):
        session.lease.end()
        raise DatabaseUnavailableError("The database restarts.")

    assert isinstance(asyncio.run(run_both(session, plan)), LeaseLostError)


@pytest.fixture
def no_time_left(monkeypatch):
    """The time for folding the announcement is over as soon as it is folded."""
    monkeypatch.setattr(announcing, "FOLDED_SECONDS", 0.0)
    monkeypatch.setattr(announcing, "RETRY_SECONDS", 0.0)


@pytest.mark.regression("worker 17")
@pytest.mark.usefixtures("no_time_left")
def test_announced_calls_run_however_long_the_database_is_away_after_the_fold():
    outages, session = [True] * 3, OneSession()

    async def answers(params):
        return "done"

    async def plan(call):
        return CallPlan(Options(), IN_PROCESS, function=answers, is_async=True)

    statuses = Away(lambda: bool(outages) and outages.pop())
    assert asyncio.run(run_both(session, plan, statuses)) is None
    assert outcomes(session.publisher.frames).count("FunctionCallResultFrame") == 2


@pytest.mark.regression("worker 17")
@pytest.mark.usefixtures("no_time_left")
def test_announced_calls_wait_for_the_database_no_longer_than_the_lease():
    outages, session = [True] * 3, OneSession()

    def is_away():
        outages.pop()
        if not outages:
            session.lease.end()
        return True

    async def plan(call):
        raise AssertionError("No call may start.")

    assert isinstance(asyncio.run(run_both(session, plan, Away(is_away))), LeaseLostError)


@pytest.mark.regression("worker 43")
@pytest.mark.parametrize("safe", [True, False])
def test_a_handler_is_stopped_when_the_lease_of_its_worker_ends(safe):
    """The timekeeper settles such a call soon after that, and a model may ask for it again."""

    async def run():
        session, begun, stopped = OneSession(), [], []

        async def waits(params):
            begun.append(params)
            if len(begun) == 2:
                session.lease.end()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                stopped.append(params)
                raise

        async def plan(call):
            return CallPlan(Options(safe_to_retry=safe), 10 * IN_PROCESS, function=waits, is_async=True)

        error = await run_both(session, plan)
        await turns()
        return error, len(stopped), outcomes(session.publisher.frames)

    error, stopped, frames = asyncio.run(run())
    assert isinstance(error, LeaseLostError)
    assert stopped == 2
    assert frames == ["FunctionCallsStartedFrame"] + ["FunctionCallInProgressFrame"] * 2


@pytest.mark.regression("worker 50")
@pytest.mark.parametrize("run_in_parallel", [True, False])
def test_calls_of_a_program_that_no_longer_waits_for_them_are_settled_and_not_left_to_their_deadlines(
    run_in_parallel,
):
    """It is cancelled while the first call runs: the handler is stopped, and the call after it is not run."""

    async def run():
        session, begun, stopped = OneSession(), asyncio.Event(), []

        async def waits(params):
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                stopped.append(params)

        async def plan(call):
            return CallPlan(Options(), 10 * IN_PROCESS, function=waits, is_async=True)

        async with asyncio.timeout(IN_PROCESS), asyncio.TaskGroup() as tasks:
            background = BackgroundTasks(tasks)
            calls = LocalCalls(dependencies(background, Started()), plan, failpoints.none)
            running = asyncio.create_task(both(calls, session, run_in_parallel=run_in_parallel))
            await begun.wait()
            running.cancel()
            await asyncio.wait([running])
            assert running.cancelled()
            await background.end(IN_PROCESS)
        return outcomes(session.publisher.frames), len(stopped)

    frames, stopped = asyncio.run(run())
    assert frames.count("FunctionCallInProgressFrame") == 2
    assert frames.count("ambiguous") == stopped
    assert frames.count("ambiguous") + frames.count("failed") == 2
    assert (stopped == 1) or run_in_parallel


class FoldedLater(Started):
    """The first announcement is folded when the test says so."""

    def __init__(self):
        super().__init__()
        self.first = asyncio.get_running_loop().create_future()
        self._awaited = False

    @asynccontextmanager
    async def folding(self, context_id, frame_id, call=None, condition=None):
        async with super().folding(context_id, frame_id, call, condition) as folded:
            if self._awaited:
                yield folded
            else:
                self._awaited = True
                yield self.first


@pytest.mark.regression("worker 50")
def test_a_program_that_stops_before_its_turn_to_announce_announces_nothing():
    async def run():
        session, begun = OneSession(), []

        async def answers(params):
            begun.append(params)
            return "done"

        async def plan(call):
            return CallPlan(Options(), IN_PROCESS, function=answers, is_async=True)

        async with asyncio.timeout(IN_PROCESS), asyncio.TaskGroup() as tasks:
            background, statuses = BackgroundTasks(tasks), FoldedLater()
            calls = LocalCalls(dependencies(background, statuses), plan, failpoints.none)
            first, second = (
                asyncio.create_task(both(calls, session, run_in_parallel=False)) for _ in range(2)
            )
            while not session.publisher.frames:
                await turns(1)
            second.cancel()
            await asyncio.wait([second])
            statuses.first.set_result(CallSnapshot(monotonic(), 1, "applied"))
            await first
            await background.end(IN_PROCESS)
        return outcomes(session.publisher.frames).count("FunctionCallsStartedFrame"), len(begun)

    assert asyncio.run(run()) == (1, 2)


def test_whoever_waits_for_calls_of_a_service_that_ends_is_told():
    async def run():
        begun = asyncio.Event()

        async def waits(params):
            begun.set()
            await asyncio.Event().wait()

        async def plan(call):
            return CallPlan(Options(), 10 * IN_PROCESS, function=waits, is_async=True)

        async with asyncio.timeout(IN_PROCESS), asyncio.TaskGroup() as tasks:
            background = BackgroundTasks(tasks)
            calls = LocalCalls(dependencies(background, Started()), plan, failpoints.none)
            running = asyncio.create_task(both(calls, OneSession()))
            await begun.wait()
            await background.end(0.0)
            await asyncio.wait([running])
            return running.exception()

    assert isinstance(asyncio.run(run()), LeaseLostError)


@pytest.mark.regression("worker 155")
@pytest.mark.parametrize("is_cancelled", [False, True])
def test_whoever_waits_for_a_plain_function_of_a_service_that_ends_is_told_and_the_service_ends(is_cancelled):
    """The function cannot be stopped, and would be watched until its deadline."""
    begun, may_end = threading.Event(), threading.Event()

    def waits(params):
        begun.set()
        may_end.wait()

    async def plan(call):
        return CallPlan(Options(), 10 * IN_PROCESS, function=waits)

    async def run():
        ready = asyncio.get_running_loop().create_future()

        async def serves():
            async with asyncio.TaskGroup() as tasks:
                background = BackgroundTasks(tasks)
                ready.set_result(background)
                await asyncio.to_thread(begun.wait)
                if is_cancelled:
                    await asyncio.Event().wait()
                await background.end(0.0)

        async with asyncio.timeout(IN_PROCESS):
            service = asyncio.create_task(serves())
            calls = LocalCalls(dependencies(await ready, Started()), plan, failpoints.none)
            waiting = asyncio.create_task(both(calls, OneSession()))
            await asyncio.to_thread(begun.wait)
            if is_cancelled:
                service.cancel()
            await asyncio.wait([waiting, service])
        return waiting.exception()

    try:
        assert isinstance(asyncio.run(run()), LeaseLostError)
    finally:
        may_end.set()


@pytest.mark.regression("worker 155")
def test_wherever_a_service_is_cancelled_whoever_waits_for_its_calls_is_told():
    async def waits(params):
        await asyncio.Event().wait()

    async def plan(call):
        return CallPlan(Options(), 10 * IN_PROCESS, function=waits, is_async=True)

    async def told(after):
        ready = asyncio.get_running_loop().create_future()

        async def serves():
            async with asyncio.TaskGroup() as tasks:
                ready.set_result(BackgroundTasks(tasks))
                await asyncio.Event().wait()

        async with asyncio.timeout(IN_PROCESS):
            service = asyncio.create_task(serves())
            calls = LocalCalls(dependencies(await ready, Started()), plan, failpoints.none)
            waiting = asyncio.create_task(both(calls, OneSession()))
            await turns(after)
            service.cancel()
            await asyncio.wait([waiting, service])
        return waiting.exception()

    for after in range(25):
        error = asyncio.run(told(after))
        assert isinstance(error, LeaseLostError), (after, error)


@pytest.mark.parametrize("run_in_parallel", [True, False])
def test_wherever_a_program_is_cancelled_each_announced_call_is_settled_once(run_in_parallel):
    async def waits(params):
        await asyncio.Event().wait()

    async def plan(call):
        return CallPlan(Options(), 10 * IN_PROCESS, function=waits, is_async=True)

    async def settled(after):
        session = OneSession()
        async with asyncio.timeout(IN_PROCESS), asyncio.TaskGroup() as tasks:
            background = BackgroundTasks(tasks)
            calls = LocalCalls(dependencies(background, Started()), plan, failpoints.none)
            running = asyncio.create_task(both(calls, session, run_in_parallel=run_in_parallel))
            await turns(after)
            running.cancel()
            await asyncio.wait([running])
            await background.end(IN_PROCESS)
        frames = session.publisher.frames
        return [one.tool_call_id for one in frames if one.type == "FunctionCallResultFrame"], bool(frames)

    for after in range(25):
        found, announced = asyncio.run(settled(after))
        assert sorted(found) == (["f", "g"] if announced else []), after


@pytest.mark.regression("worker 51")
@pytest.mark.parametrize("is_over", [False, True])
def test_whoever_waits_for_calls_is_told_if_the_service_ends_before_they_begin(is_over):
    """The task of the calls is cancelled before its first step, or cannot be made any more."""

    async def run():
        session, ready = OneSession(), asyncio.get_running_loop().create_future()

        async def serves():
            async with asyncio.TaskGroup() as tasks:
                ready.set_result(BackgroundTasks(tasks))
                await asyncio.Event().wait()

        async def plan(call):
            raise AssertionError("No call may start.")

        async with asyncio.timeout(IN_PROCESS):
            service = asyncio.create_task(serves())
            calls = LocalCalls(dependencies(await ready, Started()), plan, failpoints.none)
            if is_over:
                service.cancel()
                await asyncio.wait([service])
            waiting = asyncio.create_task(both(calls, session))
            service.cancel()
            await asyncio.wait([waiting])
        return waiting.exception(), session.publisher.frames

    error, frames = asyncio.run(run())
    assert isinstance(error, LeaseLostError)
    assert frames == []


@pytest.mark.regression("worker 179")
@pytest.mark.parametrize("run_in_parallel", [True, False])
def test_calls_of_a_service_that_has_drained_are_not_announced(run_in_parallel):
    """Its worker ends any moment: nobody would settle them before their deadlines."""

    async def plan(call):
        raise AssertionError("No call may start.")

    async def run():
        session = OneSession()
        async with asyncio.timeout(IN_PROCESS), asyncio.TaskGroup() as tasks:
            background = BackgroundTasks(tasks)
            calls = LocalCalls(dependencies(background, Started()), plan, failpoints.none)
            await calls.drain(0.0, 0.0)
            with pytest.raises(LeaseLostError):
                await both(calls, session, run_in_parallel=run_in_parallel)
            await background.end(0.0)
        return session.publisher.frames

    assert asyncio.run(run()) == []
