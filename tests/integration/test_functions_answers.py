"""How handlers answer: by returning, by reporting, with intermediate results, and by waiting for a person."""

import asyncio
import json
import threading
from datetime import UTC, datetime, timedelta

import pytest
from tests.bounds import ON_SERVERS, scaled
from tests.support.function_harness import (
    CONNECTIONS_LEFT_OPEN,
    called,
    play,
    stage_settings,  # noqa: F401  # a fixture
)

from frameledger.frames import (
    FunctionCallResultFrame,
    FunctionCallResultProperties,
    LLMContextAssistantTimestampFrame,
)
from frameledger_services.functions import FunctionRegistry, ResultRefusedError

BETWEEN = FunctionCallResultProperties(is_final=False, run_llm=False)
STARTED, RESULT = "FunctionCallInProgressFrame", "FunctionCallResultFrame"

pytestmark = CONNECTIONS_LEFT_OPEN


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


@pytest.mark.regression("journey 128")
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
        seen["conversation"] = params.context_id
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
        assert seen["conversation"] == talk.context_id
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


def test_a_call_that_waits_for_a_person_is_answered_from_outside(settings):
    registry = FunctionRegistry()
    deadline = datetime.now(UTC) + timedelta(days=1)

    async def approve(params):
        await params.wait(for_="an approval", deadline=deadline)
        with pytest.raises(ResultRefusedError, match="waits for a person"):
            await params.result_callback("by itself")

    registry.register_function("approve", approve, timeout_secs=scaled(20.0))

    async def scenario(_, talk):
        call, behind = called("approve"), called("approve")
        await talk.call(call, behind, run_in_parallel=False)
        # The second call of the queue starts although the first one, which waits, has not settled.
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
