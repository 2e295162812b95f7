"""Functions on the real road: what is on the log in which order, the context, and the ledger."""

import asyncio
import json
import os
import signal
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest
from tests.bounds import ON_SERVERS
from tests.support.killable import projector
from tests.support.road import road_of_its_own  # noqa: F401  # a fixture
from tests.support.toolbench import CONNECTIONS_LEFT_OPEN, QUICK, called, play, serving, stage, talking

from frameledger import derived
from frameledger.frames import (
    FunctionCallCancelFrame,
    FunctionCallInProgressFrame,
    FunctionCallResultFrame,
    FunctionCallResultProperties,
    InterruptionFrame,
    LLMContextAssistantTimestampFrame,
    LLMSetToolsFrame,
    UserStartedSpeakingFrame,
)
from frameledger_services.functions import (
    FunctionCallParams,
    FunctionRegistry,
    ResultRefusedError,
    handler,
    tool_options,
)

BETWEEN = FunctionCallResultProperties(is_final=False, run_llm=False)
STARTED, RESULT, CANCEL = "FunctionCallInProgressFrame", "FunctionCallResultFrame", "FunctionCallCancelFrame"


pytestmark = CONNECTIONS_LEFT_OPEN


@pytest.fixture(scope="module", name="settings")
def a_stage(kafka, database_server, migrated_template):
    with stage(kafka, database_server, migrated_template) as settings:
        yield settings


class Gate:
    """Holds handlers until the test opens it, and counts them."""

    def __init__(self):
        self.open = asyncio.Event()
        self._entries: asyncio.Queue[None] = asyncio.Queue()
        self.inside = 0
        self.entered = 0
        self.cancelled = 0

    async def until_entered(self, times=1):
        async with asyncio.timeout(ON_SERVERS):
            for _ in range(times):
                await self._entries.get()

    async def __call__(self):
        self.entered += 1
        self.inside += 1
        self._entries.put_nowait(None)
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.inside -= 1


# What a handler is, and how it answers.


def test_a_direct_function_answers_by_returning(settings):
    registry = FunctionRegistry()

    @registry.register_direct_function
    async def weather(city: str) -> dict[str, str]:
        """The weather.

        Args:
            city: Where.
        """
        return {"city": city, "sky": "clear"}

    async def scenario(_, talk):
        call = called("weather", {"city": "Oslo"})
        await talk.call(call)
        assert await talk.settled(call.tool_call_id) == ["done"]
        assert await talk.told(call.tool_call_id) == {"city": "Oslo", "sky": "clear"}
        assert [kind for kind, *_ in await talk.log(of=call.tool_call_id)] == [STARTED, RESULT]
        row = await talk.call_row(call.tool_call_id)
        assert (row["attempt"], row["synchronous"], row["safe_to_retry"]) == (1, True, False)
        assert row["timeout_secs"] == 600
        assert len(await talk.open_runs()) == 1

    play(settings, registry, scenario)


def test_a_handler_reports_once_and_is_refused_after_that(settings):
    registry = FunctionRegistry()
    refused = []

    async def handle(params):
        await params.result_callback({"got": dict(params.arguments)})
        try:
            await params.result_callback("again")
        except ResultRefusedError as error:
            refused.append(error)

    registry.register_function("look", handle)

    async def scenario(_, talk):
        call = called("look", '{"a": 1}')
        await talk.call(call)
        assert await talk.settled(call.tool_call_id) == ["done"]
        assert await talk.told(call.tool_call_id) == {"got": {"a": 1}}
        assert [why for _, _, why in await talk.log(of=call.tool_call_id)] == [None, None]
        assert len(refused) == 1

    play(settings, registry, scenario)


def test_a_plain_function_runs_in_a_thread_and_reports_without_await(settings):
    registry = FunctionRegistry()
    threads = []

    def handle(params):
        threads.append(threading.current_thread())
        params.result_callback("half", properties=BETWEEN)
        params.result_callback({"seen": len(params.context.messages)})

    registry.register_function("plain", handle, cancel_on_interruption=False)

    async def scenario(_, talk):
        call = called("plain")
        await talk.call(call)
        assert await talk.settled(call.tool_call_id) == ["done"]
        half, seen = [one["content"] for one in await talk.messages() if one["role"] == "developer"]
        assert "half" in half
        assert json.loads(json.loads(seen)["result"]) == {"seen": 1}
        assert (await talk.call_row(call.tool_call_id))["progress_count"] == 1
        assert threads != [threading.main_thread()]

    play(settings, registry, scenario)


def test_a_synchronous_call_is_refused_a_result_in_between(settings):
    registry = FunctionRegistry()

    async def handle(params):
        with pytest.raises(ResultRefusedError, match="synchronous"):
            await params.result_callback("half", properties=BETWEEN)
        await params.result_callback("whole")

    registry.register_function("whole", handle)

    async def scenario(_, talk):
        call = called("whole")
        await talk.call(call)
        assert await talk.settled(call.tool_call_id) == ["done"]
        assert [kind for kind, *_ in await talk.log(of=call.tool_call_id)] == [STARTED, RESULT]

    play(settings, registry, scenario)


def test_what_a_handler_is_given(settings):
    registry, resources = FunctionRegistry(), object()
    seen: dict[str, object] = {}

    class Model:
        async def start(self): ...
        async def stop(self): ...
        async def run_inference(self, context, max_tokens=None, system_instruction=None):
            return f"{len(context.messages)} messages"

    async def handle(params):
        seen.update(resources=params.app_resources, key=params.idempotency_key, attempt=params.call_attempt)
        seen["said"] = await params.llm.run_inference(await params.read_context())
        seen["context"] = params.context
        seen["service"] = params.pipeline_worker.service
        with pytest.warns(DeprecationWarning, match="app_resources"):
            assert params.tool_resources is params.app_resources
        await params.pipeline_worker.push_frame(LLMContextAssistantTimestampFrame(timestamp="now"), 1)
        await params.result_callback(None)

    registry.register_function("look", handle)

    async def scenario(service, talk):
        call = called("look")
        await talk.call(call)
        await talk.settled(call.tool_call_id)
        assert seen["resources"] is resources
        assert seen["service"] is service
        assert (seen["said"], seen["attempt"]) == ("1 messages", 1)
        assert await talk.told(call.tool_call_id) == "COMPLETED"
        kinds = [kind for kind, *_ in await talk.log()]
        assert kinds.index("LLMContextAssistantTimestampFrame") < kinds.index(RESULT)

    play(settings, registry, scenario, app_resources=resources, llm=Model())


def test_on_context_updated_is_called_once_the_result_is_folded(settings):
    registry, updated = FunctionRegistry(), asyncio.Event()

    async def handle(params):
        async def later():
            updated.set()

        await params.result_callback("x", properties=FunctionCallResultProperties(on_context_updated=later))

    registry.register_function("look", handle)

    async def scenario(_, talk):
        await talk.call(called("look"))
        async with asyncio.timeout(ON_SERVERS):
            await updated.wait()
        assert (await talk.log())[-1][0] == RESULT

    play(settings, registry, scenario)


def test_a_direct_function_may_return_a_whole_result_frame(settings):
    registry = FunctionRegistry()

    @registry.register_direct_function
    def quiet():
        """Says nothing to the model."""
        return FunctionCallResultFrame(function_name="any", tool_call_id="any", result=[1], run_llm=False)

    async def scenario(_, talk):
        call = called("quiet")
        await talk.call(call)
        await talk.settled(call.tool_call_id)
        assert await talk.told(call.tool_call_id) == [1]
        assert await talk.open_runs() == []

    play(settings, registry, scenario)


# How handlers go wrong.


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
        ('{"city": ', "no JSON"),
        ("[1]", "a list"),
        ({"city": 5}, "is not of type 'string'"),
        ({}, "'city' is a required property"),
        ({"city": "Oslo", "unit": "K"}, "is not one of"),
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


def test_one_that_might_still_report_is_cancelled_at_its_deadline(settings):
    registry, cancelled = FunctionRegistry(), []
    kept: list[FunctionCallParams] = []
    registry.register_function("kept", kept.append, timeout_secs=0.5)

    async def scenario(service, talk):
        service.add_event_handler("on_function_calls_cancelled", lambda _, calls: cancelled.append(calls))
        call = called("kept")
        await talk.call(call)
        assert await talk.settled(call.tool_call_id) == ["cancelled"]
        assert await talk.told(call.tool_call_id) == "CANCELLED"
        assert [[one.tool_call_id for one in calls] for calls in cancelled] == [[call.tool_call_id]]
        # A deadline asks, unlike an interruption.
        assert len(await talk.open_runs()) == 1
        with pytest.raises(ResultRefusedError):
            await kept[0].result_callback("late")

    play(settings, registry, scenario)


def test_a_deadline_cancels_the_handler(settings):
    registry, gate = FunctionRegistry(), Gate()

    async def slow(params):
        await gate()

    registry.register_function("slow", slow)

    async def scenario(_, talk):
        call = called("slow")
        await talk.call(call)
        assert await talk.settled(call.tool_call_id) == ["cancelled"]
        assert gate.cancelled == 1
        [cancel] = await talk.payloads(CANCEL)
        assert (cancel["run_llm"], cancel["call_attempt"]) == (True, 1)

    play(settings, registry, scenario, function_call_timeout_secs=0.5)


@pytest.mark.parametrize(("safe", "ending"), [(False, "ambiguous"), (True, "cancelled")])
def test_what_does_not_stop_at_its_deadline_is_not_told_as_undone(settings, safe, ending):
    registry, leave, stubborn_ended = FunctionRegistry(), asyncio.Event(), asyncio.Event()

    async def stubborn(params):
        while not leave.is_set():
            try:
                await leave.wait()
            except asyncio.CancelledError:
                continue
        with pytest.raises(ResultRefusedError):
            await params.result_callback("late")
        stubborn_ended.set()

    registry.register_function("stubborn", stubborn, timeout_secs=0.5, safe_to_retry=safe)

    async def scenario(_, talk):
        call = called("stubborn")
        await talk.call(call)
        assert await talk.settled(call.tool_call_id) == [ending]
        leave.set()
        async with asyncio.timeout(ON_SERVERS):
            await stubborn_ended.wait()

    play(settings, registry, scenario, stop_secs=0.3)


@pytest.mark.parametrize("plain", [True, False])
def test_a_result_that_is_no_json_fails_the_call(settings, plain):
    registry, refused = FunctionRegistry(), []

    async def handle(params):
        with pytest.raises(ResultRefusedError, match="no JSON"):
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
        assert "no JSON" in await talk.told(call.tool_call_id)
        assert len(await talk.payloads("ErrorFrame")) == 1
        assert refused == ([] if plain else [True])

    play(settings, registry, scenario)


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


def test_one_that_blocks_the_loop_for_longer_than_the_lease_keeps_its_call(settings):
    registry = FunctionRegistry()

    async def blocks(params):
        threading.Event().wait(2 * settings.work_lease_secs)
        await params.result_callback("done all the same")

    registry.register_function("blocks", blocks)

    async def scenario(_, talk):
        call = called("blocks")
        await talk.call(call)
        assert await talk.settled(call.tool_call_id) == ["done"]
        assert (await talk.call_row(call.tool_call_id))["attempt"] == 1

    play(settings, registry, scenario)


# Who runs what.


def test_the_catch_all_serves_what_nobody_lists(settings):
    registry = FunctionRegistry()

    async def anything(params):
        await params.result_callback(params.function_name)

    registry.register_function(None, anything)

    async def scenario(_, talk):
        call = called("whatever")
        await talk.call(call)
        assert await talk.settled(call.tool_call_id) == ["done"]
        assert await talk.told(call.tool_call_id) == "whatever"

    play(settings, registry, scenario)


def test_two_services_never_answer_for_each_other(settings):
    ours, theirs = FunctionRegistry(), FunctionRegistry()
    ours.register_direct_function(_named("left"))
    theirs.register_direct_function(_named("right"))

    async def scenario(_, talk):
        left, right = called("left"), called("right")
        await talk.call(left, right)
        assert await talk.settled(left.tool_call_id, right.tool_call_id) == ["done", "done"]
        left_row, right_row = (
            await talk.call_row(left.tool_call_id),
            await talk.call_row(right.tool_call_id),
        )
        assert left_row["worker"] != right_row["worker"]
        assert await talk.told(right.tool_call_id) == "right"

    play(settings, [ours, theirs], scenario)


def _named(name):
    def function():
        return name

    function.__name__ = name
    return function


def test_who_serves_is_looked_up_when_the_call_starts(settings):
    registry, gate = FunctionRegistry(), Gate()

    async def first(params):
        await gate()
        await params.result_callback("first")

    async def old(params):
        await params.result_callback("old")

    async def new(params):
        await params.result_callback("new")

    registry.register_function("first", first)
    registry.register_function("second", old)

    async def scenario(service, talk):
        one, two = called("first"), called("second")
        await talk.call(one, two, run_in_parallel=False)
        await talk.until_running(one.tool_call_id)
        assert (await talk.call_row(two.tool_call_id))["status"] == "announced"
        service.register_function("second", new)
        gate.open.set()
        await talk.settled(one.tool_call_id, two.tool_call_id)
        assert await talk.told(two.tool_call_id) == "new"
        kinds = [kind for kind, *_ in await talk.log() if kind in (STARTED, RESULT)]
        assert kinds == [STARTED, RESULT, STARTED, RESULT]

    play(settings, registry, scenario)


def test_parallel_calls_start_in_the_order_of_the_batch_and_run_the_model_once(settings):
    registry, gate = FunctionRegistry(), Gate()

    async def handle(params):
        await gate()
        await params.result_callback(params.tool_call_id)

    registry.register_function("handle", handle)

    async def scenario(_, talk):
        calls = [called("handle", {"number": number}) for number in range(5)]
        ids = [call.tool_call_id for call in calls]
        await talk.call(*calls)
        await talk.until_running(*ids)
        started = await talk.payloads(STARTED)
        assert [one["tool_call_id"] for one in started] == ids
        gate.open.set()
        await talk.settled(*ids)
        assert gate.entered == 5
        assert len(await talk.open_runs()) == 1

    play(settings, registry, scenario)


def test_tools_that_are_set_are_advertised_and_leave_when_they_are_omitted(settings):
    registry = FunctionRegistry()

    @tool_options(timeout_secs=7, cancel_on_interruption=False)
    async def search(text: str):
        """Searches.

        Args:
            text: For what.
        """
        return f"found {text}"

    async def by_hand(params):
        await params.result_callback("by hand")

    async def scenario(service, talk):
        await service.set_tools(talk.context_id, [search])
        assert service.has_function("search")
        [[functions]] = await talk.rows(
            "SELECT offers -> 'functions' FROM workers WHERE worker_id <> %s AND 'search' = ANY (serves) "
            "AND stopped_at IS NULL"
        )
        assert functions[0]["schema"]["function"]["parameters"]["required"] == ["text"]
        assert functions[0]["options"]["timeout_secs"] == 7
        call = called("search", {"text": "cats"})
        await talk.call(call)
        await talk.settled(call.tool_call_id)
        row = await talk.call_row(call.tool_call_id)
        assert (row["result"], row["synchronous"], row["timeout_secs"]) == ("found cats", False, 7)
        service.register_function("search", by_hand)
        await talk.publish(LLMSetToolsFrame(tools=()))

        async def left():
            return True if not registry.advertising() else None

        await talk.until(left)
        assert service.has_function("search")
        service.unregister_function("search")
        assert not service.has_function("search")

    play(settings, registry, scenario)


# Interruptions.


def test_an_interruption_cancels_what_may_be_cancelled_and_spares_the_rest(settings):
    registry, gate, acts = FunctionRegistry(), Gate(), []

    async def handle(params):
        await gate()
        await params.result_callback("spared")

    registry.register_function("book", handle)
    registry.register_function("search", handle, cancel_on_interruption=False)

    async def scenario(service, talk):
        service.add_event_handler("on_function_calls_cancelled", lambda _, calls: acts.append(calls))
        one, two, spared = called("book"), called("book"), called("search")
        await talk.call(one, two, spared)
        await talk.until_running(one.tool_call_id, two.tool_call_id, spared.tool_call_id)
        await gate.until_entered(3)
        await talk.publish(UserStartedSpeakingFrame(), InterruptionFrame())
        assert await talk.settled(one.tool_call_id, two.tool_call_id) == ["cancelled", "cancelled"]
        assert gate.cancelled == 2
        assert await talk.told(one.tool_call_id) == "CANCELLED"
        assert await talk.open_runs() == []
        assert [cancel.get("run_llm") for cancel in await talk.payloads(CANCEL)] == [None, None]
        gate.open.set()
        assert await talk.settled(spared.tool_call_id) == ["done"]
        [told] = acts
        assert {call.tool_call_id for call in told} == {one.tool_call_id, two.tool_call_id}

    play(settings, registry, scenario)


def test_what_is_interrupted_before_its_start_is_folded_never_runs(settings):
    registry, gate = FunctionRegistry(), Gate()
    claimed, interrupted = asyncio.Event(), asyncio.Event()

    async def pay(params):
        await gate()

    registry.register_function("pay", pay)

    async def scenario(_, talk):
        call = called("pay")
        await talk.call(call)
        async with asyncio.timeout(ON_SERVERS):
            await claimed.wait()
        await talk.publish(InterruptionFrame())
        interrupted.set()
        assert await talk.settled(call.tool_call_id) == ["forgotten"]
        await talk.until_claims_finished()
        assert gate.entered == 0
        # Its start may have been on its way already, or not.
        assert set(await talk.log(of=call.tool_call_id)) <= {(STARTED, "ignored", "call_forgotten")}

    async def failpoint(point):
        if point == "claimed":
            claimed.set()
            await interrupted.wait()

    play(settings, registry, scenario, failpoint=failpoint)


def test_a_read_that_has_become_old_is_no_leave_to_begin(settings, monkeypatch):
    registry, gate, interrupted = FunctionRegistry(), Gate(), asyncio.Event()
    behind = 0.0

    async def pay(params):
        await gate()

    registry.register_function("pay", pay)
    monkeypatch.setattr(handler, "monotonic", lambda: time.monotonic() + behind)

    async def scenario(_, talk):
        call = called("pay")
        await talk.call(call)
        await talk.until_running(call.tool_call_id)
        await talk.publish(InterruptionFrame())
        interrupted.set()
        assert await talk.settled(call.tool_call_id) == ["cancelled"]
        assert gate.entered == 0
        assert await talk.open_runs() == []

    async def failpoint(point):
        nonlocal behind
        if point == "folded":
            # The process froze after the read that said it may begin.
            await interrupted.wait()
            behind = 10.0

    play(settings, registry, scenario, failpoint=failpoint)


def test_a_handler_never_runs_whose_start_is_not_folded_before_its_deadline(road):
    registry, ran, frozen = FunctionRegistry(), [], asyncio.Event()
    settings = road.settings.model_copy(update=QUICK)

    async def pay(params):
        ran.append(params)

    registry.register_function("pay", pay, timeout_secs=1.0)

    with projector(road.settings) as projecting:

        async def scenario(_, talk):
            call = called("pay")
            await talk.call(call)
            async with asyncio.timeout(ON_SERVERS):
                await frozen.wait()
            # The claim is finished once the cancel is on the log.
            await talk.until_claims_finished(at_least=1)
            os.kill(projecting.pid, signal.SIGCONT)
            assert await talk.settled(call.tool_call_id) == ["cancelled"]
            assert await talk.log(of=call.tool_call_id) == [
                (STARTED, "applied", None),
                (CANCEL, "applied", None),
            ]
            assert ran == []

        async def failpoint(point):
            if point == "claimed":
                os.kill(projecting.pid, signal.SIGSTOP)
                frozen.set()

        play(settings, registry, scenario, failpoint=failpoint)


def test_what_was_done_is_never_told_as_cancelled(settings):
    registry, entered, told_to_stop = FunctionRegistry(), asyncio.Event(), asyncio.Event()

    async def pay(params):
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            told_to_stop.set()
            await params.result_callback("paid")

    registry.register_function("pay", pay)

    async def scenario(_, talk):
        call = called("pay")
        await talk.call(call)
        async with asyncio.timeout(ON_SERVERS):
            await entered.wait()
        await talk.publish(InterruptionFrame())
        assert await talk.settled(call.tool_call_id) == ["done"]
        assert await talk.told(call.tool_call_id) == "paid"
        assert told_to_stop.is_set()
        assert await talk.open_runs() == []

    play(settings, registry, scenario)


def test_a_plain_function_that_is_interrupted_finishes_and_is_told_as_done(settings):
    registry, entered, leave = FunctionRegistry(), threading.Event(), threading.Event()

    def pay():
        entered.set()
        assert leave.wait(ON_SERVERS)
        return "paid"

    registry.register_direct_function(pay)

    async def scenario(_, talk):
        call = called("pay")
        await talk.call(call)
        await asyncio.to_thread(entered.wait, 20)
        await talk.publish(InterruptionFrame())
        leave.set()
        assert await talk.settled(call.tool_call_id) == ["done"]
        assert await talk.told(call.tool_call_id) == "paid"

    play(settings, registry, scenario)


def test_somebody_elses_cancel_stops_the_handler(settings):
    registry, gate = FunctionRegistry(), Gate()

    async def handle(params):
        await gate()

    registry.register_function("handle", handle)

    async def scenario(_, talk):
        call = called("handle")
        await talk.call(call)
        await gate.until_entered()
        await talk.publish(FunctionCallCancelFrame(function_name="handle", tool_call_id=call.tool_call_id))

        async def stopped():
            return True if gate.entered and not gate.inside else None

        await talk.until(stopped)
        assert gate.cancelled == 1
        assert [kind for kind, *_ in await talk.log(of=call.tool_call_id)] == [STARTED, CANCEL]

    play(settings, registry, scenario)


# The model cancels.


def test_the_model_cancels_what_it_started(settings):
    registry, gate, acts = FunctionRegistry(), Gate(), []

    async def search(params):
        await gate()

    registry.register_function("search", search, cancel_on_interruption=False, cancellable_by_llm=True)

    async def scenario(service, talk):
        service.add_event_handler("on_function_calls_cancelled", lambda _, calls: acts.append(calls))
        one, two = called("search", {"text": "cats"}), called("search", {"text": "dogs"})
        await talk.call(one, two)
        await gate.until_entered(2)

        which = called("cancel_search", builtin=True)
        await talk.call(which)
        await talk.settled(which.tool_call_id)
        refusal = await talk.told(which.tool_call_id)
        assert "cats" in refusal
        assert two.tool_call_id in refusal

        this = called("cancel_search", {"tool_call_id": one.tool_call_id}, builtin=True)
        await talk.call(this)
        await talk.settled(this.tool_call_id, one.tool_call_id)
        assert "was cancelled" in await talk.told(this.tool_call_id)
        kinds = [(kind, call) for kind, call in await _calls_on_the_log(talk) if kind in (CANCEL, RESULT)]
        assert kinds[-2:] == [(CANCEL, one.tool_call_id), (RESULT, this.tool_call_id)]

        the_other = called("cancel_search", builtin=True)
        await talk.call(the_other)
        await talk.settled(the_other.tool_call_id, two.tool_call_id)

        none = called("cancel_search", builtin=True)
        await talk.call(none)
        await talk.settled(none.tool_call_id)
        assert "no call of `search` is running" in await talk.told(none.tool_call_id)
        assert gate.cancelled == 2
        assert [[call.tool_call_id for call in calls] for calls in acts] == [
            [one.tool_call_id],
            [two.tool_call_id],
        ]
        assert len(await talk.open_runs()) == 1

    play(settings, registry, scenario)


async def _calls_on_the_log(talk):
    return await talk.rows("SELECT type, tool_call_id FROM frames WHERE context_id = %s ORDER BY version")


# Waiting for a person.


def test_a_call_that_waits_for_a_person_is_answered_from_outside(settings):
    registry = FunctionRegistry()
    deadline = datetime.now(UTC) + timedelta(days=1)

    async def approve(params):
        await params.wait(for_="an approval", deadline=deadline)
        with pytest.raises(ResultRefusedError, match="waits for a person"):
            await params.result_callback("by itself")

    registry.register_function("approve", approve, timeout_secs=0.7)

    async def scenario(_, talk):
        call, behind = called("approve"), called("approve")
        await talk.call(call, behind, run_in_parallel=False)
        # The second one of the queue starts although the first one has not settled.
        await talk.settled(call.tool_call_id, behind.tool_call_id, statuses=("waiting",))
        row = await talk.call_row(call.tool_call_id)
        assert (row["waiting_for"], row["waiting_deadline"]) == ("an approval", deadline)
        await talk.until_claims_finished()
        await talk.publish(
            FunctionCallResultFrame(function_name="approve", tool_call_id=call.tool_call_id, result="yes")
        )
        assert await talk.settled(call.tool_call_id) == ["done"]
        assert await talk.told(call.tool_call_id) == "yes"

    play(settings, registry, scenario)


# Calls of a model that somebody else runs.


def test_calls_of_ones_own_model_are_announced_and_run(settings):
    registry, started = FunctionRegistry(), []
    registry.register_direct_function(_named("left"))

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


def test_an_interruption_stops_calls_of_ones_own_model_too(settings):
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


def test_calls_of_ones_own_model_are_finished_before_the_service_leaves(settings):
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


# Two workers, and those that die.


@pytest.mark.parametrize(("safe", "ending"), [(False, "ambiguous"), (True, "done")])
def test_a_worker_that_dies_leaves_an_unsafe_call_ambiguous_and_a_safe_one_to_the_next(
    settings, safe, ending
):
    attempts, entered = [], asyncio.Event()

    async def pay(params):
        attempts.append((params.call_attempt, params.idempotency_key))
        entered.set()
        if params.call_attempt == 1:
            await asyncio.Event().wait()
        await params.result_callback("paid")

    registries = [FunctionRegistry(), FunctionRegistry()]
    for registry in registries:
        registry.register_function("pay", pay, safe_to_retry=safe)

    async def scenario(services, talk):
        call = called("pay")
        await talk.call(call)
        async with asyncio.timeout(ON_SERVERS):
            await entered.wait()
        await talk.until_running(call.tool_call_id)
        row = await talk.call_row(call.tool_call_id)
        [first] = [service for service in services if row["worker"] == (await service.worker_id())]
        await first.cancel()
        assert await talk.settled(call.tool_call_id) == [ending]
        row = await talk.call_row(call.tool_call_id)
        if safe:
            assert [attempt for attempt, _ in attempts] == [1, 2]
            assert len({key for _, key in attempts}) == 1
            assert (row["attempt"], row["result"]) == (2, "paid")
        else:
            assert [attempt for attempt, _ in attempts] == [1]
            assert "Do not call it again" in await talk.told(call.tool_call_id)
        assert len(await talk.open_runs()) == 1

    play(settings, registries, scenario, service=f"pay-{ending}", all_services=True)


@pytest.mark.parametrize(
    ("kind", "ending", "words"),
    [("timekeeper", "failed", "was not run"), ("functions", "ambiguous", "Do not call it again")],
)
def test_an_unsafe_handler_never_begins_where_somebody_had_started_the_call(settings, kind, ending, words):
    registry, ran = FunctionRegistry(), []

    async def pay(params):
        ran.append(params)

    registry.register_function(f"pay_{kind}", pay)

    async def run():
        async with talking(settings) as talk:
            # A worker that is dead by now took the call, and said that it is safe to run again.
            dead, call = f"dead-{kind}", called(f"pay_{kind}")
            await talk.call(call)
            row = await talk.call_row(call.tool_call_id)
            named = (talk.context_id, row["dispatched_version"], call.tool_call_id)
            await talk.execute(
                "INSERT INTO workers (worker_id, service, kind, host, pid, lease_secs, slots, offers, stopped_at) "
                "VALUES (%s, 'gone', %s, 'gone', 1, 1, 1, '{}', clock_timestamp())",
                (dead, kind),
            )
            await talk.execute(
                "INSERT INTO claims (effect_id, kind, context_id, version, tool_call_id, requested_version, "
                "ordinal, service, worker_id) VALUES (%s, 'call', %s, %s, %s, %s, %s, 'gone', %s)",
                (
                    derived.effect_id("call_function", *named),
                    *named,
                    row["requested_version"],
                    row["ordinal"],
                    dead,
                ),
            )
            await talk.publish(
                FunctionCallInProgressFrame(
                    function_name=call.function_name,
                    tool_call_id=call.tool_call_id,
                    arguments={},
                    cancel_on_interruption=True,
                    worker=dead,
                    call_attempt=1,
                    safe_to_retry=True,
                )
            )
            async with serving(settings, registry):
                assert await talk.settled(call.tool_call_id) == [ending]
            assert words in await talk.told(call.tool_call_id)
            assert ran == []

    asyncio.run(run())


def test_a_worker_that_is_judged_dead_stops_its_handler_and_says_nothing_more(settings):
    registry, gate, refused = FunctionRegistry(), Gate(), asyncio.Event()

    async def pay(params):
        try:
            await gate()
        finally:
            with pytest.raises(ResultRefusedError):
                await params.result_callback("late")
            refused.set()

    registry.register_function("pay", pay)

    async def scenario(service, talk):
        call = called("pay")
        await talk.call(call)
        await gate.until_entered()
        await talk.execute(
            "UPDATE workers SET stopped_at = clock_timestamp() WHERE worker_id = %s",
            (await service.worker_id(),),
        )
        # Its next life takes over what the one before had begun, and knows no more than anybody else.
        assert await talk.settled(call.tool_call_id) == ["ambiguous"]
        assert gate.cancelled == 1
        assert refused.is_set()
        assert [kind for kind, *_ in await talk.log(of=call.tool_call_id)] == [STARTED, RESULT]

    play(settings, registry, scenario)


def test_a_drain_waits_for_unsafe_work_and_tells_what_it_breaks_off(settings):
    registry, gate = FunctionRegistry(), Gate()

    async def slow(params):
        await gate()

    registry.register_function("slow", slow)
    hurried = settings.model_copy(update={"work_drain_secs": 0.3})

    async def scenario(service, talk):
        call = called("slow")
        await talk.call(call)
        await gate.until_entered()
        await service.stop()
        assert await talk.settled(call.tool_call_id) == ["ambiguous"]
        assert gate.cancelled == 1

    play(hurried, registry, scenario)
