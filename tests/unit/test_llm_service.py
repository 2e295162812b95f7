"""The parts of `LLMService` besides the contract of all providers: settings, instructions, hooks."""

import asyncio
import json
import re
from pathlib import Path

import pytest

from frameledger import evolve, fold_settings
from frameledger import frames as f
from frameledger.context import LLMContext, LLMSpecificMessage
from frameledger.fold_settings import FOLD_SETTINGS
from frameledger_services.providers import LLMService, LLMSettings, ProviderError, UnmappableError
from frameledger_services.providers.anthropic import AnthropicLLMService
from frameledger_services.providers.instructions import Instructions
from frameledger_services.providers.openai_adapter import OpenAILLMAdapter
from frameledger_services.providers.script import Call, Reply, Script, Text
from frameledger_services.providers.scripted import ScriptedLLMAdapter, ScriptedLLMService
from frameledger_services.providers.websocket import WebsocketLLMService

HELLO = LLMContext([{"role": "user", "content": "Hello?"}])
TOOL = {
    "type": "function",
    "function": {"name": "search", "description": "", "parameters": {"type": "object"}},
}


def body(service, context=HELLO, **options):
    return service.request(context, **options).body


def test_an_unknown_argument_is_an_error():
    with pytest.raises(TypeError, match="temprature"):
        ScriptedLLMService(temprature=1)


def test_the_default_adapter_speaks_as_openai_does():
    assert LLMService.adapter_class is OpenAILLMAdapter
    assert "{function_name}" in LLMService.MISSING_FUNCTION_CALL_MESSAGE_TEMPLATE


def test_settings_of_the_context_outrank_those_of_the_service_and_null_falls_through():
    service = ScriptedLLMService(
        settings=LLMSettings(model="m1", temperature=0.5, top_p=0.5, extra={"a": 1, "b": 1})
    )
    context = HELLO.with_settings({"model": "m2", "temperature": 0, "top_p": None, "extra": {"b": 2}})
    found = body(service, context)
    assert {name: found[name] for name in ("model", "temperature", "top_p", "a", "b")} == {
        "model": "m2",
        "temperature": 0,
        "top_p": 0.5,
        "a": 1,
        "b": 2,
    }
    assert service.request(context).model == "m2"


def test_the_limit_of_a_call_outranks_both_limits_of_the_settings():
    assert body(ScriptedLLMService(), max_tokens=9)["max_tokens"] == 9
    service = ScriptedLLMService(settings=LLMSettings(max_completion_tokens=100))
    found = body(service, HELLO.with_settings({"max_tokens": 50}), max_tokens=9)
    assert (found["max_tokens"], found["max_completion_tokens"]) == (9, 9)
    found = body(service, max_tokens=9)
    assert (found.get("max_tokens"), found["max_completion_tokens"]) == (None, 9)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"temprature": 1}, "temprature"),
        ({"temperature": "hot"}, r"temperature of the conversation \(it takes a number of at least 0\)"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"seed": True}, "seed"),
    ],
)
def test_a_setting_of_a_context_that_is_none_is_refused_by_name(settings, named):
    with pytest.raises(UnmappableError, match=named):
        body(ScriptedLLMService(), HELLO.with_settings(settings))


def test_a_model_that_extra_names_is_the_one_that_is_told():
    assert ScriptedLLMService().request(HELLO.with_settings({"extra": {"model": "m3"}})).model == "m3"


@pytest.mark.regression("fold 4")
@pytest.mark.parametrize("value", [True, False, "reject"])
@pytest.mark.parametrize("name", sorted(FOLD_SETTINGS))
def test_what_only_the_fold_reads_is_no_part_of_a_request(name, value):
    service, context = ScriptedLLMService(), HELLO.with_settings({name: value})
    assert body(service, context) == body(service)
    assert asyncio.run(service.run_inference(context)) == "You said: Hello?"


def test_every_setting_that_the_fold_reads_is_listed():
    """The rules read settings by the names of `fold_settings`, which are all in its list."""
    rules = Path(evolve.__file__).parent.glob("*.py")
    read = {name for path in rules for name in re.findall(r"settings(?:\.get\(|\[)(\w*)", path.read_text())}
    assert read == {"ADD_TOOL_CHANGE_MESSAGES", "ANSWERED_ELSEWHERE", "SECOND_INPUT"}
    assert {getattr(fold_settings, name) for name in read} == FOLD_SETTINGS


def test_a_setting_that_the_provider_has_no_form_for_is_refused_when_the_service_is_made():
    class Adapter(ScriptedLLMAdapter):
        settings_mapped = frozenset({"temperature"})

    class Plain(ScriptedLLMService):
        adapter_class = Adapter

    Plain(settings=LLMSettings(temperature=1))
    with pytest.raises(UnmappableError, match="top_k"):
        Plain(settings=LLMSettings(top_k=1))


def test_a_request_without_any_model_says_where_to_set_one():
    class Nameless(ScriptedLLMService):
        default_model = None

    with pytest.raises(UnmappableError, match="FRAMELEDGER_INFERENCE_MODEL"):
        body(Nameless())


def test_the_instruction_is_composed_in_order_with_blank_lines():
    service = ScriptedLLMService(settings=LLMSettings(system_instruction="Base."))
    service.append_system_instruction("First.")
    service.append_system_instruction("Second.")
    found = body(service, HELLO.with_tools([TOOL]), cancel_tools=["search"])["system"]
    assert found.startswith("Base.\n\nFirst.\n\nSecond.\n\n")
    assert "cancel_search" in found.rpartition("\n\n")[2]


def test_turn_completion_stands_between_what_was_appended_and_the_cancel_tools():
    instructions = Instructions(appended=("a",), turn_completion="t")
    assert instructions.around("base", cancel_tools="c") == "base\n\na\n\nt\n\nc"
    assert Instructions().around(None) is None
    assert Instructions().around("  ") is None
    assert body(ScriptedLLMService(turn_completion="Say it."))["system"] == "Say it."


def test_an_application_s_own_tool_of_a_cancel_tool_s_name_wins():
    own = {"type": "function", "function": {"name": "cancel_search", "parameters": {"type": "object"}}}
    request = ScriptedLLMService().request(HELLO.with_tools([TOOL, own]), cancel_tools=["search"])
    assert [tool["name"] for tool in request.body["tools"]] == ["search", "cancel_search"]
    assert request.builtin_tools == frozenset()
    assert "system" not in request.body


@pytest.mark.regression("worker 41")
@pytest.mark.parametrize(("length", "is_offered"), [(57, True), (58, False)])
def test_a_cancel_tool_is_offered_if_providers_accept_its_name(length, is_offered):
    name = "f" * length
    tool = {"type": "function", "function": {"name": name}}
    request = ScriptedLLMService().request(HELLO.with_tools([tool]), cancel_tools=[name])
    assert [one["name"] for one in request.body["tools"]] == [name, f"cancel_{name}"][: 1 + is_offered]
    assert ("system" in request.body) == is_offered


def test_two_system_instructions_are_both_sent_and_warned_of_once(caplog):
    service = ScriptedLLMService(settings=LLMSettings(system_instruction="Base."))
    context = LLMContext([{"role": "system", "content": "From the context."}])
    found, *_ = [body(service, context) for _ in range(3)]
    assert (found["system"], found["messages"][0]["content"]) == ("Base.", "From the context.")
    assert [record.levelname for record in caplog.records] == ["WARNING"]


@pytest.mark.regression("worker 31")
@pytest.mark.parametrize(
    ("content", "sent"),
    [("\ud83d é", "\\ud83d é"), ("\ud83d\ude00", "\U0001f600"), ("\\ud83d\ude00", "\\ud83d\\ude00")],
)
def test_half_a_character_is_sent_as_the_text_of_its_escape(content, sent):
    request = ScriptedLLMService().request(HELLO.add_message({"role": "user", "content": content}))
    assert json.loads(request.content)["messages"][-1]["content"] == sent
    assert json.loads(request.content) == request.body


@pytest.mark.regression("worker 32")
@pytest.mark.parametrize("blank", ["", " \n"])
def test_a_blank_system_instruction_leaves_the_request_without_any(blank):
    context = HELLO.add_message({"role": "system", "content": "From the context."})
    service = AnthropicLLMService(settings=LLMSettings(system_instruction="Base."))
    assert "system" not in service.request(context, system_instruction=blank).body


def test_hooks_are_called_in_order_and_one_that_raises_stops_nothing(caplog):
    service, called = ScriptedLLMService(), []

    @service.event_handler("on_function_calls_started")
    async def first(got, calls):
        called.append((got, calls))

    @service.event_handler("on_function_calls_started")
    def second(got, calls):
        raise RuntimeError("no")

    @service.event_handler("on_function_calls_started")
    def third(got, calls):
        called.append("third")

    asyncio.run(service.notify("on_function_calls_started", ["calls"]))
    assert called == [(service, ["calls"]), "third"]
    assert [record.frameledger["event"] for record in caplog.records] == ["provider.hook_failed"]


@pytest.mark.regression("worker 60")
@pytest.mark.parametrize(
    "error", [SystemExit(1), GeneratorExit(), BaseExceptionGroup("no", [SystemExit(1)])], ids=repr
)
@pytest.mark.parametrize("plain", [True, False])
def test_a_hook_that_exits_stops_nothing(caplog, error, plain):
    service, called = ScriptedLLMService(), []

    async def exits(got, calls):
        raise error

    def exits_at_once(got, calls):
        raise error

    service.add_event_handler("on_function_calls_started", exits_at_once if plain else exits)
    service.add_event_handler("on_function_calls_started", lambda got, calls: called.append("next"))
    asyncio.run(service.notify("on_function_calls_started", ["calls"]))
    assert called == ["next"]
    assert [record.frameledger["event"] for record in caplog.records] == ["provider.hook_failed"]


@pytest.mark.regression("worker 9")
def test_a_hook_that_awaits_a_cancelled_task_stops_nothing(caplog):
    service, called = ScriptedLLMService(), []

    @service.event_handler("on_function_calls_started")
    async def first(got, calls):
        inside = asyncio.create_task(asyncio.Event().wait())
        inside.cancel()
        await inside

    @service.event_handler("on_function_calls_started")
    def second(got, calls):
        called.append("second")

    asyncio.run(service.notify("on_function_calls_started", ["calls"]))
    assert called == ["second"]
    assert [record.frameledger["event"] for record in caplog.records] == ["provider.hook_failed"]


def test_who_cancels_the_caller_of_a_hook_cancels_the_hook():
    service, called = ScriptedLLMService(), []

    @service.event_handler("on_function_calls_started")
    async def first(got, calls):
        asyncio.current_task().cancel()
        await asyncio.Event().wait()

    @service.event_handler("on_function_calls_started")
    def second(got, calls):
        called.append("second")

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(service.notify("on_function_calls_started", ["calls"]))
    assert called == []


@pytest.mark.regression("worker 66")
def test_a_hook_whose_end_fails_does_not_keep_its_caller_from_being_cancelled():
    service, called = ScriptedLLMService(), []

    @service.event_handler("on_function_calls_started")
    async def first(got, calls):
        asyncio.current_task().cancel()
        try:
            await asyncio.Event().wait()
        finally:
            raise RuntimeError("the connection is closed already")

    service.add_event_handler("on_function_calls_started", lambda got, calls: called.append("second"))
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(service.notify("on_function_calls_started", ["calls"]))
    assert called == []


def test_an_event_that_there_is_not_is_an_error_that_lists_those_there_are():
    with pytest.raises(ValueError, match="on_completion_timeout"):
        ScriptedLLMService().event_handler("on_completion_timeuot")


@pytest.mark.regression("repair 10")
def test_frames_are_pushed_where_the_run_says_and_nowhere_else():
    service, pushed = ScriptedLLMService(run_in_parallel=False, group_parallel_tools=False), []
    call = f.FunctionCallFromLLM(function_name="g", tool_call_id="c", arguments={})

    async def push(frame):
        pushed.append(frame)

    async def run():
        token = service.pushing_to(push)
        await service.push_frame(f.LLMTextFrame(text="a"))
        await service.push_frame(f.LLMTextFrame(text="seed"), 1)
        await service.push_frame(f.LLMTextFrame(text="seed"), direction=1)
        await service.run_function_calls([call])
        await service.run_function_calls([])
        service.stop_pushing(token)
        with pytest.raises(RuntimeError, match="outside of a run"):
            await service.push_frame(f.LLMTextFrame(text="b"))

    asyncio.run(run())
    assert pushed[0] == f.LLMTextFrame(text="a")
    assert pushed[1:3] == [f.LLMTextFrame(text="seed")] * 2
    [announced] = pushed[3:]
    assert announced.function_calls == (call,)
    assert (announced.run_in_parallel, announced.group_parallel_tools) == (False, False)


def test_the_metadata_frame_is_that_of_no_realtime_service():
    assert ScriptedLLMService().service_metadata_frame() == f.LLMServiceMetadataFrame()


def test_a_message_of_a_provider_s_own_is_made_by_its_service():
    made = ScriptedLLMService().create_llm_specific_message({"a": 1})
    assert made == LLMSpecificMessage("scripted", {"a": 1})


def test_out_of_band_no_function_is_called():
    steps = (Text(text="Words."), Call(call="search"))
    service = ScriptedLLMService(script=Script(replies=[Reply(say=steps)]))
    context = HELLO.with_tools([TOOL]).set_tool_choice("required")
    assert asyncio.run(service.run_inference(context)) == "Words."


def test_an_answer_without_an_end_is_the_provider_s_error():
    class Broken(ScriptedLLMService):
        async def _stream(self, request):
            yield f.LLMTextFrame(text="a")

    with pytest.raises(ProviderError, match="without an end"):
        asyncio.run(Broken().run_inference(HELLO))


@pytest.mark.regression("repair 16")
@pytest.mark.parametrize("base", [LLMService, WebsocketLLMService])
def test_a_base_is_no_service(base):
    with pytest.raises(TypeError, match="abstract"):
        base()
