"""Requests of the LLM service, and its open calls: which process runs them, in which order, and until when."""

import asyncio
from concurrent.futures import Future
from uuid import UUID, uuid4

import pytest
from tests.bounds import IN_PROCESS
from tests.support.stored_frame import stored_frame
from tests.support.turns import turns

from frameledger.frames import (
    FunctionCallCancelFrame,
    FunctionCallFromLLM,
    FunctionCallInProgressFrame,
    FunctionCallResultFrame,
    FunctionCallResultProperties,
    FunctionCallsStartedFrame,
    InterruptionFrame,
    Waiting,
)
from frameledger_services.pipecat.answer_listener import AnswerListener
from frameledger_services.pipecat.capture import Capture
from frameledger_services.pipecat.inference_requests import InferenceRequests
from frameledger_services.pipecat.open_calls import OpenCalls
from frameledger_services.pipecat.outbox import Outbox


def take(calls, frame, **stored):
    """Pass a stored frame to the calls."""
    one = stored_frame(frame, **stored)
    calls.take(one, one.frame)


def announced(*ids, parallel=True):
    calls = tuple(FunctionCallFromLLM(function_name=id_, tool_call_id=id_, arguments={}) for id_ in ids)
    return FunctionCallsStartedFrame(function_calls=calls, run_id="r", run_in_parallel=parallel)


def of(kind, id_, **fields):
    return kind(function_name=id_, tool_call_id=id_, **fields)


def begun(id_, **fields):
    return of(FunctionCallInProgressFrame, id_, arguments={}, **fields)


def result(id_, **fields):
    return of(FunctionCallResultFrame, id_, result={"a": 1}, **fields)


def calls_of(*ids, parallel=True, one_by_one=False):
    calls = OpenCalls()
    take(calls, announced(*ids, parallel=parallel))
    calls.begin(ids, "g", one_by_one=one_by_one)
    return calls


async def started_here(calls, id_):
    """The application starts this call, and Pipecat has its start."""
    start = uuid4()

    async def log():
        take(calls, begun(id_), frame_id=start)

    became, _ = await asyncio.gather(calls.outcome_of(start, IN_PROCESS), log())
    assert became.outcome == "applied"
    calls[id_].started_in_pipecat.set()


@pytest.mark.parametrize("end", [result("a"), of(FunctionCallCancelFrame, "a")], ids=["a result", "a cancel"])
def test_a_call_that_the_application_runs_is_forgotten_with_its_end_and_nothing_of_it_piles_up(end):
    async def scene():
        calls = calls_of("a")
        await started_here(calls, "a")
        progress = result("a", properties=FunctionCallResultProperties(is_final=False))
        take(calls, progress)
        assert calls["a"].frames.empty()
        take(calls, end, outcome="ignored", reason="call_unknown")
        assert "a" in calls
        take(calls, end)
        assert "a" not in calls

    asyncio.run(scene())


def test_calls_of_an_answer_that_broke_off_are_forgotten_with_the_next_answer():
    calls = OpenCalls()
    take(calls, announced("a"))
    take(calls, announced("b"))
    calls.begin(["b"], None, one_by_one=False)
    assert "a" not in calls
    assert "b" in calls


def test_an_interruption_is_for_calls_that_have_not_begun_on_the_log():
    calls = calls_of("a", "b")
    take(calls, begun("a"))
    take(calls, InterruptionFrame())
    assert calls["a"].frames.qsize() == 1
    assert isinstance(calls["b"].frames.get_nowait(), InterruptionFrame)


@pytest.mark.parametrize(
    "lets_go",
    [
        result("a"),
        of(FunctionCallCancelFrame, "a"),
        begun("a", waiting=Waiting(**{"for": "a person"})),
        InterruptionFrame(),
    ],
    ids=["it ended", "it was cancelled", "it waits for a person", "it will not begin"],
)
@pytest.mark.parametrize("by_the_worker", [True, False], ids=["the worker says", "the application wants"])
def test_calls_made_one_after_the_other_wait_for_the_one_before(lets_go, by_the_worker):
    async def scene():
        calls = calls_of("a", "b", parallel=not by_the_worker, one_by_one=not by_the_worker)
        await calls.until_turn_of("a")
        if not isinstance(lets_go, InterruptionFrame):
            take(calls, begun("a"))
        order = []

        async def second():
            await calls.until_turn_of("b")
            order.append("b")

        async def log():
            order.append("a")
            take(calls, lets_go)

        async with asyncio.timeout(IN_PROCESS):
            await asyncio.gather(second(), log())
        assert order == ["a", "b"]
        assert [one is calls["b"] for one in calls.others_open("a")] == [True]

    asyncio.run(scene())


def test_calls_made_at_once_wait_for_none():
    asyncio.run(calls_of("a", "b").until_turn_of("b"))


def test_a_start_that_is_not_heard_of_is_not_known():
    async def scene():
        assert await OpenCalls().outcome_of(UUID(int=1), 0.0) is None

    asyncio.run(scene())


def inference_requests():
    """Returns requests that are not published, and the capture that holds them."""
    session = uuid4()
    capture = Capture(lambda error: None)
    return InferenceRequests(
        "call-7", session, capture, Outbox("call-7", session, capture.items, object)
    ), capture


def test_the_first_question_says_its_settings_and_a_later_one_what_changed():
    requests, capture = inference_requests()
    said = []
    for model in ("one", "one", "two"):
        requests.ask({"model": model})
        said.append([fields.get("settings", {}).get("model") for _, _, _, [fields], _ in capture.items])
        capture.items.clear()
    assert said == [["one", None], [None], ["two", None]]


@pytest.mark.regression("bridge 54")
@pytest.mark.parametrize("is_before", [True, False])
def test_an_abandoned_request_is_interrupted_unless_an_interruption_came_after_it(is_before):
    """A user who speaks on just when a turn ends interrupts before the answer to it is requested."""

    async def scene():
        requests, capture = inference_requests()
        requests._following = Future()
        listener = AnswerListener(requests, IN_PROCESS, IN_PROCESS)

        def interrupt():
            capture.interruptions += 1
            capture.add({"type": "InterruptionFrame"})

        asking = asyncio.create_task(listener.ask({}, ()))
        await turns()
        if is_before:
            interrupt()
        requests._ready.set()
        await asking
        if not is_before:
            interrupt()
        listener.abandon()
        return [fields["type"] for _, _, _, [fields], _ in capture.items]

    said = asyncio.run(scene())
    assert said[said.index("LLMRunFrame") :] == ["LLMRunFrame", "InterruptionFrame"]


def test_a_request_is_unpublished_until_the_broker_has_it():
    requests, capture = inference_requests()
    assert not requests.is_unpublished
    requests.ask({})
    assert requests.is_unpublished
    capture.items.clear()
    assert not requests.is_unpublished
    requests.probe()
    assert requests.is_unpublished
