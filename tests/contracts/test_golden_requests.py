"""Requests to providers equal the stored ones byte for byte, and match the types of the official SDKs."""

import json
from collections.abc import Iterator
from functools import cache

import pytest
from pydantic import TypeAdapter
from tests.conftest import needs_shared
from tests.contracts.anthropic_rules import keeps_the_rules
from tests.contracts.golden_contexts import (
    CONTEXTS,
    GOLDEN,
    PROVIDERS,
    REAL,
    real_context,
    real_requests,
    rendered,
)
from tests.unit.test_real_conversations import CONVERSATIONS

from frameledger.context import LLMContext
from frameledger_services.providers.request import encoded

each = pytest.mark.parametrize("provider", PROVIDERS)


@cache
def type_of(provider):
    """What the official SDK sends. Every process of a run collects this module, and one runs it: it imports the SDKs,
    which takes two seconds."""
    if provider == "openai":
        from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming

        return TypeAdapter(CompletionCreateParamsStreaming)
    from anthropic.types.message_create_params import MessageCreateParamsStreaming

    return TypeAdapter(MessageCreateParamsStreaming)


def held(name):
    return json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))


def test_every_held_request_has_its_context():
    files = {path.stem for path in GOLDEN.glob("*.json")} - {REAL.stem}
    assert files == CONTEXTS.keys()
    assert len(files) == 14


@each
@pytest.mark.parametrize("name", CONTEXTS)
def test_a_request_is_the_held_one_to_the_byte(name, provider):
    request, golden = rendered(provider, CONTEXTS[name]), held(name)[provider]
    if isinstance(golden, str):
        assert request == golden
    else:
        assert request.content.decode() == encoded(golden).decode()


@each
@pytest.mark.parametrize("name", CONTEXTS)
def test_a_held_request_fits_the_types_of_the_sdk_and_has_nothing_beside_them(name, provider):
    golden = held(name)[provider]
    if isinstance(golden, str):
        pytest.skip("refused by name")
    added = [call.pop("extra_content", None) for call in calls(golden)]
    added += [message.pop("reasoning_content", None) for message in golden["messages"]]
    assert any(added) == (provider == "openai" and CONTEXTS[name].base_url is not None)
    if provider == "anthropic":
        # The version of the API that our requests name takes them; the SDK's types do not have them since version 1.
        for sampling in ("temperature", "top_p", "top_k"):
            golden.pop(sampling, None)
    assert plain(type_of(provider).validate_python(golden)) == golden


@needs_shared
def test_real_conversations_make_the_held_requests():
    assert len(CONVERSATIONS) == 24
    assert real_requests(CONVERSATIONS) == json.loads(REAL.read_bytes())


@each
@pytest.mark.parametrize("conversation", CONVERSATIONS, ids=[one["name"] for one in CONVERSATIONS])
def test_every_beginning_of_a_real_conversation_can_be_asked(conversation, provider):
    """After each message that is not the assistant's a run may start; the request must fit each time."""
    messages = real_context(conversation).messages
    service = PROVIDERS[provider]()
    for end in range(0, len(messages) + 1, 7):
        body = json.loads(service.request(LLMContext(messages[:end]), prompt_caching=True).content)
        assert plain(type_of(provider).validate_python(body)) == body
        if provider == "anthropic":
            keeps_the_rules(body)


@pytest.mark.parametrize("name", CONTEXTS)
def test_anthropic_s_own_rules_hold(name):
    golden = held(name)["anthropic"]
    if not isinstance(golden, str):
        keeps_the_rules(golden)


def calls(body):
    return [call for message in body["messages"] for call in message.get("tool_calls", ())]


def plain(value):
    """The value with every list that pydantic only checks while it is read, read."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, Iterator)):
        return [plain(item) for item in value]
    return value
