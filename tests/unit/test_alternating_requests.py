"""Requests as the templates of open models take them, which vLLM, SGLang and llama.cpp fill in: one system message, at
the beginning, and no two messages of one role after each other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frameledger import async_tool_messages
from frameledger.context import LLMContext, LLMSpecificMessage
from frameledger_services.providers.openai import OpenAILLMService

LOCAL = "http://127.0.0.1:8000/v1"


def user(text, **fields):
    return {"role": "user", "content": text, **fields}


def bot(text, **fields):
    return {"role": "assistant", "content": text, **fields}


def system(text):
    return {"role": "system", "content": text}


def calling(name):
    one = {"id": name, "type": "function", "function": {"name": "f", "arguments": "{}"}}
    return {"role": "assistant", "tool_calls": [one]}


RESULT = {"role": "tool", "tool_call_id": "x", "content": "1"}
IMAGE = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}


def sent(*messages, instruction=None, **options):
    service = OpenAILLMService(base_url=LOCAL, **options)
    if instruction is not None:
        service.append_system_instruction(instruction)
    return service.request(LLMContext(messages)).body["messages"]


def roles(messages):
    return [message["role"] for message in messages]


@pytest.mark.regression("worker 159")
def test_the_instructions_of_service_and_context_are_one_system_message():
    messages = sent(system("You are a clerk."), system("Rhyme."), user("Hello?"), instruction="Be brief.")
    assert messages == [system("Be brief.\n\nYou are a clerk.\n\nRhyme."), user("Hello?")]


@pytest.mark.regression("worker 159")
def test_a_system_message_behind_others_is_the_users_as_a_developers_is():
    late = user("Hello?\n\n<system>\nRhyme.\n</system>")
    assert sent(system("s"), user("Hello?"), system("Rhyme.")) == [system("s"), late]
    assert sent(user("Hello?"), system("Rhyme."), developer_role="system") == [
        user("Hello?"),
        system("Rhyme."),
    ]


@pytest.mark.regression("worker 159")
@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([user("Is there"), user("a train?")], [user("Is there\n\na train?")]),
        ([user("a"), bot("b"), bot("c"), user("d")], [user("a"), bot("b\n\nc"), user("d")]),
        ([user(""), user("a")], [user("a")]),
        ([user([IMAGE]), user("a")], [user([IMAGE, {"type": "text", "text": "a"}])]),
        ([user("a", name="Ann"), user("b", name="Ann")], [user("a\n\nb", name="Ann")]),
    ],
)
def test_messages_of_one_role_after_each_other_are_one(messages, expected):
    assert sent(*messages) == expected


def test_what_differs_in_more_than_its_content_stays_apart():
    called = {**calling("x"), "content": "I look."}
    result = {**RESULT, "content": "2", "tool_call_id": "y"}
    for messages in (
        [user("a", name="Ann"), user("b", name="Bob")],
        [user("a"), bot("b"), called, RESULT],
        [user("a"), calling("x"), RESULT, calling("y"), result],
        [user("a"), bot(None, audio={"id": "audio_1"}), bot(None, audio={"id": "audio_1"}), user("b")],
    ):
        assert sent(*messages) == messages


def test_answers_keep_each_its_own_reasoning():
    thoughts = [
        LLMSpecificMessage(
            "openai/reasoning", {"type": "thought", "text": text, "signature": {"field": "reasoning"}}
        )
        for text in ("1", "2")
    ]
    history = [user("a"), calling("x"), RESULT, thoughts[0], bot("b"), thoughts[1], bot("c"), user("d")]
    assert [one.get("reasoning") for one in sent(*history) if one["role"] == "assistant"] == [None, "1", "2"]


@pytest.mark.parametrize("base_url", ["https://api.openai.com/v1", "https://api.mistral.ai/v1"])
def test_servers_that_are_known_to_take_them_get_them_apart(base_url):
    messages = [system("r"), system("s"), user("a"), user("b")]
    service = OpenAILLMService(base_url=base_url)
    assert service.request(LLMContext(messages)).body["messages"] == messages


def test_what_the_order_of_mistral_adds_alternates_too():
    messages = [user("a"), calling("x"), RESULT, system("Rhyme."), user("b")]
    found = sent(*messages, instruction="Be brief.", strict_order=True)
    assert roles(found) == ["system", "user", "assistant", "tool", "assistant", "user"]


WORDS = st.sampled_from(["", "Hello.", "Well"])
SPOKEN = st.one_of(
    st.builds(user, WORDS),
    st.builds(bot, WORDS),
    st.builds(system, WORDS),
    WORDS.map(lambda text: {"role": "developer", "content": text}),
    st.just(async_tool_messages.build_final_result_message("x", "1")),
)


@pytest.mark.regression("worker 159")
@given(st.lists(SPOKEN, max_size=8))
def test_a_conversation_of_words_has_one_system_message_and_then_alternates(messages):
    found = roles(sent(*messages, instruction="Be brief."))
    assert found[0] == "system"
    assert all(role == ("user", "assistant")[at % 2] for at, role in enumerate(found[1:]))
