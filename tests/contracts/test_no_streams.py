"""Successful responses that are not an event stream, and errors in plain text: our error quotes the response."""

import asyncio
import gzip
import json

import pytest
from tests.bounds import IN_PROCESS

from frameledger.context import LLMContext
from frameledger_services.providers import errors
from frameledger_services.providers.anthropic import AnthropicLLMService
from frameledger_services.providers.openai import OpenAILLMService

JSON = "application/json"
STREAM = "text/event-stream"
KEY = "sk-secret-0123456789"


def answered(kind, status, body, *headers, provider=OpenAILLMService):
    """Returns the result of a response with this body: the text, or the error."""

    async def respond(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        said = [f"HTTP/1.1 {status} Said", "connection: close", *headers]
        if kind is not None:
            said.append(f"content-type: {kind}")
        writer.write("\r\n".join([*said, "", ""]).encode() + body)
        await writer.drain()
        writer.close()

    async def life():
        async with asyncio.timeout(IN_PROCESS), await asyncio.start_server(respond, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            service = provider(api_key=KEY, base_url=f"http://127.0.0.1:{port}")
            try:
                return await service.run_inference(LLMContext([{"role": "user", "content": "Hello."}]))
            except errors.ProviderError as error:
                return error
            finally:
                await service.cleanup()

    return asyncio.run(life())


def error(**fields):
    return json.dumps({"error": fields}).encode()


@pytest.mark.regression("worker 89")
@pytest.mark.parametrize(
    ("kind", "body", "expected", "told"),
    [
        (JSON, error(message="No credits left", code=402), errors.ProviderRefusedError, "no quota left"),
        (JSON, error(message="Slow down", code=429), errors.ProviderUnavailableError, "Slow down"),
        (
            JSON,
            error(type="invalid_request_error", message=f"no {KEY}"),
            errors.RefusedContextError,
            "no [key]",
        ),
        (JSON, b'{"error": "out of memory"}', errors.ProviderUnavailableError, "error: out of memory"),
        (JSON, b'{"error": {"code": 400}}', errors.RefusedContextError, "no reason"),
        (JSON, b'{"choices": []}', errors.ProviderRefusedError, "answered with application/json instead"),
        (JSON, b'{"error": null}', errors.ProviderRefusedError, "answered with application/json instead"),
        (JSON, b"[" * 100_000, errors.ProviderRefusedError, "answered with application/json instead"),
        ("text/html; charset=utf-8", b"<html>Log in</html>", errors.ProviderRefusedError, "with text/html;"),
        (None, b"Hello.", errors.ProviderRefusedError, "no content type"),
        (None, b"", errors.ConnectionLostError, "without a finish reason"),
        (STREAM, b"", errors.ConnectionLostError, "without a finish reason"),
    ],
)
@pytest.mark.parametrize("provider", [OpenAILLMService, AnthropicLLMService])
def test_a_response_that_is_no_stream_is_told_with_what_it_says(kind, body, expected, told, provider):
    got = answered(kind, 200, body, provider=provider)
    assert type(got) is expected
    assert told in got.message
    assert KEY not in got.message


def test_a_compressed_body_is_read_too():
    body = gzip.compress(error(message="Slow down", code=429))
    assert "Slow down" in answered(JSON, 200, body, "content-encoding: gzip").message


def test_a_stream_that_is_called_something_else_is_read():
    chunk = {"choices": [{"delta": {"content": "Hello."}, "finish_reason": "stop"}]}
    assert answered(JSON, 200, b"data: " + json.dumps(chunk).encode() + b"\n\n") == "Hello."


def streamed(*deltas, last=b"data: [DONE]\n\n"):
    chunks = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    return b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks) + last


@pytest.mark.regression("worker 167")
@pytest.mark.parametrize(
    "last", [b"data: [DONE]\n\n", b"data:[DONE]\n\n", b"data: [DONE]\r\n\r\n: bye\r\n\r\n"]
)
def test_an_answer_that_ends_with_the_last_event_is_whole_without_a_finish_reason(last):
    assert answered(STREAM, 200, streamed({"content": "Yes"}, {"content": "."}, last=last)) == "Yes."


@pytest.mark.regression("worker 167")
@pytest.mark.parametrize(
    "body",
    [
        streamed({"content": "Yes"}, last=b""),
        streamed({"content": ""}),
        streamed({"reasoning_content": "Hm."}),
        streamed(),
    ],
    ids=["without-the-last-event", "nothing-said", "only-thoughts", "empty"],
)
def test_an_answer_without_a_finish_reason_is_lost_if_it_did_not_end_or_says_nothing(body):
    assert type(answered(STREAM, 200, body)) is errors.ConnectionLostError


@pytest.mark.regression("worker 320")
@pytest.mark.parametrize("said", ["It ends with `data: [DONE]`.", "event: message_stop\n", "\ndata:[DONE]"])
def test_an_answer_about_streams_that_breaks_off_is_lost_though_it_names_their_last_event(said):
    assert type(answered(STREAM, 200, streamed({"content": said}, last=b""))) is errors.ConnectionLostError


@pytest.mark.regression("worker 167")
def test_the_last_event_is_found_in_a_compressed_stream():
    body = gzip.compress(streamed({"content": "Yes."}))
    assert answered(STREAM, 200, body, "content-encoding: gzip") == "Yes."


@pytest.mark.regression("worker 168")
@pytest.mark.parametrize("provider", [OpenAILLMService, AnthropicLLMService])
def test_an_error_in_json_is_told_though_it_is_called_a_stream(provider):
    refused = answered(
        STREAM, 200, error(message="too long", type="invalid_request_error"), provider=provider
    )
    assert type(refused) is errors.RefusedContextError
    assert "too long" in refused.message
    # Comments alone are not an error.
    lost = answered(STREAM, 200, b": keep-alive\n\n" * 3, provider=provider)
    assert type(lost) is errors.ConnectionLostError


@pytest.mark.regression("worker 168")
def test_an_error_is_told_in_the_form_of_vllm_and_fastchat():
    said = {"object": "error", "message": "too long", "type": "BadRequestError", "code": 400}
    for kind, body in (
        (JSON, json.dumps(said).encode()),
        (STREAM, streamed(last=b"data: " + json.dumps(said).encode() + b"\n\ndata: [DONE]\n\n")),
        (
            STREAM,
            streamed(
                {"content": "Yes"}, last=b"data: " + json.dumps(said).encode() + b"\n\ndata: [DONE]\n\n"
            ),
        ),
    ):
        got = answered(kind, 200, body)
        assert type(got) is errors.RefusedContextError
        assert got.message == "openai ended its answer with an error: too long"


@pytest.mark.regression("worker 169")
@pytest.mark.parametrize(
    ("detail", "told"),
    [
        ("Not with this model", "openai answered with 422: Not with this model"),
        (
            [{"loc": ["body", "tools"], "msg": "Field required"}],
            'openai answered with 422: {"detail": [{"loc": ["body", "tools"], "msg": "Field required"}]}',
        ),
    ],
)
def test_what_is_wrong_with_a_request_is_told_as_fastapi_says_it(detail, told):
    refused = answered(JSON, 422, json.dumps({"detail": detail}).encode())
    assert (type(refused), refused.message) == (errors.RefusedContextError, told)


@pytest.mark.regression("worker 89")
def test_an_error_that_is_plain_text_is_told():
    got = answered(STREAM, 200, b'data: {"error": "out of memory", "error_type": "generation"}\n\n')
    assert type(got) is errors.ProviderUnavailableError
    assert got.message == "openai ended its answer with an error: out of memory"
    refused = answered(JSON, 400, b'{"error": "too long"}')
    assert refused.message == "openai answered with 400: too long"
