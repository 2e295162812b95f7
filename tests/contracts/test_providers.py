"""The contract of all providers, whatever their protocol.

Another package runs it against its own provider by importing these tests and replacing `pytestmark`: see "Run the
contract" in infra/docs/how-to/provider.md.
"""

import asyncio
import json
from contextlib import aclosing

import pytest
from tests.bounds import IN_PROCESS
from tests.contracts.providers import PROVIDERS, until

from frameledger import frames as f
from frameledger.context import LLMContext, LLMSpecificMessage
from frameledger_services.providers import LLMSettings, UnmappableError, errors
from frameledger_services.providers.script import Call, Delay, Fail, Reply, Script, Text, Thought

pytestmark = pytest.mark.parametrize("provider", PROVIDERS.values(), ids=PROVIDERS)

HELLO = LLMContext([{"role": "user", "content": "Hello?"}])
SENTENCE = "Good morning to you all, and  to the cat: 猫 🐈."
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
WITH_TOOLS = HELLO.with_tools([WEATHER])
CALL = {"id": "x", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
VALUES = {
    "temperature": 0.5,
    "max_tokens": 77,
    "max_completion_tokens": 78,
    "top_p": 0.9,
    "top_k": 40,
    "frequency_penalty": 0.25,
    "presence_penalty": 0.75,
    "seed": 1234,
}


def played(provider, *steps, test, **reply):
    """Run `test(running)` against the provider, whose server sends this reply to every request."""

    async def life():
        script = Script(replies=[Reply(say=steps, **reply)])
        async with asyncio.timeout(IN_PROCESS), provider(script) as running:
            try:
                return await test(running)
            finally:
                await running.service.cleanup()

    return asyncio.run(life())


def answered(provider, *steps, context=HELLO, **reply):
    """Returns the frames of an answer, and the error that ended it, or None."""

    async def test(running):
        got, failure = [], None
        try:
            async with aclosing(running.service.answer(running.service.request(context))) as answer:
                async for frame in answer:
                    got.append(frame)
        except errors.ProviderError as error:
            failure = error
        await until(lambda: running.open_streams() == 0)
        return got, failure, running

    return played(provider, *steps, test=test, **reply)


def words(got):
    return "".join(frame.text for frame in got if isinstance(frame, f.LLMTextFrame))


def kinds(got):
    """Returns the types of the frames, with consecutive equal ones as one."""
    return [frame.type for at, frame in enumerate(got) if at == 0 or got[at - 1].type != frame.type]


def test_text_comes_in_pieces_in_its_order_and_to_the_letter(provider):
    got, failure, _ = answered(provider, Text(text=SENTENCE))
    assert failure is None
    assert words(got) == SENTENCE
    assert len(got) > 3
    assert kinds(got) == ["LLMTextFrame", "LLMFullResponseEndFrame"]
    assert got[-1].finish_reason == "stop"


def test_no_frame_has_ids_of_its_own(provider):
    got, _, _ = answered(provider, Text(text="Hello."), Call(call="get_weather"), context=WITH_TOOLS)
    assert {(frame.id, frame.run_id, frame.attempt) for frame in got} == {(None, None, None)}


def test_a_thought_comes_before_the_text_and_keeps_its_signature(provider):
    got, failure, running = answered(
        provider, Thought(thought="They greet me, so", signature="c2lnbmVk+/8="), Text(text="Hello there.")
    )
    assert failure is None
    assert kinds(got) == [
        "LLMThoughtStartFrame",
        "LLMThoughtTextFrame",
        "LLMThoughtEndFrame",
        "LLMTextFrame",
        "LLMFullResponseEndFrame",
    ]
    thought = "".join(frame.text for frame in got if isinstance(frame, f.LLMThoughtTextFrame))
    assert (thought, words(got)) == ("They greet me, so", "Hello there.")
    if running.keeps_thoughts:
        assert (got[0].append_to_context, got[0].llm) == (True, running.service.provider)
        [end] = [frame for frame in got if isinstance(frame, f.LLMThoughtEndFrame)]
        assert end.signature == "c2lnbmVk+/8="


def test_parallel_calls_come_out_whole_and_in_order_after_the_text(provider):
    cities = ["Oslo", 'a "quoted" one', "東京"]
    calls = [Call(call="get_weather", arguments={"city": city}, id=f"id-{city[0]}") for city in cities]
    got, failure, _ = answered(provider, Text(text="I look."), *calls, context=WITH_TOOLS)
    assert failure is None
    assert kinds(got) == ["LLMTextFrame", "FunctionCallsStartedFrame", "LLMFullResponseEndFrame"]
    announced = got[-2].function_calls
    assert [(call.function_name, call.tool_call_id) for call in announced] == [
        ("get_weather", f"id-{city[0]}") for city in cities
    ]
    assert [as_object(call.arguments) for call in announced] == [{"city": city} for city in cities]
    assert not any(call.builtin for call in announced)
    assert (got[-2].run_in_parallel, got[-2].group_parallel_tools) == (True, True)
    assert got[-1].finish_reason == "tool_calls"


def test_a_call_without_arguments_has_an_empty_object(provider):
    got, _, _ = answered(provider, Call(call="get_weather", arguments={}), context=WITH_TOOLS)
    assert as_object(got[0].function_calls[0].arguments) == {}


def test_a_cancel_tool_is_offered_and_its_call_is_marked(provider):
    async def test(running):
        request = running.service.request(WITH_TOOLS, cancel_tools=["get_weather", "not_advertised"])
        assert request.builtin_tools == {"cancel_get_weather"}
        assert b"cancel_get_weather" in request.content
        assert b"not_advertised" not in request.content
        async with aclosing(running.service.answer(request)) as answer:
            return [frame async for frame in answer]

    got = played(provider, Call(call="cancel_get_weather"), Call(call="get_weather"), test=test)
    assert [call.builtin for call in got[0].function_calls] == [True, False]


def test_usage_is_told_at_the_end(provider):
    got, _, _ = answered(provider, Text(text="Hello."), usage=f.Usage(input_tokens=11, output_tokens=3))
    assert (got[-1].usage.input_tokens, got[-1].usage.output_tokens) == (11, 3)


@pytest.mark.parametrize("reason", ["length", "content_filter"])
def test_the_reason_of_the_end_is_told(provider, reason):
    got, _, _ = answered(provider, Text(text="Hel"), finish_reason=reason)
    assert got[-1].finish_reason == reason


def test_an_empty_answer_is_an_end_without_text(provider):
    got, failure, _ = answered(provider)
    assert failure is None
    assert kinds(got) == ["LLMFullResponseEndFrame"]


FAILURES: dict[str, type[errors.ProviderError]] = {
    "overloaded": errors.ProviderUnavailableError,
    "rate_limited": errors.ProviderUnavailableError,
    "refused_context": errors.RefusedContextError,
    "refused": errors.ProviderRefusedError,
    "cut": errors.ConnectionLostError,
}


@pytest.mark.parametrize("kind", FAILURES)
def test_a_failure_is_told_by_what_must_be_done(provider, kind):
    got, failure, _ = answered(provider, Fail(fail=kind, message="said by the provider"))
    assert got == []
    assert isinstance(failure, FAILURES[kind])
    assert failure.message
    assert failure.code


def test_how_long_to_wait_is_told(provider):
    _, failure, running = answered(provider, Fail(fail="rate_limited", retry_after=7.0))
    if running.retry_after:
        assert failure.retry_after == 7.0


def test_a_stream_that_is_cut_ends_in_an_error_and_without_an_end(provider):
    got, failure, _ = answered(provider, Text(text="Half of a sentence that"), Fail(fail="cut"))
    assert isinstance(failure, errors.ConnectionLostError)
    assert kinds(got) == ["LLMTextFrame"]


def test_a_call_whose_arguments_are_cut_off_is_no_call(provider):
    got, failure, _ = answered(
        provider,
        Text(text="I look."),
        Call(call="get_weather", arguments={"city": "Oslo"}),
        Fail(fail="incomplete_call"),
        context=WITH_TOOLS,
    )
    assert isinstance(failure, errors.IncompleteCallError)
    assert kinds(got) == ["LLMTextFrame"]


def test_closing_the_answer_closes_the_stream(provider):
    async def test(running):
        answer = running.service.answer(running.service.request(HELLO))
        assert isinstance(await anext(answer), f.LLMTextFrame)
        assert running.open_streams() == 1
        await answer.aclose()
        await until(lambda: running.open_streams() == 0)

    played(provider, Text(text="Hello."), Delay(delay=60), Text(text="Never said."), test=test)


def test_cancelling_the_task_that_reads_closes_the_stream(provider):
    async def test(running):
        began = asyncio.Event()

        async def read():
            async with aclosing(running.service.answer(running.service.request(HELLO))) as answer:
                async for _ in answer:
                    began.set()

        task = asyncio.ensure_future(read())
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: running.open_streams() == 0)

    played(provider, Text(text="Hello."), Delay(delay=60), test=test)


@pytest.mark.parametrize("said", [(), (Text(text="Hello."),)], ids=["at first", "in the middle"])
def test_silence_ends_in_a_timeout_and_calls_the_hook(provider, said):
    async def test(running):
        service = running.service
        called: list[object] = []
        # What is said first has to arrive within it, also on a busy machine.
        service.completion_timeout_secs = 1.0 if said else 0.2
        service.event_handler("on_completion_timeout")(called.append)
        got = []

        async def read():
            async for frame in service.answer(service.request(HELLO)):
                got.append(frame)

        with pytest.raises(errors.CompletionTimeoutError) as raised:
            await read()
        assert called == [service]
        assert raised.value.code == "completion_timeout"
        assert kinds(got) == (["LLMTextFrame"] if said else [])
        await until(lambda: running.open_streams() == 0)

    played(provider, *said, Fail(fail="timeout"), test=test)


def test_many_answers_at_once_do_not_mix(provider):
    async def test(running):
        async def one():
            async with aclosing(running.service.answer(running.service.request(HELLO))) as answer:
                return words([frame async for frame in answer])

        return await asyncio.gather(*[one() for _ in range(20)])

    assert played(provider, Text(text=SENTENCE), test=test) == [SENTENCE] * 20


def test_out_of_band_there_is_only_text(provider):
    async def test(running):
        return await running.service.run_inference(HELLO, max_tokens=50, system_instruction="Be brief.")

    assert played(provider, Thought(thought="hm"), Text(text=" Fine, thanks. "), test=test) == "Fine, thanks."
    assert played(provider, test=test) is None


def test_what_is_given_out_of_band_replaces_both_system_instructions(provider):
    context = LLMContext([{"role": "system", "content": "from the context"}, *HELLO.messages])

    async def test(running):
        service = running.service
        service.settings = LLMSettings(system_instruction="from the service")
        plain = service.request(context).content
        replaced = service.request(context, system_instruction="only this").content
        return plain, replaced

    plain, replaced = played(provider, test=test)
    assert b"from the context" in plain
    assert b"from the service" in plain
    assert b"only this" in replaced
    assert b"from the" not in replaced


def test_equal_contexts_give_equal_bytes(provider):
    async def test(running):
        first, second = running.service.request(WITH_TOOLS), running.service.request(WITH_TOOLS)
        assert first == second
        assert first.sha256 == second.sha256
        assert json.loads(first.content) == json.loads(json.dumps(first.body))

    played(provider, test=test)


@pytest.mark.parametrize("name", VALUES)
def test_a_setting_is_in_the_request_or_refused_by_name(provider, name):
    async def test(running):
        service = running.service
        context = HELLO.with_settings({name: VALUES[name]})
        if name not in service.get_llm_adapter().settings_mapped:
            with pytest.raises(UnmappableError, match=name):
                service.request(context)
            return
        told = service.request(context).body
        assert told != service.request(HELLO).body
        assert str(VALUES[name]) in json.dumps(told)

    played(provider, test=test)


def test_extra_fields_are_set_as_they_are(provider):
    async def test(running):
        return running.service.request(HELLO.with_settings({"extra": {"user": "u1", "model": "other"}}))

    request = played(provider, test=test)
    assert (request.body["user"], request.body["model"]) == ("u1", "other")


def test_another_provider_s_messages_and_tools_are_left_out_and_its_own_are_not(provider):
    async def test(running):
        service = running.service
        own = service.create_llm_specific_message({"role": "user", "content": "for you alone"})
        context = HELLO.add_messages([own, LLMSpecificMessage("another", {"secret": "words"})])
        context = context.with_tools(
            [
                WEATHER,
                {"llm": "another", "tool": {"name": "theirs"}},
                {"llm": service.provider, "tool": {"name": "ours"}},
            ]
        )
        return service.request(context).content

    content = played(provider, test=test)
    assert b"for you alone" in content
    assert b"ours" in content
    assert b"secret" not in content
    assert b"theirs" not in content


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "tool", "tool_call_id": "x", "content": "stray"}],
        [{"role": "assistant", "tool_calls": [CALL]}, *HELLO.messages],
        [{"role": "assistant", "content": "Hello."}, {"role": "user", "content": ""}],
        [],
    ],
    ids=["a stray result", "a call without result", "an empty message", "nothing"],
)
def test_what_clients_append_makes_a_request(provider, messages):
    async def test(running):
        request = running.service.request(LLMContext(messages))
        async with aclosing(running.service.answer(request)) as answer:
            return words([frame async for frame in answer])

    assert played(provider, Text(text="Fine."), test=test) == "Fine."


@pytest.mark.parametrize(
    "message",
    [
        {"role": "wizard", "content": "Hello?"},
        {"role": "user", "content": [{"type": "hologram"}]},
        {"role": "user", "content": [{"type": "text"}]},
        {"role": "user", "content": 7},
    ],
)
def test_a_message_that_has_no_form_is_refused_by_its_place(provider, message):
    async def test(running):
        with pytest.raises(UnmappableError, match="message 2"):
            running.service.request(HELLO.add_message(message))

    played(provider, test=test)


@pytest.mark.parametrize("choice", ["sometimes", {"type": "function", "function": {"name": "not_there"}}])
def test_a_tool_choice_that_cannot_be_kept_is_refused(provider, choice):
    async def test(running):
        with pytest.raises(UnmappableError, match="tool choice"):
            running.service.request(WITH_TOOLS.set_tool_choice(choice))

    played(provider, test=test)


def test_a_service_can_be_started_and_closed_more_than_once(provider):
    async def test(running):
        service = running.service
        for _ in range(2):
            await service.start(f.StartFrame())
            assert await service.run_inference(HELLO) == "Hello."
            await service.stop(f.EndFrame())
            await service.cleanup()
        await service.cancel(f.CancelFrame())

    played(provider, Text(text="Hello."), test=test)


def as_object(arguments):
    return json.loads(arguments) if isinstance(arguments, str) else arguments
