"""Calls of a program's own model (`run_function_calls`): one queue across batches, interruptions, groups, drain."""

import asyncio
from typing import Any

import pytest
from tests.bounds import ON_SERVERS
from tests.support.function_harness import (
    CONNECTIONS_LEFT_OPEN,
    Gate,
    called,
    play,
    returning,
    stage_settings,  # noqa: F401  # a fixture
)

from frameledger.frames import InterruptionFrame, LLMContextEraseFrame, LLMSetLimitsFrame
from frameledger_services.functions import CallsRefusedError, FunctionRegistry
from frameledger_services.store.valid_to import FOR_EVER

pytestmark = CONNECTIONS_LEFT_OPEN

ANNOUNCED, STARTED, RESULT, CANCEL = (
    "FunctionCallsStartedFrame",
    "FunctionCallInProgressFrame",
    "FunctionCallResultFrame",
    "FunctionCallCancelFrame",
)


class Booking:
    """A handler that queues the id of each call, and waits until the test releases a call."""

    def __init__(self):
        self.entered: asyncio.Queue[str] = asyncio.Queue()
        self.leave = asyncio.Semaphore(0)

    async def __call__(self, params):
        self.entered.put_nowait(params.tool_call_id)
        await self.leave.acquire()
        await params.result_callback("booked")

    async def next(self):
        return await asyncio.wait_for(self.entered.get(), ON_SERVERS)


async def calls_of(talk):
    """Returns type and call id of the frames of calls in order, without announcements."""
    query = "SELECT type, tool_call_id FROM frames WHERE context_id = %s AND tool_call_id IS NOT NULL ORDER BY version"
    return await talk.rows(query)


@pytest.mark.regression("call c")
def test_local_calls_are_one_queue_across_batches(settings):
    registry, book = FunctionRegistry(), Booking()
    registry.register_function("book", book)

    async def scenario(service, talk):
        calls = [called("book", tool_call_id=str(number)) for number in range(4)]

        async def announced(count):
            log = [kind for kind, *_ in await talk.log()]
            return True if log.count(ANNOUNCED) == count else None

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(service.run_function_calls(talk.context_id, calls[:2]))
            assert await book.next() == "0"
            tasks.create_task(service.run_function_calls(talk.context_id, calls[2:]))
            await talk.until(lambda: announced(2))
            for number in ("1", "2", "3"):
                book.leave.release()
                assert await book.next() == number
            book.leave.release()
        assert await talk.settled("0", "1", "2", "3") == ["done"] * 4
        assert await calls_of(talk) == [(kind, one) for one in "0123" for kind in (STARTED, RESULT)]

    play(settings, registry, scenario, run_in_parallel=False)


@pytest.mark.regression("fault 153")
@pytest.mark.parametrize("in_parallel", [True, False])
def test_an_erasure_stops_local_calls_and_who_waits_for_them_goes_on(settings, in_parallel):
    registry, stopped = FunctionRegistry(), []
    begun: asyncio.Queue[str] = asyncio.Queue()

    async def book(params):
        begun.put_nowait(params.tool_call_id)
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(params.tool_call_id)

    registry.register_function("book", book)

    async def scenario(service, talk):
        calls = [called("book", tool_call_id=str(number)) for number in range(2)]
        running = asyncio.create_task(service.run_function_calls(talk.context_id, calls))
        async with asyncio.timeout(ON_SERVERS):
            for _ in range(2 if in_parallel else 1):
                await begun.get()
            await talk.publish(LLMContextEraseFrame(why="asked to"))
            await running
        assert sorted(stopped) == (["0", "1"] if in_parallel else ["0"])
        assert begun.empty()

    play(settings, registry, scenario, run_in_parallel=in_parallel)


@pytest.mark.regression("call c")
def test_a_local_call_that_waits_for_a_person_lets_the_next_batch_go_on(settings):
    registry = FunctionRegistry()

    async def approve(params):
        await params.wait(for_="an approval")

    registry.register_function("approve", approve)
    registry.register_direct_function(quick)

    async def scenario(service, talk):
        first, second = called("approve"), called("quick")
        async with asyncio.TaskGroup() as tasks:
            for one in (first, second):
                tasks.create_task(service.run_function_calls(talk.context_id, [one]))
        assert await talk.settled(second.tool_call_id) == ["done"]
        assert (await talk.call_row(first.tool_call_id))["status"] == "waiting"

    play(settings, registry, scenario, run_in_parallel=False)


def quick():
    return "quick"


@pytest.mark.regression("call c")
@pytest.mark.parametrize("safe", [True, False])
def test_of_an_interrupted_queue_of_local_calls_nothing_starts_any_more(settings, safe):
    registry, book = FunctionRegistry(), Booking()
    registry.register_function("book", book, safe_to_retry=safe)

    async def scenario(service, talk):
        calls = [called("book", tool_call_id=str(number)) for number in range(3)]
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(service.run_function_calls(talk.context_id, calls[:2]))
            assert await book.next() == "0"
            tasks.create_task(service.run_function_calls(talk.context_id, calls[2:]))
            await talk.settled("2", statuses=("announced",))
            await talk.publish(InterruptionFrame())
        assert await talk.settled("0", "1", "2") == ["cancelled", "forgotten", "forgotten"]
        assert await calls_of(talk) == [(STARTED, "0"), (CANCEL, "0")]
        assert book.entered.empty()

    play(settings, registry, scenario, run_in_parallel=False)


@pytest.mark.regression("call d")
def test_a_late_result_of_a_local_call_after_an_interruption_asks_for_nothing(settings):
    registry, entered = FunctionRegistry(), asyncio.Event()

    async def pay(params):
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await params.result_callback("paid")

    registry.register_function("pay", pay)

    async def scenario(service, talk):
        call = called("pay")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(service.run_function_calls(talk.context_id, [call]))
            await asyncio.wait_for(entered.wait(), ON_SERVERS)
            await talk.publish(InterruptionFrame())
        assert await talk.settled(call.tool_call_id) == ["done"]
        assert await talk.told(call.tool_call_id) == "paid"
        assert await talk.open_runs() == []

    play(settings, registry, scenario)


@pytest.mark.parametrize("grouped", [True, False])
def test_the_model_goes_on_after_each_call_of_a_batch_that_is_no_group(settings, grouped):
    registry, book = FunctionRegistry(), Booking()
    registry.register_function("book", book)
    registry.register_direct_function(quick)

    async def scenario(service, talk):
        slow, fast = called("book"), called("quick")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(service.run_function_calls(talk.context_id, [slow, fast]))
            assert await talk.settled(fast.tool_call_id) == ["done"]
            assert bool(await talk.open_runs()) is not grouped
            book.leave.release()
        assert await talk.settled(slow.tool_call_id) == ["done"]
        assert len(await talk.open_runs()) == 1

    play(settings, registry, scenario, group_parallel_tools=grouped)


def test_a_queue_of_local_calls_is_worked_off_before_the_service_leaves(settings):
    registry, book = FunctionRegistry(), Booking()
    registry.register_function("book", book)

    async def scenario(service, talk):
        calls = [called("book", tool_call_id=str(number)) for number in range(2)]
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(service.run_function_calls(talk.context_id, calls))
            assert await book.next() == "0"
            tasks.create_task(service.stop())
            book.leave.release()
            assert await book.next() == "1"
            book.leave.release()
        assert await talk.settled("0", "1") == ["done", "done"]

    play(settings, registry, scenario, run_in_parallel=False)


@pytest.mark.regression("worker 19")
@pytest.mark.parametrize(("safe", "first"), [(False, "ambiguous"), (True, "failed")])
def test_what_a_service_that_leaves_has_no_time_for_is_told_as_not_run(settings, safe, first):
    registry, book = FunctionRegistry(), Booking()
    registry.register_function("book", book, safe_to_retry=safe)
    hasty = settings.model_copy(update={"work_drain_secs": 0.0})

    async def scenario(service, talk):
        calls = [called("book", tool_call_id=str(number)) for number in range(2)]
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(service.run_function_calls(talk.context_id, calls))
            assert await book.next() == "0"
            tasks.create_task(service.stop())
        assert await talk.settled("0", "1") == [first, "failed"]
        assert ("did not finish" in await talk.told("0")) is safe
        assert "was not run" in await talk.told("1")
        assert book.entered.empty()

    play(hasty, registry, scenario, run_in_parallel=False)


def test_the_model_of_local_calls_cancels_them_by_the_name_of_the_tool_alone(settings):
    registry, book = FunctionRegistry(), Booking()
    told: list[tuple[str, list[Any]]] = []
    registry.register_function("book", book, cancel_on_interruption=False, cancellable_by_llm=True)

    async def scenario(service, talk):
        service.add_event_handler(
            "on_function_calls_started", lambda _, calls: told.append(("started", calls))
        )
        service.add_event_handler(
            "on_function_calls_cancelled", lambda _, calls: told.append(("cancelled", calls))
        )
        booking, cancel = called("book"), called("cancel_book")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(service.run_function_calls(talk.context_id, [booking]))
            await book.next()
            await service.run_function_calls(talk.context_id, [cancel])
        assert await talk.settled(booking.tool_call_id, cancel.tool_call_id) == ["cancelled", "done"]
        assert (await talk.call_row(cancel.tool_call_id))["builtin"] is True
        # Neither event has the cancel tool.
        assert [(what, [call.tool_call_id for call in calls]) for what, calls in told] == [
            ("started", [booking.tool_call_id]),
            ("cancelled", [booking.tool_call_id]),
        ]
        assert len(await talk.open_runs()) == 1

    play(settings, registry, scenario)


async def unsettled(talk):
    """Returns the calls that still run, and the messages that show one as running."""
    calls = await talk.rows(
        "SELECT tool_call_id FROM tool_calls WHERE context_id = %s AND status IN ('running', 'announced')"
    )
    messages = await talk.rows(
        "SELECT message FROM messages WHERE context_id = %s AND message->>'content' = 'IN_PROGRESS'"
        f" AND valid_to = {FOR_EVER}"
    )
    return calls, messages


@pytest.mark.regression("fold 3")
def test_calls_whose_announcement_is_refused_are_not_run_and_the_caller_is_told_why(settings):
    registry, ran = FunctionRegistry(), []
    registry.register_function("note", lambda params: ran.append(params.tool_call_id))

    async def scenario(service, talk):
        await talk.publish(LLMSetLimitsFrame(rounds=1))
        await service.run_function_calls(talk.context_id, [called("note", tool_call_id="a1")])
        with pytest.raises(CallsRefusedError, match="too_many_rounds") as refused:
            await service.run_function_calls(talk.context_id, [called("note", tool_call_id="a2")])
        assert (refused.value.reason, refused.value.tool_call_ids) == ("too_many_rounds", ("a2",))
        assert ran == ["a1"]
        assert await unsettled(talk) == ([], [])

    play(settings, registry, scenario)


@pytest.mark.regression("fold 3")
@pytest.mark.parametrize("run_in_parallel", [True, False])
def test_a_call_whose_id_is_open_already_is_not_run_and_the_others_of_its_batch_are(
    settings, run_in_parallel
):
    registry, book = FunctionRegistry(), Booking()
    registry.register_function("book", book)
    registry.register_direct_function(quick)

    async def scenario(service, talk):
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(service.run_function_calls(talk.context_id, [called("book", tool_call_id="0")]))
            assert await book.next() == "0"
            again = [called("book", tool_call_id="0"), called("quick", tool_call_id="1")]
            assert await refused_ids(service, talk, again[:1]) == ("call_open_already", ("0",))
            second = tasks.create_task(refused_ids(service, talk, again))
            await talk.settled("1", statuses=("announced", "done"))
            book.leave.release()
        assert second.result() == ("call_open_already", ("0",))
        assert await talk.settled("0", "1") == ["done", "done"]
        assert book.entered.empty()
        assert await unsettled(talk) == ([], [])

    play(settings, registry, scenario, run_in_parallel=run_in_parallel)


async def refused_ids(service, talk, calls):
    with pytest.raises(CallsRefusedError) as refused:
        await service.run_function_calls(talk.context_id, calls)
    return refused.value.reason, refused.value.tool_call_ids


def test_local_calls_are_announced_and_run(settings):
    registry, started = FunctionRegistry(), []
    registry.register_direct_function(returning("left"))

    async def scenario(service, talk):
        service.add_event_handler("on_function_calls_started", lambda _, calls: started.append(calls))
        await service.run_function_calls(talk.context_id, [])
        assert await talk.log() == []
        left, nobody = called("left"), called("nobody_has_this")
        await service.run_function_calls(talk.context_id, [left, nobody])
        assert await talk.settled(left.tool_call_id, nobody.tool_call_id) == ["done", "failed"]
        assert (
            await talk.told(nobody.tool_call_id)
            == "The function `nobody_has_this` is not currently available."
        )
        assert [[call.tool_call_id for call in calls] for calls in started] == [
            [left.tool_call_id, nobody.tool_call_id]
        ]
        assert [kind for kind, *_ in await talk.log()][:2] == ["FunctionCallsStartedFrame", STARTED]

    play(settings, registry, scenario)


def test_an_interruption_stops_local_calls_too(settings):
    registry, gate = FunctionRegistry(), Gate()

    async def handle(params):
        await gate()

    registry.register_function("handle", handle)

    async def scenario(service, talk):
        call = called("handle")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(service.run_function_calls(talk.context_id, [call]))
            await gate.until_entered()
            await talk.publish(InterruptionFrame())
        assert await talk.settled(call.tool_call_id) == ["cancelled"]
        assert gate.cancelled == 1

    play(settings, registry, scenario)


def test_local_calls_are_finished_before_the_service_leaves(settings):
    registry, gate = FunctionRegistry(), Gate()

    async def handle(params):
        await gate()
        await params.result_callback("in time")

    registry.register_function("handle", handle)

    async def scenario(service, talk):
        call = called("handle")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(service.run_function_calls(talk.context_id, [call]))
            await gate.until_entered()
            tasks.create_task(service.stop())
            gate.open.set()
        assert await talk.settled(call.tool_call_id) == ["done"]

    play(settings, registry, scenario)
