"""Failures of handlers: exceptions, silence, lateness, invalid results, and arguments that do not match."""

import asyncio
import os
import threading
from contextlib import suppress
from time import monotonic

import psycopg
import pytest
from tests.bounds import ON_SERVERS
from tests.support.function_harness import (
    CONNECTIONS_LEFT_OPEN,
    Gate,
    called,
    play,
    stage_settings,  # noqa: F401  # a fixture
    until_begun,
)
from tests.support.tiers import long

from frameledger.frames import LLMSetToolsFrame
from frameledger_services.functions import FunctionCallParams, FunctionRegistry, ResultRefusedError

CANCEL = "FunctionCallCancelFrame"
pytestmark = CONNECTIONS_LEFT_OPEN


def test_one_that_raises_says_only_that_it_failed_and_the_details_are_on_the_log(settings):
    registry = FunctionRegistry()

    def pay():
        raise RuntimeError("the password is hunter2")

    registry.register_direct_function(pay)

    async def scenario(_, talk):
        call = called("pay")
        await talk.call(call)
        assert await talk.settled(call.tool_call_id) == ["failed"]
        assert await talk.told(call.tool_call_id) == "The function `pay` failed."
        [error] = await talk.payloads("ErrorFrame")
        assert (error.get("fatal"), error["code"]) == (None, "function_failed")
        assert "hunter2" in error["message"]
        assert len(await talk.open_runs()) == 1

    play(settings, registry, scenario)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ('{"city": ', "not JSON"),
        long("[1]", "a list"),
        ({"city": 5}, "is not of type 'string'"),
        long({}, "'city' is a required property"),
        long({"city": "Oslo", "unit": "K"}, "is not one of"),
        pytest.param({"town": "Oslo"}, "'city' is a required", marks=pytest.mark.regression("worker 80")),
    ],
)
def test_bad_arguments_are_told_to_the_model_and_run_nothing(settings, arguments, complaint):
    registry, ran = FunctionRegistry(), []
    parameters = {
        "type": "object",
        "properties": {"city": {"type": "string"}, "unit": {"enum": ["C", "F"]}},
        "required": ["city"],
    }
    tool = {"type": "function", "function": {"name": "weather", "parameters": parameters}}
    if "town" in arguments:
        # As Anthropic describes it: adapters of both providers take that form too.
        tool = {"name": "weather", "input_schema": parameters}

    async def handle(params):
        ran.append(params)

    # Registered without a schema: the one that the model was given counts.
    registry.register_function("weather", handle)

    async def scenario(_, talk):
        await talk.publish(LLMSetToolsFrame(tools=(tool,)))
        call = called("weather", arguments)
        await talk.call(call)
        assert await talk.settled(call.tool_call_id) == ["failed"]
        assert complaint in await talk.told(call.tool_call_id)
        assert ran == []

    play(settings, registry, scenario)


def test_one_that_returns_without_reporting_settles_when_nothing_can_report(settings):
    registry, tasks, returned = FunctionRegistry(), [], asyncio.Event()

    async def silent(params):
        assert params.arguments == {}

    async def later(params):
        async def report(callback):
            await returned.wait()
            await callback("in the end")

        tasks.append(asyncio.create_task(report(params.result_callback)))

    registry.register_function("silent", silent)
    registry.register_function("later", later)

    async def scenario(_, talk):
        one, two = called("silent"), called("later")
        await talk.call(one, two)
        assert await talk.settled(one.tool_call_id) == ["done"]
        await talk.until_running(two.tool_call_id)
        returned.set()
        assert await talk.settled(two.tool_call_id) == ["done"]
        assert await talk.told(one.tool_call_id) == "COMPLETED"
        assert await talk.told(two.tool_call_id) == "in the end"

    play(settings, registry, scenario)


@pytest.mark.long
def test_one_that_might_still_report_is_cancelled_at_its_deadline(settings):
    def attempt(deadline):
        registry, cancelled = FunctionRegistry(), []
        kept: list[FunctionCallParams] = []
        registry.register_function("kept", kept.append, timeout_secs=deadline)

        async def scenario(service, talk):
            service.add_event_handler("on_function_calls_cancelled", lambda _, calls: cancelled.append(calls))
            call = called("kept")
            await talk.call(call)
            status = await talk.settled(call.tool_call_id)
            if not kept:
                return
            assert status == ["cancelled"]
            assert await talk.told(call.tool_call_id) == "CANCELLED"
            assert [[one.tool_call_id for one in calls] for calls in cancelled] == [[call.tool_call_id]]
            # A deadline requests a run, unlike an interruption.
            assert len(await talk.open_runs()) == 1
            with pytest.raises(ResultRefusedError):
                await kept[0].result_callback("late")

        play(settings, registry, scenario)
        return bool(kept)

    until_begun(attempt)


def test_a_deadline_cancels_the_handler(settings):
    def attempt(deadline):
        registry, gate = FunctionRegistry(), Gate()

        async def slow(params):
            await gate()

        registry.register_function("slow", slow)

        async def scenario(_, talk):
            call = called("slow")
            await talk.call(call)
            status = await talk.settled(call.tool_call_id)
            if gate.entered:
                assert (status, gate.cancelled) == (["cancelled"], 1)
                [cancel] = await talk.payloads(CANCEL)
                assert (cancel["run_llm"], cancel["call_attempt"]) == (True, 1)

        play(settings, registry, scenario, function_call_timeout_secs=deadline)
        return bool(gate.entered)

    until_begun(attempt)


@pytest.mark.parametrize(("safe", "ending"), [(False, "ambiguous"), (True, "cancelled")])
def test_what_does_not_stop_at_its_deadline_is_not_told_as_undone(settings, safe, ending):
    def attempt(deadline):
        registry, leave, stubborn_ended = FunctionRegistry(), asyncio.Event(), asyncio.Event()
        begun = []

        async def stubborn(params):
            begun.append(params.tool_call_id)
            while not stubborn_ended.is_set():
                # It is asked to stop more than once, also while it reports.
                with suppress(asyncio.CancelledError):
                    await leave.wait()
                    with pytest.raises(ResultRefusedError):
                        await params.result_callback("late")
                    stubborn_ended.set()

        registry.register_function("stubborn", stubborn, timeout_secs=deadline, safe_to_retry=safe)

        async def scenario(_, talk):
            call = called("stubborn")
            await talk.call(call)
            status = await talk.settled(call.tool_call_id)
            if begun:
                assert status == [ending]
                leave.set()
                async with asyncio.timeout(ON_SERVERS):
                    await stubborn_ended.wait()

        play(settings, registry, scenario, stop_secs=0.3)
        return bool(begun)

    until_begun(attempt)


@pytest.mark.parametrize("plain", [True, False])
def test_a_result_that_is_no_json_fails_the_call(settings, plain):
    registry, refused = FunctionRegistry(), []

    async def handle(params):
        with pytest.raises(ResultRefusedError, match="not JSON"):
            await params.result_callback(object())
        refused.append(True)

    def direct():
        return {"at": float("nan")}

    registry.register_function("handle", handle)
    registry.register_direct_function(direct)

    async def scenario(_, talk):
        call = called("direct" if plain else "handle")
        await talk.call(call)
        assert await talk.settled(call.tool_call_id) == ["failed"]
        assert "not JSON" in await talk.told(call.tool_call_id)
        assert len(await talk.payloads("ErrorFrame")) == 1
        assert refused == ([] if plain else [True])

    play(settings, registry, scenario)


@pytest.mark.long
def test_five_megabytes_are_a_result_and_nine_are_not(settings):
    registry = FunctionRegistry()

    @registry.register_direct_function
    def much(megabytes: int):
        return "x" * (megabytes * 1_000_000)

    async def scenario(_, talk):
        five, nine = called("much", {"megabytes": 5}), called("much", {"megabytes": 9})
        await talk.call(five, nine)
        assert await talk.settled(five.tool_call_id, nine.tool_call_id) == ["done", "failed"]
        assert len(await talk.told(five.tool_call_id)) == 5_000_000
        assert "too large" in await talk.told(nine.tool_call_id)

    play(settings, registry, scenario)


def test_one_that_blocks_the_loop_keeps_its_call_since_heartbeats_go_on(settings):
    """It blocks until a heartbeat has renewed the lease, not until a lease would have ended: on a busy machine a short
    lease may end."""
    registry = FunctionRegistry()

    async def blocks(params):
        address = settings.database_url.get_secret_value()
        with psycopg.connect(address, autocommit=True) as connection:
            [[began]] = connection.execute("SELECT clock_timestamp()").fetchall()
            give_up_at = monotonic() + ON_SERVERS
            while monotonic() < give_up_at:
                beats = connection.execute(
                    "SELECT FROM live_workers() WHERE pid = %s AND heartbeat_at > %s + interval '1 second'",
                    (os.getpid(), began),
                )
                if beats.rowcount:
                    break
                threading.Event().wait(0.05)
            else:
                raise AssertionError("there was no heartbeat while the loop was blocked")
        await params.result_callback("done all the same")

    registry.register_function("blocks", blocks)

    async def scenario(_, talk):
        call = called("blocks")
        await talk.call(call)
        assert await talk.settled(call.tool_call_id) == ["done"]
        assert (await talk.call_row(call.tool_call_id))["attempt"] == 1

    play(settings, registry, scenario)
