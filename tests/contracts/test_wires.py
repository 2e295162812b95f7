"""The official SDKs against a real server with each provider's protocol: requests, responses and failures."""

import asyncio
import contextlib
import errno
import hashlib
import json
import os
import socket
import sys
import time
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from statistics import median
from urllib.request import urlopen

import pytest
from tests.bounds import IN_PROCESS
from tests.contracts.providers import until
from tests.contracts.wire.cases import CASES

from frameledger import frames as f
from frameledger.context import LLMContext
from frameledger_services.bench.inference import answers as say
from frameledger_services.bench.inference.model_server import serving
from frameledger_services.providers import errors, silence
from frameledger_services.providers.anthropic import AnthropicLLMService
from frameledger_services.providers.openai import OpenAILLMService

KEY = "sk-secret-0123456789"
CONTEXT = LLMContext(
    [{"role": "system", "content": "Be kind."}, {"role": "user", "content": 'Zürich, "東京" 🐈 \ud83d?'}],
    [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}],
)

both = pytest.mark.parametrize("provider", ["openai", "anthropic"])


def service_at(server, provider, **options):
    if provider == "openai":
        return OpenAILLMService(api_key=KEY, base_url=server.openai_base_url, **options)
    return AnthropicLLMService(api_key=KEY, base_url=server.anthropic_base_url, **options)


def against(provider, test, *replies, **options):
    """Run `test(service, server)` against a server that gives these replies first."""

    async def life():
        async with asyncio.timeout(IN_PROCESS), serving() as server:
            server.then(*replies)
            service = service_at(server, provider, **options)
            try:
                return await test(service, server)
            finally:
                await service.cleanup()

    return asyncio.run(life())


async def asked(service, context=CONTEXT):
    """Returns the frames of an answer, and the error that ended it, or None."""
    got = []
    try:
        async with aclosing(service.answer(service.request(context))) as answer:
            async for frame in answer:
                got.append(frame)
    except errors.ProviderError as error:
        return got, error
    return got, None


def answered(provider, *pieces, **answer):
    async def test(service, server):
        return await asked(service)

    return against(provider, test, say.Answer(pieces, **answer))


def words(got):
    return "".join(frame.text for frame in got if isinstance(frame, f.LLMTextFrame))


@both
@pytest.mark.parametrize("name", CASES)
def test_every_case_of_the_wire_comes_to_what_must_be_done(provider, name):
    case = CASES[name]

    async def test(service, server):
        got, error = await asked(service)
        # The SDK does not retry, and no connection stays open.
        assert len(server.received) == 1
        await until(lambda: server.open_streams == 0)
        return got, error

    got, error = against(provider, test, case.reply, completion_timeout_secs=0.5)
    assert type(error) is (case.error or type(None))
    assert words(got) == case.text
    assert not any(isinstance(frame, f.FunctionCallsStartedFrame) for frame in got)
    if case.error is None:
        assert got[-1].finish_reason == case.finish_reason
    else:
        assert not any(isinstance(frame, f.LLMFullResponseEndFrame) for frame in got)
        assert KEY not in error.message
        assert getattr(error, "retry_after", None) == case.retry_after


@both
def test_the_request_is_on_the_wire_byte_for_byte(provider):
    async def test(service, server):
        request = service.request(CONTEXT, prompt_caching=True)
        async with aclosing(service.answer(request)) as answer:
            assert [frame async for frame in answer]
        [received] = server.received
        assert received.body == request.content
        assert hashlib.sha256(received.body).hexdigest() == request.sha256
        # Rendered again, in another process or years later: nothing but the context and the settings is in it.
        assert service_at(server, provider).request(CONTEXT, prompt_caching=True).content == received.body
        assert json.loads(received.body) == json.loads(json.dumps(request.body))
        assert received.headers["content-type"] == "application/json"
        return received.headers

    headers = against(provider, test)
    assert "anthropic-beta" not in headers
    # Whatever the SDK that is installed would name.
    assert headers.get("anthropic-version") == (None if provider == "openai" else "2023-06-01")


@pytest.mark.regression("journey 126")
@both
def test_the_key_is_the_configured_one_in_the_one_place_where_servers_look_for_it(provider, monkeypatch):
    # Of another program on this machine.
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "another")
    monkeypatch.setenv("OPENAI_API_KEY", "another")

    async def test(service, server):
        await asked(service, CONTEXT)
        [received] = server.received
        return {name: received.headers.get(name) for name in ("authorization", "x-api-key")}

    expected = (f"Bearer {KEY}", None) if provider == "openai" else (None, KEY)
    assert against(provider, test) == dict(zip(("authorization", "x-api-key"), expected, strict=True))


@pytest.mark.regression("worker 130")
@pytest.mark.parametrize("model", ["claude-sonnet-4-6", "claude-opus-5-5"])
def test_a_document_of_anthropics_files_api_comes_with_the_header_that_it_needs(model):
    part = {"type": "file", "file": {"file_id": "file_011CNha8iCJcU1wXNR6q4V8w"}}

    async def test(service, server):
        await asked(service, LLMContext([{"role": "user", "content": [part]}], settings={"model": model}))
        return server.received[0].headers["anthropic-beta"].split(",")

    assert "files-api-2025-04-14" in against("anthropic", test)


@both
def test_one_connection_serves_answer_after_answer(provider):
    async def test(service, server):
        for _ in range(5):
            assert await service.run_inference(CONTEXT) == "Hello there."
        return server.connections_made

    assert against(provider, test) == 1


@both
def test_a_connection_that_was_cut_is_replaced(provider):
    async def test(service, server):
        assert (await asked(service))[1] is not None
        assert (await asked(service))[1] is None
        return server.connections_made

    assert against(provider, test, say.Answer((say.Text("Hello"), say.Cut()))) == 2


@pytest.mark.regression("journey 166")
@both
def test_a_server_that_cuts_the_connection_is_told_from_one_that_cannot_be_reached(provider):
    async def test(service, server):
        return (await asked(service))[1].message

    told = against(provider, test, say.Answer((say.Text("Hello"), say.Cut())))
    assert told.endswith("could not be made: the server closed it.")


@both
def test_a_response_that_never_ends_does_not_keep_an_answer_that_has(provider):
    async def test(service, server):
        got, error = await asked(service)
        await asyncio.wait_for(server.received[0].left.wait(), IN_PROCESS)
        return got, error

    # Whoever waited for its end would wait for longer than the test.
    answer = say.Answer((say.Text("Hello"),), ending="hang")
    got, error = against(provider, test, answer, completion_timeout_secs=3600)
    assert (words(got), error) == ("Hello", None)


@pytest.mark.regression("journey 110")
@both
def test_nobody_listening_is_a_lost_connection_and_calls_the_hook(provider):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: refused
        nowhere = f"http://127.0.0.1:{taken.getsockname()[1]}"
        told = []

        async def test():
            kind = OpenAILLMService if provider == "openai" else AnthropicLLMService
            service = kind(base_url=nowhere)

            @service.event_handler("on_connection_error")
            async def on_connection_error(service, sentence):
                told.append(sentence)

            _, error = await asked(service)
            await service.cleanup()
            return error

        error = asyncio.run(test())
    assert type(error) is errors.ConnectionLostError
    assert error.message.endswith(f"could not be made: {os.strerror(errno.ECONNREFUSED)}.")
    assert told == [error.message]


@both
def test_closing_an_answer_reaches_the_server(provider):
    async def test(service, server):
        took = []
        for _ in range(20):
            server.then(say.Answer((say.Text("Hello"), say.Hang())))
            answer = service.answer(service.request(CONTEXT))
            assert isinstance(await anext(answer), f.LLMTextFrame)
            at = time.monotonic()
            await answer.aclose()
            received = server.received[-1]
            await asyncio.wait_for(received.left.wait(), IN_PROCESS)
            took.append(received.left_at - at)
        return took

    print(f"closed -> left, ms: p50 {1000 * median(against(provider, test)):.1f}")


@both
def test_cancelling_before_the_first_byte_reaches_the_server(provider):
    async def test(service, server):
        server.then(say.Answer(first_byte_secs=3600))
        reading = asyncio.ensure_future(asked(service))
        await until(lambda: bool(server.received))
        at = time.monotonic()
        reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await reading
        await asyncio.wait_for(server.received[0].left.wait(), IN_PROCESS)
        return server.received[0].left_at - at

    print(f"cancelled -> left, ms: {1000 * against(provider, test):.1f}")


@both
def test_a_date_to_come_back_at_is_a_number_of_seconds(provider):
    then = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)

    async def test(service, server):
        return await asked(service)

    _, error = against(provider, test, say.Failure(429, retry_after=then))
    # What is left of the hour, less what the test has taken.
    assert 3600 - IN_PROCESS - 1 < error.retry_after <= 3600


@both
def test_what_a_provider_says_about_our_key_is_not_passed_on(provider):
    async def test(service, server):
        return [(await asked(service))[1].message for _ in range(2)]

    refused, unasked = against(
        provider,
        test,
        say.Failure(401, f"Incorrect API key provided: {KEY}"),
        say.Failure(400, f"no {KEY} here"),
    )
    assert KEY not in refused + unasked
    assert f"FRAMELEDGER_{provider.upper()}_API_KEY" in refused


@pytest.mark.regression("journey 165")
@both
def test_a_server_that_requires_a_key_where_none_is_set_did_not_reject_one(provider):
    async def test(service, server):
        address = server.openai_base_url if provider == "openai" else server.anthropic_base_url
        without_key = type(service)(base_url=address)
        _, error = await asked(without_key)
        await without_key.cleanup()
        return error

    error = against(provider, test, say.Failure(401, "You didn't provide an API key."))
    assert type(error) is errors.ProviderRefusedError
    assert error.message.startswith(
        f"{provider} answered with 401: it requires a key, and none is set. "
        f"See FRAMELEDGER_{provider.upper()}_API_KEY"
    )


@both
def test_what_a_provider_refuses_is_passed_on_in_its_own_words(provider):
    async def test(service, server):
        return (await asked(service))[1].message

    told = against(provider, test, say.Failure(400, "messages.3: text must not be empty"))
    assert told == f"{provider} answered with 400: messages.3: text must not be empty"


def test_a_used_up_quota_is_not_tried_again():
    async def test(service, server):
        return (await asked(service))[1]

    error = against("openai", test, say.Answer((say.StreamError("insufficient_quota", "pay"),)))
    assert type(error) is errors.ProviderRefusedError


@both
def test_interleaved_calls_come_out_whole_and_in_the_order_of_their_places(provider):
    got, error = answered(
        provider,
        say.Call(0, "a", "get_weather"),
        say.Call(1, "b", "get_weather"),
        say.Arguments(1, '{"city":'),
        say.Arguments(0, '{"city": "Os'),
        say.Arguments(1, ' "Rome"}'),
        say.Arguments(0, 'lo", "n": 1.10}'),
        finish="tool_calls",
    )
    assert error is None
    calls = [(call.tool_call_id, call.arguments) for call in got[0].function_calls]
    assert calls == [("a", '{"city": "Oslo", "n": 1.10}'), ("b", '{"city": "Rome"}')]


@both
def test_arguments_may_take_longer_than_silence_may_last(provider):
    pieces = [say.Call(0, "a", "get_weather"), say.Arguments(0, '{"city": "'), *[say.Arguments(0, "o")] * 30]

    async def test(service, server):
        return await asked(service)

    answer = say.Answer((*pieces, say.Arguments(0, '"}')), finish="tool_calls", pace=50)
    got, error = against(provider, test, answer, completion_timeout_secs=0.3)
    assert error is None
    assert got[0].function_calls[0].arguments == '{"city": "' + "o" * 30 + '"}'


@pytest.mark.regression("worker 92")
@both
def test_a_model_may_think_in_hidden_for_longer_than_silence_may_last(provider):
    async def test(service, server):
        return await asked(service)

    answer = say.Answer((*[say.Ping()] * 30, say.Text("Done.")), pace=50)
    got, error = against(provider, test, answer, completion_timeout_secs=0.3)
    assert error is None
    assert got[0].text == "Done."


@pytest.mark.regression("worker 92")
@both
def test_a_server_that_only_gives_signs_of_life_is_not_waited_for_for_ever(provider, monkeypatch):
    monkeypatch.setattr(silence, "LONGEST_SILENCE", 1.0)

    async def test(service, server):
        error = (await asked(service))[1]
        await until(lambda: server.open_streams == 0)
        return error

    answer = say.Answer((say.Ping(),) * 5000, pace=50)
    error = against(provider, test, answer, completion_timeout_secs=0.5)
    assert type(error) is errors.CompletionTimeoutError
    assert "nothing but signs of life" in error.message


@pytest.mark.regression("worker 103")
@both
def test_an_answer_is_over_that_has_its_finish_reason_although_its_stream_does_not_end(provider):
    async def test(service, server):
        got, error = await asked(service)
        await until(lambda: server.open_streams == 0)
        return got, error

    answer = say.Answer(
        (say.Call(0, "a", "get_weather"), say.Arguments(0, "{}")), finish="tool_calls", ending="silent"
    )
    got, error = against(provider, test, answer, completion_timeout_secs=1.0)
    assert error is None
    assert got[0].function_calls[0].tool_call_id == "a"
    assert got[-1].finish_reason == "tool_calls"
    assert got[-1].usage.output_tokens == answer.tokens.written


@pytest.mark.regression("worker 107")
@both
@pytest.mark.parametrize(
    "options", [{"api_key": f"{KEY}\n"}, {"base_url": "localhost:8000/v1"}], ids=["key", "address"]
)
def test_a_key_or_an_address_with_which_nothing_can_be_sent_is_not_tried_again(provider, options):
    kind = OpenAILLMService if provider == "openai" else AnthropicLLMService
    told = []

    async def test():
        async with serving() as server:
            known = {"api_key": KEY, "base_url": getattr(server, f"{provider}_base_url")}
            service = kind(**known | options)
            service.add_event_handler("on_connection_error", lambda _, sentence: told.append(sentence))
            try:
                return (await asked(service))[1]
            finally:
                await service.cleanup()

    error = asyncio.run(test())
    assert type(error) is errors.ProviderRefusedError
    assert KEY not in error.message
    assert f"FRAMELEDGER_{provider.upper()}_BASE_URL" in error.message
    assert told == []


@both
def test_arguments_that_the_model_itself_got_wrong_are_a_call(provider):
    got, error = answered(
        provider, say.Call(0, "a", "get_weather"), say.Arguments(0, "{city: Oslo}"), finish="tool_calls"
    )
    assert error is None
    assert got[0].function_calls[0].arguments == "{city: Oslo}"


@both
def test_a_call_without_arguments_has_an_empty_object(provider):
    got, _ = answered(provider, say.Call(0, "a", "get_weather"), finish="tool_calls")
    assert got[0].function_calls[0].arguments == "{}"


def test_calls_that_all_have_the_place_0_are_told_apart_by_their_ids():
    got, _ = answered(
        "openai",
        *(say.Call(0, "a", "get_weather"), say.Arguments(0, '{"city": 1}')),
        *(say.Call(0, "b", "get_weather"), say.Arguments(0, '{"city": 2}')),
        finish="stop",
    )
    calls = [(call.tool_call_id, call.arguments) for call in got[0].function_calls]
    assert calls == [("a", '{"city": 1}'), ("b", '{"city": 2}')]
    assert got[-1].finish_reason == "tool_calls"


def test_a_call_without_an_id_gets_one():
    got, _ = answered("openai", say.Call(0, "", "get_weather"), say.Call(1, "", "get_weather"), finish="stop")
    assert [call.tool_call_id for call in got[0].function_calls] == ["call_0", "call_1"]


@both
@pytest.mark.regression("worker 153")
@pytest.mark.parametrize("arguments", ['{"city": "Oslo"}', '{"city": '], ids=["whole", "half"])
def test_calls_of_an_answer_that_a_filter_stopped_are_not_made(provider, arguments):
    call = (say.Call(0, "call_0", "get_weather"), say.Arguments(0, arguments))
    got, error = answered(provider, say.Text("Hello"), *call, finish="content_filter")
    assert error is None
    assert [type(frame) for frame in got] == [f.LLMTextFrame, f.LLMFullResponseEndFrame]
    assert got[-1].finish_reason == "content_filter"


def test_a_refusal_is_text_that_was_filtered():
    got, _ = answered("openai", say.Refused("I can"), say.Refused("not."))
    assert (words(got), got[-1].finish_reason) == ("I cannot.", "content_filter")


def test_reasoning_of_a_compatible_server_is_a_thought_that_names_its_field():
    got, _ = answered("openai", say.Thought("Hm"), say.Thought("..."), say.Text("Yes."))
    assert [type(frame).__name__ for frame in got] == [
        "LLMThoughtStartFrame",
        "LLMThoughtTextFrame",
        "LLMThoughtTextFrame",
        "LLMThoughtEndFrame",
        "LLMTextFrame",
        "LLMFullResponseEndFrame",
    ]
    assert (got[0].append_to_context, got[0].llm) == (True, "openai/reasoning")
    assert got[3].signature == {"field": "reasoning_content"}


def test_thoughts_come_with_their_signatures_and_sealed_ones_as_their_blocks():
    got, _ = answered(
        "anthropic",
        say.Thought(" They\n"),
        say.Thought("greet me. "),
        say.Signature("c2ln+/=="),
        say.RedactedThought("AbC/="),
        say.Text("Hello."),
    )
    assert [type(frame).__name__ for frame in got] == [
        "LLMThoughtStartFrame",
        "LLMThoughtTextFrame",
        "LLMThoughtTextFrame",
        "LLMThoughtEndFrame",
        "LLMThoughtStartFrame",
        "LLMThoughtEndFrame",
        "LLMTextFrame",
        "LLMFullResponseEndFrame",
    ]
    ends = [frame.signature for frame in got if isinstance(frame, f.LLMThoughtEndFrame)]
    assert ends == ["c2ln+/==", {"type": "redacted_thinking", "data": "AbC/="}]


@pytest.mark.parametrize(
    ("provider", "read"),
    [
        pytest.param("openai", 100, marks=pytest.mark.regression("worker 88")),
        ("anthropic", 200),
    ],
)
def test_usage_counts_all_that_was_read(provider, read):
    """OpenAI's input tokens include cached ones, Anthropic's do not."""
    tokens = say.Tokens(read=100, written=9, from_cache=80, to_cache=20, thought=4)
    got, _ = answered(provider, say.Text("Yes."), tokens=tokens)
    assert got[-1].usage == f.Usage(
        input_tokens=read, output_tokens=9, cache_read_tokens=80, cache_write_tokens=20, reasoning_tokens=4
    )


@pytest.mark.parametrize(
    ("provider", "told", "reason"),
    [
        ("openai", "function_call", "tool_calls"),
        ("openai", "something_new", None),
        ("anthropic", "stop_sequence", "stop"),
        ("anthropic", "model_context_window_exceeded", "length"),
        ("anthropic", "pause_turn", "length"),
        ("anthropic", "refusal", "content_filter"),
        ("anthropic", "something_new", None),
    ],
)
def test_the_wires_own_reasons_are_told_as_ours(provider, told, reason):
    got, _ = answered(provider, say.Text("Yes."), finish=told)
    assert got[-1].finish_reason == reason


@both
def test_what_breaks_after_the_last_word_takes_nothing_away(provider):
    """A proxy may reset the connection once the model has said why it stopped."""
    got, error = answered(provider, say.Text("Hello"), ending="cut")
    assert (words(got), error) == ("Hello", None)


@both
def test_an_answer_that_is_not_streamed_is_refused_by_name(provider):
    async def test(service, server):
        with pytest.raises(errors.UnmappableError, match="stream"):
            async for _ in service.answer(
                service.request(CONTEXT.with_settings({"extra": {"stream": False}}))
            ):
                pass

    against(provider, test)


def test_the_server_runs_as_a_process_of_its_own():
    async def test():
        server = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "frameledger_services.bench.inference.model_server"),
            *("--tokens", "5", "--pace", "500"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(IN_PROCESS):
            url = (await server.stdout.readline()).decode().strip()
            service = OpenAILLMService(base_url=f"{url}/v1")
            text = await service.run_inference(CONTEXT)
            await service.cleanup()
            received = json.loads(await asyncio.to_thread(lambda: urlopen(f"{url}/received").read()))
            server.stdin.close()
            assert await server.wait() == 0
        return text, received

    text, received = asyncio.run(test())
    assert text == "token0 token1 token2 token3 token4"
    assert received[0]["finished_at"] > received[0]["arrived_at"]
