"""A stream that cannot be read counts as an answer that broke off and may be attempted again."""

import asyncio
import gzip

import pytest
from tests.bounds import IN_PROCESS

from frameledger.context import LLMContext
from frameledger_services.providers import errors
from frameledger_services.providers.anthropic import AnthropicLLMService
from frameledger_services.providers.openai import OpenAILLMService

CONTEXT = LLMContext([{"role": "user", "content": "Hello?"}])
WELL_PACKED = gzip.compress(b"data: {}\n\n" * 100)

BODIES = {
    "not JSON": b"data: {no json\n\n",
    "not UTF-8": b"data: \xff\n\n",
    "too deep": b"data: " + b"[" * 100_000 + b"\n\n",
    "too many digits": b'data: {"index": ' + b"9" * 5_000 + b"}\n\n",
    "a count that no frame can carry": b'data: {"usage": {"prompt_tokens": 9999999999999999999}}\n\n',
    "wrongly packed": WELL_PACKED[:20] + b"no gzip" * 20,
}


async def ended(service_class, body):
    """The error of an answer whose stream is this."""
    packed = b"Content-Encoding: gzip\r\n" if body.startswith(WELL_PACKED[:2]) else b""

    async def handle(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n" + packed
        # Anthropic's events have names.
        named = body if packed else b"event: message_start\n" + body
        writer.write(head + b"\r\n" + named)
        await writer.drain()
        writer.close()

    async with asyncio.timeout(IN_PROCESS), await asyncio.start_server(handle, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        service = service_class(api_key="none", base_url=f"http://127.0.0.1:{port}")
        try:
            async for _ in service.answer(service.request(CONTEXT)):
                pass
        finally:
            await service.cleanup()


@pytest.mark.regression("worker 38")
@pytest.mark.parametrize("service_class", [OpenAILLMService, AnthropicLLMService])
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_stream_that_cannot_be_read_is_transient_trouble_of_the_provider(service_class, body):
    with pytest.raises(errors.ProviderUnavailableError):
        asyncio.run(ended(service_class, body))


def test_what_goes_wrong_before_the_server_has_said_anything_is_no_fault_of_its_stream():
    service = OpenAILLMService(api_key="a key with a \N{EURO SIGN}", base_url="http://127.0.0.1:9")

    async def ask():
        async for _ in service.answer(service.request(CONTEXT)):
            pass

    with pytest.raises(UnicodeEncodeError):
        asyncio.run(ask())
