"""What an interruption, a client or the model cancels, and what is finished instead."""

import asyncio
import os
import signal
import threading
import time
from functools import partial

from tests.bounds import ON_SERVERS
from tests.support.function_harness import (
    CONNECTIONS_LEFT_OPEN,
    QUICK,
    Gate,
    called,
    play,
    stage_settings,  # noqa: F401  # a fixture
    until_begun,
)
from tests.support.killable import projector
from tests.support.pipeline import own_pipeline  # noqa: F401  # a fixture

from frameledger.frames import FunctionCallCancelFrame, InterruptionFrame, UserStartedSpeakingFrame
from frameledger_services.functions import FunctionRegistry, handler

STARTED, RESULT, CANCEL = "FunctionCallInProgressFrame", "FunctionCallResultFrame", "FunctionCallCancelFrame"

pytestmark = CONNECTIONS_LEFT_OPEN


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
        # Its start may have been published before the interruption arrived, or not at all.
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
            # As if the process froze after the read that allowed the handler to begin.
            await interrupted.wait()
            behind = 10.0

    play(settings, registry, scenario, failpoint=failpoint)


def test_a_handler_never_runs_whose_start_is_not_folded_before_its_deadline(pipeline):
    settings, ran = pipeline.settings.model_copy(update=QUICK), []

    async def pay(params):
        ran.append(params)

    def attempt(projecting, deadline):
        registry, frozen, ended = FunctionRegistry(), asyncio.Event(), []
        registry.register_function("pay", pay, timeout_secs=deadline)

        async def scenario(_, talk):
            call = called("pay")
            await talk.call(call)
            async with asyncio.timeout(ON_SERVERS):
                await frozen.wait()
            # The claim is finished once the cancel is on the log.
            await talk.until_claims_finished(at_least=1)
            os.kill(projecting.pid, signal.SIGCONT)
            ended.extend(await talk.settled(call.tool_call_id))
            ended.append(await talk.log(of=call.tool_call_id))

        async def failpoint(point):
            if point == "claimed":
                os.kill(projecting.pid, signal.SIGSTOP)
                frozen.set()

        play(settings, registry, scenario, failpoint=failpoint)
        assert ran == []
        status, log = ended
        # Failed: its deadline had passed before its start.
        assert status == "failed" or log == [(STARTED, "applied", None), (CANCEL, "applied", None)], log
        return status == "cancelled"

    with projector(pipeline.settings) as projecting:
        until_begun(partial(attempt, projecting))


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
        assert await asyncio.to_thread(entered.wait, ON_SERVERS)
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
