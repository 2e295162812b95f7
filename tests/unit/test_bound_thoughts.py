"""Thoughts of Claude 5.1 and later are bound to the content before them: a server checks it, as the API does."""

import asyncio
import hashlib
import json

import pytest
from tests.bounds import IN_PROCESS

from frameledger.context import LLMContext, LLMSpecificMessage
from frameledger.frames import LLMThoughtEndFrame
from frameledger_services.bench.inference.answers import Answer, Failure, Signature, Text, Thought
from frameledger_services.bench.inference.model_server import serving
from frameledger_services.providers import LLMSettings
from frameledger_services.providers.anthropic import AnthropicLLMService
from frameledger_services.providers.anthropic_adapter import MAX_TOKENS, AnthropicLLMAdapter

HELLO = {"role": "user", "content": "Hello?"}
TOOL = {"name": "f", "parameters": {"type": "object"}}


def binding(received):
    """An answer whose thought is bound to what was received; a refusal where an earlier one no longer fits."""
    body = json.loads(received.body)
    before = [body.get("system"), body.get("tools")]
    for message in body["messages"]:
        for block in message["content"]:
            if block["type"] == "thinking" and block["signature"] != digest(before) and not drops(received):
                return Failure(400, "The block is bound to a different conversation.")
            before.append(block)
    return Answer((Thought("Hm."), Signature(digest(before)), Text("Hello.")))


def digest(before):
    return hashlib.sha256(json.dumps(before).encode()).hexdigest()


def drops(received):
    thinking = json.loads(received.body).get("thinking") or {}
    return (
        thinking.get("block_binding") == {"prefix_mismatch_behavior": "drop_block"}
        and received.headers.get("anthropic-beta") == "thinking-binding-controls-2026-08-01"
    )


def talked(model, **settings):
    """The requests of two turns, between which the conversation gets a tool."""

    async def life():
        async with asyncio.timeout(IN_PROCESS), serving(binding) as server:
            service = AnthropicLLMService(
                base_url=server.anthropic_base_url, settings=LLMSettings(model=model, **settings)
            )
            try:
                first = [frame async for frame in service.answer(service.request(LLMContext([HELLO])))]
                [signature] = [one.signature for one in first if isinstance(one, LLMThoughtEndFrame)]
                thought = {"type": "thought", "text": "Hm.", "signature": signature}
                history = [
                    HELLO,
                    LLMSpecificMessage("anthropic", thought),
                    {"role": "assistant", "content": "Hello."},
                    HELLO,
                ]
                later = service.request(LLMContext(history, [TOOL]))
                assert [frame async for frame in service.answer(later)]
            finally:
                await service.cleanup()
            return [json.loads(one.body) for one in server.received]

    return asyncio.run(life())


@pytest.mark.regression("worker 123")
@pytest.mark.parametrize(
    "model", ["claude-opus-5-5", "claude-haiku-5-5-20261015", "anthropic/claude-fable-6"]
)
def test_a_conversation_goes_on_after_its_tools_have_changed(model):
    for sent in talked(model):
        assert sent["thinking"]["type"] == "adaptive"


def test_what_the_settings_say_of_thinking_is_kept():
    for sent in talked("claude-sonnet-5-5", extra={"thinking": {"type": "between_tools"}}):
        assert sent["thinking"] == {
            "block_binding": {"prefix_mismatch_behavior": "drop_block"},
            "type": "between_tools",
        }


@pytest.mark.parametrize(
    "model", ["claude-sonnet-4-6", "claude-opus-5-20260724", "claude-3-5-haiku-20241022"]
)
def test_models_that_bind_no_thoughts_are_asked_as_before(model):
    body = AnthropicLLMService(settings=LLMSettings(model=model)).request(LLMContext([HELLO])).body
    assert "thinking" not in body


def test_a_model_that_is_told_not_to_think_has_nothing_to_drop():
    settings = LLMSettings(model="claude-haiku-5-5", extra={"thinking": {"type": "disabled"}})
    body = AnthropicLLMService(settings=settings).request(LLMContext([HELLO])).body
    assert body["thinking"] == {"type": "disabled"}


def test_a_request_that_an_earlier_version_recorded_is_made_as_it_was():
    service = AnthropicLLMService(settings=LLMSettings(model="claude-opus-5-5"))
    service.write_with(AnthropicLLMAdapter().with_parameters({}))
    assert "thinking" not in service.request(LLMContext([HELLO])).body
    thinking = {"extra": {"thinking": {"type": "enabled", "budget_tokens": 16_000}}}
    found = service.request(LLMContext([HELLO]).with_settings(thinking)).body
    assert (found["thinking"], found["max_tokens"]) == (thinking["extra"]["thinking"], MAX_TOKENS)
    recorded = AnthropicLLMAdapter().parameters()
    assert AnthropicLLMAdapter().with_parameters(recorded).parameters() == recorded
