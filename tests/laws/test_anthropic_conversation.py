"""For any context, the request to Anthropic is one that the API accepts, and the part up to its cache mark does not
change."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.contracts.anthropic_rules import keeps_the_rules

from frameledger.context import LLMContext, LLMSpecificMessage
from frameledger_services.providers.anthropic import AnthropicLLMService

IDS = st.sampled_from(["x", "y", "with signs: é", "z" * 70])
TEXT_PART = {"type": "text", "text": "a"}
WORDS = st.sampled_from(["a", "b\n", " ", ""])
TEXTS = st.one_of(WORDS, st.lists(st.builds(lambda text: {"type": "text", "text": text}, WORDS), max_size=2))
ARGUMENTS = st.sampled_from(
    ["{}", '{"a": 1.50}', "", "no json", "[1]", "NaN", '{"a": 1e999}', {"a": 1}, None]
)


def assistant(text, calls):
    return {"role": "assistant", "content": text, "tool_calls": calls}


def call(name, arguments):
    return {"id": name, "type": "function", "function": {"name": "f", "arguments": arguments}}


def thought(text, signature):
    return LLMSpecificMessage("anthropic", {"type": "thought", "text": text, "signature": signature})


SPOKEN = st.one_of(
    st.builds(
        lambda role, text: {"role": role, "content": text},
        st.sampled_from(["user", "assistant", "system", "developer"]),
        TEXTS,
    ),
    st.builds(assistant, st.one_of(TEXTS, st.none()), st.lists(st.builds(call, IDS, ARGUMENTS), max_size=3)),
    st.builds(
        thought, WORDS, st.sampled_from(["c2ln", None, "", {"type": "redacted_thinking", "data": "x"}])
    ),
    st.builds(
        lambda role: LLMSpecificMessage(
            "anthropic", {"role": role, "content": [{"type": "text", "text": "own"}]}
        ),
        st.sampled_from(["user", "assistant"]),
    ),
    st.just(LLMSpecificMessage("openai", {"role": "user", "content": "not for you"})),
)
RESULTS = st.builds(
    lambda name, text: {"role": "tool", "tool_call_id": name, "content": text},
    IDS,
    TEXTS,
)
RUNNING = st.builds(
    lambda name: (
        assistant(None, [call(name, "{}")]),
        {"role": "tool", "tool_call_id": name, "content": "IN_PROGRESS"},
    ),
    IDS,
)
MESSAGES = st.lists(
    st.one_of(SPOKEN.map(lambda one: (one,)), RESULTS.map(lambda one: (one,)), RUNNING), max_size=12
)
MESSAGES = MESSAGES.map(lambda several: [message for one in several for message in one])
SERVICE = AnthropicLLMService()


def body(messages):
    request = SERVICE.request(LLMContext(messages), prompt_caching=True)
    return json.loads(request.content)


def blocks(messages):
    """Returns all blocks with their roles and without marks, and the number of those up to the mark."""
    told: list[tuple[str, dict]] = []
    marked = 0
    for message in body(messages)["messages"]:
        for block in message["content"]:
            if block.pop("cache_control", None) is not None:
                marked = len(told) + 1
            told.append((message["role"], block))
    return told, marked


def settled(message):
    """Returns the message once every call has its result."""
    if isinstance(message, LLMSpecificMessage) or message["content"] != "IN_PROGRESS":
        return message
    return {**message, "content": "done"}


def an_answer_may_go_on(messages):
    """Whether a call after these messages counts as part of the answer that they end with: that has a signed thought,
    and only calls and results follow the thought (`gathering`)."""
    called = False
    for message in reversed(messages):
        if isinstance(message, LLMSpecificMessage):
            return called and message.llm == "anthropic" and bool(message.message.get("signature"))
        if message["role"] not in {"tool", "assistant"}:
            return False
        called = called or bool(message.get("tool_calls"))
    return False


@given(MESSAGES)
def test_every_context_makes_a_request_that_the_api_takes(messages):
    keeps_the_rules(body(messages))


@pytest.mark.regression("fault 97")
@pytest.mark.regression("fault 197")
@given(MESSAGES, st.lists(SPOKEN, max_size=6))
@example([{"role": "tool", "tool_call_id": "x", "content": "a"}], [assistant(None, [call("x", "{}")])])
@example(
    [{"role": "tool", "tool_call_id": "x", "content": [TEXT_PART]}], [assistant(None, [call("x", "{}")])]
)
@example(
    [
        thought("a", "c2ln"),
        {"role": "tool", "tool_call_id": "x", "content": "a"},
        assistant(None, [call("x", "{}")]),
        {"role": "tool", "tool_call_id": "x", "content": "IN_PROGRESS"},
        {"role": "user", "content": "a"},
    ],
    [],
)
@example(
    [
        thought("a", "c2ln"),
        assistant(None, [call("x", "{}")]),
        {"role": "tool", "tool_call_id": "x", "content": "a"},
    ],
    [assistant(None, [call("y", "{}")])],
)
def test_what_is_marked_as_stable_stands_in_the_next_request_as_well(messages, more):
    """Except when a client continues an answer that has a thought and results by then."""
    if an_answer_may_go_on(messages):
        more = [{"role": "user", "content": "over"}, *more]
    before, marked = blocks(messages)
    after, _ = blocks([*map(settled, messages), *more])
    assert after[:marked] == before[:marked]


@given(MESSAGES)
def test_a_signed_thought_is_sent_byte_for_byte_or_not_at_all(messages):
    given_in = [m.message for m in messages if isinstance(m, LLMSpecificMessage) and "signature" in m.message]
    stored = [(m["text"], m["signature"]) for m in given_in]
    sent = [block for _, block in blocks(messages)[0] if block["type"] == "thinking"]
    assert all((block["thinking"], block["signature"]) in stored for block in sent)
