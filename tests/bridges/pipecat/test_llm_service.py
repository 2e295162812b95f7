"""`FrameledgerLLMService` on real servers: a Pipecat pipeline asks and inference workers answer."""

import ast
import asyncio
import dataclasses
import gc
import inspect
import json
import signal
from contextlib import asynccontextmanager

import pytest
from pipecat.adapters.schemas.function_schema import FunctionSchema
from pipecat.adapters.schemas.tools_schema import ToolsSchema
from pipecat.frames.frames import (
    FunctionCallCancelFrame,
    FunctionCallFromLLM,
    FunctionCallInProgressFrame,
    FunctionCallResultFrame,
    LLMContextFrame,
    LLMSummarizeContextFrame,
    LLMUpdateSettingsFrame,
    UserStartedSpeakingFrame,
    UserStoppedSpeakingFrame,
)
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.services.llm_service import LLMService
from pipecat.services.settings import LLMSettings
from pipecat.utils.context.llm_context_summarization import LLMContextSummaryConfig
from tests.bounds import IN_PROCESS, ON_SERVERS, scaled
from tests.bridges.pipecat.bots import Bot, until
from tests.bridges.pipecat.recording import Broker, as_bytes, stored_bytes
from tests.bridges.pipecat.test_examples import environment  # noqa: F401  # a fixture
from tests.bridges.pipecat.test_restored import PAGE, all_of, in_sql, run_in_pipeline, wire
from tests.support.answerers import QUICK, Plan, answerer
from tests.support.function_harness import CONNECTIONS_LEFT_OPEN
from tests.support.pages import blocks
from tests.support.tiers import long

from frameledger_services.client import BrokerError
from frameledger_services.functions import FunctionService
from frameledger_services.inference.service import InferenceService
from frameledger_services.pipecat import FrameledgerLLMService, FrameledgerObserver
from frameledger_services.pipecat.llm import ANOTHER_CONTEXT
from frameledger_services.pipecat.service_calls import NOT_RECORDED
from frameledger_services.providers.script import Script
from frameledger_services.providers.scripted import ScriptedLLMService

pytestmark = CONNECTIONS_LEFT_OPEN


def fields_of(kind):
    return {one.name for one in dataclasses.fields(kind)}


@pytest.fixture(scope="module", autouse=True)
def _what_is_left_open_is_found_here():
    yield
    gc.collect()


def script(*replies):
    return Script.model_validate({"replies": replies})


@asynccontextmanager
async def answering(settings, model, *others):
    """Run an inference worker and other services during the block."""
    stopping = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(InferenceService(settings, model).run(stopping))
        for one in others:
            tasks.create_task(one.run(stopping))
        yield model
        stopping.set()


class Talk:
    """A bot that is answered by inference workers."""

    def __init__(self, ledger, context, llm, speaks=False):
        self.ledger, self.llm = ledger, llm
        self.bot = Bot(speaks=speaks, context=context, service=llm)
        self.errors = []
        self.ended = 0
        self.texts = []
        llm.add_event_handler("on_after_push_frame", self._pushed)

    @classmethod
    async def made(cls, settings, context_id="call-7", tools=None, speaks=False, **options):
        ledger = FrameledgerObserver(context_id, settings)
        llm = FrameledgerLLMService(ledger, **options)
        return cls(ledger, await ledger.restore(tools=tools), llm, speaks)

    async def ask(self, text, answers=1):
        """Play a user turn and wait for its answers; the first one can call functions."""
        count = self.ended
        await self.bot.say(text)
        await until(lambda: self.ended >= count + answers)
        await self.bot.settle()

    def _pushed(self, _, frame):
        name = type(frame).__name__
        self.ended += name == "LLMFullResponseEndFrame"
        if name == "LLMTextFrame":
            self.texts.append(frame.text)
        if name == "ErrorFrame":
            self.errors.append(frame.error)

    async def check(self, settings):
        """Check that the tables equal Pipecat's context."""
        stored = await all_of(settings, self.ledger)
        messages = self.bot.context.messages
        assert stored_bytes(map(wire, stored.context.messages)) == as_bytes(messages)
        assert self.ledger.lost == {}
        return messages


async def made_as_the_page_says():
    """The lines of the page that create the service."""
    [lines] = [one.text for one in blocks(PAGE) if "FrameledgerLLMService(ledger)" in one.text]
    code = compile(lines, str(PAGE), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)

    async def get_weather(params):
        """Say the weather."""

    names = {"get_weather": get_weather}
    await eval(code, names)
    return Talk(names["ledger"], names["context"], names["llm"])


@pytest.mark.servers
def test_a_worker_of_ours_answers_a_turn(settings, environment):  # noqa: F811
    model = ScriptedLLMService(
        script=script(
            {"say": [{"thought": "Hm.", "signature": "s", "keep": True}, {"text": "Yes, at 22:40."}]}
        )
    )

    async def scene():
        talk = await made_as_the_page_says()

        async def play(bot):
            await bot.queue(LLMUpdateSettingsFrame(delta=LLMSettings(system_instruction="Know the trains.")))
            await talk.ask("Is there a night train?")

        async with answering(settings, model):
            await talk.bot.run(play)
        assert talk.errors == []
        messages = await talk.check(settings)
        assert [wire(one).get("content") for one in messages if isinstance(one, dict)] == [
            "Is there a night train?",
            "Yes, at 22:40.",
        ]
        # Settings made before the first question reach the worker, too.
        stored = await all_of(settings, talk.ledger)
        assert stored.context.settings["system_instruction"] == "Know the trains."

    run_in_pipeline(settings, scene)
    assert in_sql(settings, "SELECT status, model FROM runs") == [("ended", "scripted")]
    told = in_sql(
        settings,
        "SELECT type, count(*) FROM frames WHERE type LIKE 'LLMFullResponse%%' OR type = 'LLMRunFrame' GROUP BY 1",
    )
    assert dict(told) == {
        "LLMRunFrame": 1,
        "LLMFullResponseStartFrame": 1,
        "LLMFullResponseEndFrame": 1,
    }


@pytest.mark.servers
def test_an_interruption_closes_the_models_stream_and_what_was_heard_stays(settings):
    say = [{"text": "One two three four"}, {"fail": "timeout"}]
    model = ScriptedLLMService(
        script=script({"when": {"user": "Count"}, "say": say}, {"say": [{"text": "Gladly."}]})
    )

    async def scene():
        talk = await Talk.made(settings, speaks=True)
        talk.ledger.note(flow={"node": "menu"})
        talk.bot.speaker.stops_after = 2

        async def play(bot):
            await bot.say("Count.")
            await bot.speaker.stopped.wait()
            await bot.until_heard(2)
            await bot.interrupt()
            await until(lambda: model.open_streams == 0)
            await talk.ask("Thank you.")

        async with answering(settings, model):
            await talk.bot.run(play)
        assert talk.errors == []
        messages = await talk.check(settings)
        assert [one["content"] for one in messages] == ["Count.", "One two", "Thank you.", "Gladly."]

        # A process that dies during an answer leaves an open run; the next process stops it.
        doomed = await Talk.made(settings, speaks=True)
        assert doomed.ledger.restored.noted["flow"] == {"node": "menu"}
        assert [one["content"] for one in doomed.bot.context.messages] == [one["content"] for one in messages]
        doomed.bot.speaker.stops_after = 2

        async def die(bot):
            await bot.say("Count.")
            await bot.speaker.stopped.wait()
            try:
                await bot.until_heard(2)
                await until(lambda: doomed.ledger.lag == 0)
                heir = await Talk.made(settings, speaks=True)
                await until(lambda: model.open_streams == 0)
                restored = [one["content"] for one in heir.bot.context.messages]
                assert restored[4:] == ["Count.", "One two"]
                await heir.bot.run(lambda _: heir.ask("Thank you."))
                await heir.check(settings)
            finally:
                await bot.interrupt()

        async with answering(settings, model):
            await doomed.bot.run(die)

    run_in_pipeline(settings, scene)
    ended = in_sql(settings, "SELECT status FROM runs ORDER BY requested_version")
    assert ended == [("interrupted",), ("ended",), ("interrupted",), ("ended",)]


@pytest.mark.servers
@pytest.mark.parametrize("run_in_parallel", [True, long(False)], ids=["at once", "one after the other"])
def test_functions_of_the_application_and_of_our_services_run_once_each(settings, run_in_parallel):
    both = [
        {"call": "weather", "arguments": {"city": "Brindle"}},
        {"call": "order", "arguments": {"what": "tea"}},
        {"call": "lamp"},
    ]
    model = ScriptedLLMService(
        run_in_parallel=run_in_parallel,
        script=script(
            {"when": {"user": "Both"}, "say": [{"text": "I look."}, *both]},
            {"when": {"user": "Nobody"}, "say": [{"call": "nobody"}]},
            {"when": {"result_of": "nobody"}, "say": [{"text": "I cannot."}]},
            {"when": {"result_of": "order"}, "say": [{"text": "Rain, and tea."}]},
            {"when": {"result_of": "weather"}, "say": [{"text": "Rain, and tea."}]},
            {"when": {"result_of": "lamp"}, "say": [{"text": "Rain, and tea."}]},
        ),
    )
    made = []

    async def weather(params):
        made.append(("weather", params.arguments))
        await params.result_callback({"sky": "rain"})

    async def lamp(params):
        made.append(("lamp", {}))
        await params.result_callback({"lit": True})

    async def order(params):
        made.append(("order", dict(params.arguments)))
        await params.result_callback({"ordered": True})

    async def scene():
        tools = [FunctionSchema(name, "", {}, []) for name in ("weather", "order", "lamp", "nobody")]
        talk = await Talk.made(settings, tools=ToolsSchema(standard_tools=tools), begin_secs=scaled(5.0))
        talk.llm.register_function("weather", weather)
        talk.llm.register_function("lamp", lamp)
        functions = FunctionService(settings)
        functions.register_function("order", order)

        async def play(_):
            await talk.ask("Both, please.", answers=2)
            await talk.ask("Nobody.", answers=2)

        async with answering(settings, model, functions):
            await talk.bot.run(play)
        assert talk.errors == []
        messages = await talk.check(settings)
        results = {one["tool_call_id"]: one["content"] for one in messages if one["role"] == "tool"}
        assert sorted(results.values())[0].startswith('"No service offers')
        assert sorted(results.values())[1:] == ['{"lit": true}', '{"ordered": true}', '{"sky": "rain"}']
        assert [one["content"] for one in messages if one["role"] == "assistant" and "content" in one] == [
            "I look.",
            "Rain, and tea.",
            "I cannot.",
        ]

    run_in_pipeline(settings, scene)
    expected = [("weather", {"city": "Brindle"}), ("order", {"what": "tea"}), ("lamp", {})]
    if run_in_parallel:
        assert sorted(made) == sorted(expected)
    else:
        assert made == expected
    calls = in_sql(settings, "SELECT function_name, status FROM tool_calls ORDER BY 1")
    assert calls == [("lamp", "done"), ("nobody", "done"), ("order", "done"), ("weather", "done")]
    twice = in_sql(
        settings,
        "SELECT type, count(*) FROM frames WHERE type LIKE 'FunctionCall%%' AND outcome = 'applied' GROUP BY 1",
    )
    assert dict(twice) == {
        "FunctionCallsStartedFrame": 2,
        "FunctionCallInProgressFrame": 4,
        "FunctionCallResultFrame": 4,
    }


@pytest.mark.servers
@pytest.mark.parametrize("has_ended", [False, True], ids=["while it runs there", "when it is over there"])
def test_a_function_that_a_service_has_too_runs_once(settings, has_ended):
    """The service starts the call first; the start frame of the application is late."""
    model = ScriptedLLMService(
        script=script(
            {"when": {"user": "Order"}, "say": [{"call": "order"}]},
            {"when": {"result_of": "order"}, "say": [{"text": "It is ordered."}]},
        )
    )
    made, told = [], asyncio.Event()

    async def order_here(params):
        made.append("here")
        await params.result_callback({"by": "the application"})

    async def order_there(params):
        made.append("there")
        if not has_ended:
            await told.wait()
        await params.result_callback({"by": "the service"})

    async def scene():
        tools = ToolsSchema(standard_tools=[FunctionSchema("order", "", {}, [])])
        talk = await Talk.made(settings, tools=tools, begin_secs=ON_SERVERS)
        talk.llm.register_function("order", order_here)
        functions = FunctionService(settings)
        functions.register_function("order", order_there)
        calls = talk.llm._calls
        start = calls._start

        async def late(one):
            call = calls._calls[one.tool_call_id]
            if has_ended:
                await call.lets_the_next_begin.wait()
            else:
                await until(lambda: call.is_started_on_log)
            found = await start(one)
            told.set()
            return found

        calls._start = late
        async with answering(settings, model, functions):
            await talk.bot.run(lambda _: talk.ask("Order tea.", answers=2))
        assert talk.errors == []
        messages = await talk.check(settings)
        assert [one["content"] for one in messages if one["role"] == "tool"] == ['{"by": "the service"}']
        assert messages[-1]["content"] == "It is ordered."

    run_in_pipeline(settings, scene)
    assert made == ["there"]
    assert in_sql(settings, "SELECT function_name, status FROM tool_calls") == [("order", "done")]
    late_start = in_sql(
        settings, "SELECT reason FROM frames WHERE outcome = 'ignored' AND starts_with(type, 'Func')"
    )
    assert late_start == [("target_over" if has_ended else "call_started",)]


@pytest.mark.servers
def test_a_worker_that_is_killed_in_the_middle_is_taken_over_and_no_word_comes_twice(settings, tmp_path):
    words = "The night train leaves at 22:40 from platform four."
    path = tmp_path / "script.json"
    path.write_text(json.dumps({"replies": [{"say": [{"text": words}]}]}))
    # Each word is a frame, so that some words are output before the worker dies.
    settings = settings.model_copy(update={"inference_script": path, "inference_merge_ms": 0} | QUICK)

    async def scene():
        talk = await Talk.made(settings, begin_secs=ON_SERVERS)

        async def play(_):
            with answerer(
                settings, Plan("published LLMTextFrame"), make=ScriptedLLMService.configured
            ) as dies:
                asked = asyncio.create_task(talk.ask("When?"))
                assert await asyncio.to_thread(dies.ended) == -signal.SIGKILL
                await until(lambda: bool(talk.texts))
                with answerer(settings, make=ScriptedLLMService.configured) as lives:
                    await asked
                    assert await asyncio.to_thread(lives.stop) == 0

        await talk.bot.run(play)
        assert talk.errors == []
        assert "".join(talk.texts) == words
        messages = await talk.check(settings)
        assert [one["content"] for one in messages] == ["When?", words]

    run_in_pipeline(settings, scene)
    assert in_sql(settings, "SELECT status, attempt FROM runs") == [("ended", 2)]


@pytest.mark.servers
def test_a_summary_of_the_context_is_asked_for_outside_of_it_and_is_on_the_log(settings):
    model = ScriptedLLMService(
        script=script(
            {"when": {"user": "Conversation history"}, "say": [{"text": "They spoke of trains."}]},
            {"say": [{"text": "At nine."}]},
        )
    )
    config = LLMContextSummaryConfig(summarization_prompt="Sum up.")

    async def scene():
        talk = await Talk.made(settings, begin_secs=ON_SERVERS)

        async def play(bot):
            await talk.ask("When does it leave?")
            await talk.ask("And the next one?")
            await talk.ask("And the last?")
            await bot.queue(LLMSummarizeContextFrame(config))
            await until(lambda: "They spoke of trains." in str(bot.context.messages))
            await talk.ask("And back?")

        async with answering(settings, model):
            await talk.bot.run(play)
        assert talk.errors == []
        messages = await talk.check(settings)
        assert [one["content"] for one in messages[-3:]] == ["At nine.", "And back?", "At nine."]
        # The summary replaces the first two of six messages.
        assert len(messages) == 7

    run_in_pipeline(settings, scene)
    [(aside, first, system)] = in_sql(
        settings,
        "SELECT context_id, payload -> 'metadata' ->> 'aside_of',"
        " payload -> 'context' -> 'settings' ->> 'system_instruction'"
        " FROM frames WHERE type = 'LLMContextFrame'",
    )
    assert aside.startswith("call-7-aside-")
    assert (first, system) == ("call-7", "Sum up.")
    answered = in_sql(settings, "SELECT context_id, count(*), min(status) FROM runs GROUP BY 1 ORDER BY 1")
    assert answered == [("call-7", 4, "ended"), (aside, 1, "ended")]
    said = in_sql(settings, "SELECT said FROM transcript WHERE context_id = %s ORDER BY version", aside)
    assert said[-1] == ("They spoke of trains.",)
    assert in_sql(settings, "SELECT ended FROM contexts WHERE context_id = %s", aside) == [(True,)]


@pytest.mark.servers
def test_who_is_not_answered_is_told_and_a_late_worker_is_stopped(settings):
    model = ScriptedLLMService(script=script({"say": [{"text": "Here I am."}]}))

    async def scene():
        talk = await Talk.made(settings, begin_secs=scaled(1.5))

        async def play(_):
            # On a busy machine a question may not be stored in time, which is another error.
            while talk.errors[-1:] != [f"No inference worker started to answer within {scaled(1.5):g} s."]:
                await talk.ask("Is anybody there?")
            assert talk.texts == []
            async with answering(settings, model):
                while not talk.texts:
                    await talk.ask("And now?")

        await talk.bot.run(play)
        await talk.check(settings)

    run_in_pipeline(settings, scene)
    statuses = [one for (one,) in in_sql(settings, "SELECT status FROM runs ORDER BY requested_version")]
    assert (statuses[0], statuses[-1]) == ("interrupted", "ended")


class Away(Broker):
    """Neither broker nor database responds."""

    async def publish(self, context_id, *frames, within):
        raise BrokerError("no broker answers")

    async def newest_version(self, context_id):
        return 0

    async def follow(self, context_id, version):
        await asyncio.Event().wait()
        yield


def test_without_a_broker_the_pipeline_is_told_and_goes_on():
    async def scene():
        ledger = FrameledgerObserver("call-7", connect=Away)
        talk = Talk(ledger, LLMContext(), FrameledgerLLMService(ledger, begin_secs=0.3))

        async def play(_):
            await talk.ask("Is anybody there?")
            await talk.ask("And now?")

        async with asyncio.timeout(IN_PROCESS):
            await talk.bot.run(play)
        assert [one.partition(":")[0] for one in talk.errors] == ["Kafka cannot be reached"] * 2
        assert [one["role"] for one in talk.bot.context.messages] == ["user", "user"]

    asyncio.run(scene())


def test_run_inference_has_the_parameters_of_this_release_of_pipecat():
    theirs, ours = (
        list(inspect.signature(one.run_inference).parameters) for one in (LLMService, FrameledgerLLMService)
    )
    assert ours[: len(theirs)] == theirs


def test_a_response_schema_is_ignored_with_a_warning_as_by_any_service_that_cannot_enforce_it(caplog):
    async def scene():
        ledger = FrameledgerObserver("call-7", connect=Away)
        llm = FrameledgerLLMService(ledger, begin_secs=0.1)
        assert not getattr(llm, "supports_response_schema", False)
        with pytest.raises(BrokerError):
            await llm.run_inference(LLMContext(), response_schema={"type": "object"})
        await ledger.finish()

    asyncio.run(scene())
    assert "response_schema is not supported and is ignored" in caplog.text


class NobodyAnswers(Away):
    """Broker and database work, and there is no inference worker."""

    async def publish(self, context_id, *frames, within):
        await Broker.publish(self, context_id, *frames, within=within)


class NoTables(Away):
    """The broker works and the database does not respond."""

    async def publish(self, context_id, *frames, within):
        await Broker.publish(self, context_id, *frames, within=within)

    async def newest_version(self, context_id):
        await asyncio.Event().wait()


def test_what_was_never_asked_is_neither_interrupted_nor_ended():
    async def scene():
        broker = NoTables()
        ledger = FrameledgerObserver("call-7", connect=lambda: broker)
        talk = Talk(ledger, LLMContext(), FrameledgerLLMService(ledger, begin_secs=0.3))

        async def play(bot):
            await bot.say("Is anybody there?")
            await until(lambda: bool(talk.errors))
            # Another context is not recorded.
            await talk.llm.queue_frame(
                LLMContextFrame(LLMContext([{"role": "user", "content": "And here?"}]))
            )
            await until(lambda: len(talk.errors) > 1)
            await bot.settle()

        async with asyncio.timeout(IN_PROCESS):
            await talk.bot.run(play)
        assert talk.errors == ["The database does not respond.", ANOTHER_CONTEXT]
        assert talk.ended == 0
        kinds = [one.type for one in broker.frames]
        # The user's turn began with an interruption; the error is followed by none.
        assert "InterruptionFrame" not in kinds[kinds.index("ErrorFrame") :]
        assert {"LLMRunFrame", "LLMFullResponseEndFrame"}.isdisjoint(kinds)

    asyncio.run(scene())


@pytest.mark.regression("bridge 51")
@pytest.mark.skipif("speculation" not in fields_of(LLMContextFrame), reason="it has no eager turns")
def test_a_speculative_request_that_comes_after_the_end_of_its_turn_is_answered():
    async def scene():
        broker = NobodyAnswers()
        ledger = FrameledgerObserver("call-7", connect=lambda: broker)
        talk = Talk(ledger, LLMContext(), FrameledgerLLMService(ledger, begin_secs=0.3))
        said = {"role": "user", "content": "Is anybody there?"}

        async def play(bot):
            speculative = {"context": LLMContext([said]), "speculation": True}
            await talk.llm.queue_frame(LLMContextFrame(**speculative))
            await bot.last.until("EagerEndOfTurnCancelFrame")
            await bot.queue(UserStartedSpeakingFrame(), UserStoppedSpeakingFrame())
            await bot.settle()
            bot.context.add_message(said)
            await talk.llm.queue_frame(LLMContextFrame(**speculative))
            await until(lambda: bool(talk.errors))

        async with asyncio.timeout(IN_PROCESS):
            await talk.bot.run(play)
        kinds = [one.type for one in broker.frames]
        assert talk.bot.last.seen.count("EagerEndOfTurnCancelFrame") == 1
        assert kinds.count("LLMRunFrame") == 1
        assert "LLMMessagesAppendFrame" in kinds[: kinds.index("LLMRunFrame")]

    asyncio.run(scene())


async def nothing(params):
    raise AssertionError("Its start never counts.")


def asked_for(*names):
    return [
        FunctionCallFromLLM(function_name=name, tool_call_id=name, arguments={}, context=None)
        for name in names
    ]


def test_calls_of_one_answer_whose_starts_are_not_recorded_are_all_answered():
    async def scene():
        ledger = FrameledgerObserver("call-7", connect=Away)
        talk = Talk(ledger, LLMContext(), FrameledgerLLMService(ledger, begin_secs=0.1))
        talk.llm.register_function("one", nothing)
        talk.llm.register_function("two", nothing)

        async def play(bot):
            await talk.llm._calls.begin(asked_for("one", "two"), "g", bot.context)
            await until(lambda: talk.ended > 0)

        async with asyncio.timeout(IN_PROCESS):
            await talk.bot.run(play)
        results = {
            one["tool_call_id"]: one["content"] for one in talk.bot.context.messages if "content" in one
        }
        assert results == dict.fromkeys(("one", "two"), json.dumps(NOT_RECORDED))

    asyncio.run(scene())


@pytest.mark.regression("bridge 40")
def test_the_model_is_offered_what_cancels_the_work_that_it_starts():
    async def scene():
        broker = NobodyAnswers()
        ledger = FrameledgerObserver("call-7", connect=lambda: broker)
        talk = Talk(ledger, LLMContext(), FrameledgerLLMService(ledger, begin_secs=0.3))
        talk.llm.register_function(
            "write_report", nothing, cancel_on_interruption=False, cancellable_by_llm=True
        )
        talk.bot.context.set_tools(ToolsSchema([FunctionSchema("write_report", "Write it.", {}, [])]))

        async def play(bot):
            await bot.say("Write it.")
            await until(lambda: bool(talk.errors))
            await bot.settle()

        async with asyncio.timeout(IN_PROCESS):
            await talk.bot.run(play)
        kinds = [one.type for one in broker.frames]
        offered = [one for one in broker.frames if one.type == "LLMSetToolsFrame"][-1]
        assert [one["function"]["name"] for one in offered.tools] == ["write_report", "cancel_write_report"]
        assert len(kinds) - kinds[::-1].index("LLMSetToolsFrame") <= kinds.index("LLMRunFrame")

    asyncio.run(scene())


@pytest.mark.regression("bridge 3")
@pytest.mark.parametrize("run_in_parallel", [True, False], ids=["at once", "one after the other"])
def test_a_result_requests_an_answer_of_its_own_if_calls_are_not_grouped(run_in_parallel):
    async def scene():
        ledger = FrameledgerObserver("call-7", connect=Away)
        llm = FrameledgerLLMService(ledger, run_in_parallel=run_in_parallel, group_parallel_tools=False)
        calls = llm._calls
        calls._calls.begin(["one", "two"], "group", one_by_one=not run_in_parallel)
        start: dict = {"tool_call_id": "one", "group_id": None}
        await calls.before_broadcast(FunctionCallInProgressFrame, start)
        assert start["group_id"] is None
        result: dict = {"tool_call_id": "one"}
        async with asyncio.timeout(IN_PROCESS):
            await calls.before_broadcast(FunctionCallResultFrame, result)
        assert "run_llm" not in result

    asyncio.run(scene())


@pytest.mark.regression("bridge 47")
@pytest.mark.parametrize("run_in_parallel", [True, False], ids=["at once", "one after the other"])
def test_a_call_that_ran_past_its_time_limit_requests_no_answer_before_the_others(run_in_parallel):
    async def scene():
        ledger = FrameledgerObserver("call-7", connect=Away)
        calls = FrameledgerLLMService(ledger, run_in_parallel=run_in_parallel)._calls
        calls._calls.begin(["one", "two"], "group", one_by_one=not run_in_parallel)
        await calls.before_broadcast(FunctionCallInProgressFrame, {"tool_call_id": "one"})
        timed_out: dict = {"tool_call_id": "one", "run_llm": True}
        telling = asyncio.ensure_future(calls.before_broadcast(FunctionCallCancelFrame, timed_out))
        await asyncio.wait([telling], timeout=0)
        # Pipecat asks after the last of the calls of a group that it knows.
        assert telling.done() is not run_in_parallel
        assert timed_out["run_llm"] is run_in_parallel
        await calls.before_broadcast(FunctionCallInProgressFrame, {"tool_call_id": "two"})
        async with asyncio.timeout(IN_PROCESS):
            await telling
        last: dict = {"tool_call_id": "two", "run_llm": True}
        await calls.before_broadcast(FunctionCallCancelFrame, last)
        assert last["run_llm"] is True

    asyncio.run(scene())


def test_calls_that_are_open_end_with_the_pipeline():
    async def scene():
        ledger = FrameledgerObserver("call-7", connect=NoTables)
        talk = Talk(ledger, LLMContext(), FrameledgerLLMService(ledger, begin_secs=IN_PROCESS))

        talk.llm.register_function("mine", nothing)

        async def play(bot):
            await talk.llm._calls.begin(asked_for("mine", "served"), None, bot.context)
            assert len(open_calls()) == 2

        def open_calls():
            return [one for one in asyncio.all_tasks() if one.get_name().endswith(("mine", "served"))]

        async with asyncio.timeout(IN_PROCESS):
            await talk.bot.run(play)
        assert open_calls() == []

    asyncio.run(scene())
