"""Requests that Mistral's API accepts: its own checks of a request, and its names of fields."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from tests.bounds import IN_PROCESS

from frameledger import async_tool_messages
from frameledger.context import LLMContext, LLMSpecificMessage
from frameledger.fold import Conversation, fold
from frameledger.frames import FunctionCallInProgressFrame, FunctionCallResultFrame, FunctionCallsStartedFrame
from frameledger.record import decode
from frameledger_services.bench.inference.answers import Answer, Arguments, Call
from frameledger_services.bench.inference.model_server import serving
from frameledger_services.claims import ClaimedRun
from frameledger_services.inference.answering import answer
from frameledger_services.inference.dependencies import PreparedRequest, RunDependencies
from frameledger_services.providers import LLMSettings
from frameledger_services.providers.openai import OpenAILLMService
from frameledger_services.providers.request import encoded

FIELDS = {"model", "messages", "stream", "temperature", "top_p", "max_tokens", "random_seed", "tools"}
"""Fields that the API knows, of those that we may send."""

NEXT = {
    "system": {"system", "user", "assistant"},
    "user": {"system", "user", "assistant"},
    "assistant": {"user", "assistant", "tool"},
    "tool": {"assistant", "tool"},
}
"""Which role may follow which."""


def mistral(**options):
    return OpenAILLMService(base_url="https://api.mistral.ai/v1", **options)


def sent(*messages, **options):
    body = mistral(**options).request(LLMContext(messages)).body
    assert body.keys() <= FIELDS
    roles = [message["role"] for message in body["messages"]]
    for role, following in pairwise(roles):
        assert following in NEXT[role], f"Unexpected role '{following}' after role '{role}'"
    assert roles[-1] in ("user", "tool") or body["messages"][-1].get("prefix")
    for message in body["messages"]:
        assert "name" not in message
        assert message["role"] != "assistant" or message.get("content") or message.get("tool_calls")
    return body["messages"]


def user(text):
    return {"role": "user", "content": text}


def bot(text):
    return {"role": "assistant", "content": text}


CALL = {
    "role": "assistant",
    "tool_calls": [{"id": "x", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
}
RESULT = {"role": "tool", "tool_call_id": "x", "content": "1"}


@pytest.mark.regression("worker 124")
def test_a_request_has_only_fields_that_the_api_knows():
    settings = LLMSettings(temperature=0.5, seed=7, max_tokens=100, max_completion_tokens=80)
    body = mistral(settings=settings).request(LLMContext([user("Hello?")])).body
    assert body.keys() <= FIELDS
    assert (body["random_seed"], body["max_tokens"]) == (7, 80)
    assert mistral().request(LLMContext([user("Hello?")])).body.keys() == {"model", "messages", "stream"}


@pytest.mark.regression("worker 124")
@pytest.mark.parametrize(
    "messages",
    [
        (user("a"), CALL, RESULT, user("b")),
        (user("a"), CALL, async_tool_messages.build_started_message("x"), bot("I look."), user("b")),
        (
            user("a"),
            CALL,
            async_tool_messages.build_started_message("x"),
            async_tool_messages.build_final_result_message("x", "1"),
        ),
        (user("a"), bot("b")),
        (user("a"), bot("b"), {"role": "system", "content": "From now on, rhyme."}),
        ({"role": "developer", "content": "d"}, {"role": "system", "content": "s"}, bot("Hello.")),
        (user("a"), CALL),
        (RESULT, user("a")),
        (user("a") | {"name": "Ann"}, bot("b") | {"name": "Bob"}, user("c")),
        (),
    ],
)
def test_the_messages_have_an_order_that_the_api_takes(messages):
    assert sent(*messages)


@pytest.mark.regression("journey 135")
def test_a_message_has_only_the_fields_that_the_api_knows():
    """A client that keeps the answers of its SDK sends all their fields."""
    empty: dict[str, Any] = {"refusal": None, "annotations": [], "audio": None, "function_call": None}
    refused = {"role": "assistant", "content": None, "refusal": "I can't."} | {"tool_calls": None}
    kept = [CALL | {"content": ""} | empty, RESULT | {"is_error": False}, bot("b") | empty]
    found = sent(user("a") | {"metadata": {"page": 1}}, *kept, refused, user("c"))
    assert found == [
        user("a"),
        {**CALL, "content": "", "tool_calls": found[1]["tool_calls"]},
        RESULT | {"tool_call_id": found[1]["tool_calls"][0]["id"]},
        bot("b"),
        bot("I can't."),
        user("c"),
    ]


def test_instructions_that_stand_first_stay_and_later_ones_are_the_users():
    rhyme = {"role": "system", "content": "Rhyme."}
    found = sent({"role": "developer", "content": "Be brief."}, rhyme, user("a"), CALL, RESULT, rhyme)
    assert [message["role"] for message in found[:3]] == ["system", "system", "user"]
    assert found[-2:] == [bot("OK."), user("<system>\nRhyme.\n</system>")]


def test_an_answer_that_is_to_be_continued_stays_the_last():
    begun = LLMSpecificMessage("openai", bot("It is") | {"prefix": True})
    assert sent(user("a"), begun)[-1] == bot("It is") | {"prefix": True}


def test_another_server_can_be_given_the_order_alone():
    service = OpenAILLMService(base_url="http://127.0.0.1:8000/v1", strict_order=True)
    body = service.request(LLMContext([user("a"), CALL, RESULT, user("b")])).body
    assert [message["role"] for message in body["messages"]] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
    ]
    assert "stream_options" in body


def announced(service, reply):
    """The calls that a run announces whose model answers so."""
    log = []

    async def publish(context_id, frames):
        log.extend(frames)

    async def next_attempt(number):
        return number + 1

    async def prepare():
        return PreparedRequest(service.request(LLMContext([user("Weather?")])))

    async def life():
        async with asyncio.timeout(IN_PROCESS), serving(reply) as server:
            service._base_url = server.openai_base_url
            run = ClaimedRun("effect", "ctx", 7, "run-1", 1, "claim", None)
            try:
                await answer(run, service, RunDependencies("me", prepare, publish, next_attempt, 0.0, 0))
            finally:
                await service.cleanup()

    asyncio.run(life())
    [frame] = [one for one in log if isinstance(one, FunctionCallsStartedFrame)]
    return frame


@pytest.mark.regression("worker 126")
@pytest.mark.parametrize("given", ["aB3dE5fG7", "call_0", "toolu_01A09q90qw90lq917835lq9"])
def test_a_model_knows_its_call_by_the_id_that_later_messages_and_the_log_name(given):
    service = OpenAILLMService(short_call_ids=True)
    frame = announced(service, Answer((Call(0, given, "f"), Arguments(0, "{}")), "tool_calls"))
    tool_call_id = frame.function_calls[0].tool_call_id
    about = {"function_name": "f", "tool_call_id": tool_call_id}
    frames = [
        frame.model_copy(update={"run_id": None, "attempt": None}),
        FunctionCallInProgressFrame(**about, arguments={}, cancel_on_interruption=False),
        FunctionCallResultFrame(**about, result="cold"),
    ]
    stored = [decode(encoded(one.model_dump(mode="json", exclude_none=True))) for one in frames]
    messages = fold(stored, Conversation.new("c")).messages
    request = service.request(LLMContext([user("Weather?"), *messages]))
    [shown] = [message for message in request.body["messages"] if message.get("tool_calls")]
    assert shown["tool_calls"][0]["id"] == tool_call_id
    assert "async_tool" in request.body["messages"][-1]["content"]
    assert tool_call_id in request.body["messages"][-1]["content"]
