"""The body of a request for a response: its items as messages, its parameters, and what is rejected."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from frameledger_services.gateway.body import MAX_BYTES
from frameledger_services.gateway.openai_responses import items, references, request, response_ids
from frameledger_services.gateway.openai_responses.response_ids import ResponseId
from frameledger_services.gateway.problems import ProblemError

CALL = {
    "type": "function_call",
    "call_id": "c1",
    "name": "f",
    "arguments": "{}",
    "id": "fc_1",
    "status": "completed",
}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "done"}


def read(given="Hi", **parameters):
    return request.read(request.parse(json.dumps({"input": given, **parameters}).encode()))


def messages(*given):
    return list(read(list(given)).messages)


def refusal(**parameters):
    with pytest.raises(ProblemError) as refused:
        read(**{"given": "Hi", **parameters})
    assert refused.value.word == "bad-parameter"
    return refused.value.members["param"], refused.value.members["code"]


def made(*call_ids):
    function = {"name": "f", "arguments": "{}"}
    calls = [{"id": one, "type": "function", "function": function} for one in call_ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def test_text_is_a_message_of_the_user():
    assert read("Hi").messages == ({"role": "user", "content": "Hi"},)
    assert read("Hi").is_only_new is None


def test_items_are_messages_as_chat_completions_have_them():
    said = {"type": "output_text", "text": "Yes.", "annotations": [], "logprobs": []}
    image = {"type": "input_image", "image_url": "data:image/png;base64,aa", "detail": "low"}
    file = {"type": "input_file", "file_data": "data:application/pdf;base64,aa", "filename": "a.pdf"}
    assert messages(
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "input_text", "text": "What is this?"}, image, file]},
        {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": [said]},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        CALL,
        {**CALL, "call_id": "c2"},
        OUTPUT,
        {**OUTPUT, "call_id": "c2", "output": [{"type": "input_text", "text": "done"}]},
    ) == [
        {"role": "developer", "content": "Be brief."},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "What is this?"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,aa", "detail": "low"}},
                {
                    "type": "file",
                    "file": {"file_data": "data:application/pdf;base64,aa", "filename": "a.pdf"},
                },
            ],
        },
        {"role": "assistant", "content": "Yes."},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        made("c1", "c2"),
        {"role": "tool", "tool_call_id": "c1", "content": "done"},
        {"role": "tool", "tool_call_id": "c2", "content": "done"},
    ]


def test_calls_of_two_answers_are_two_messages():
    assert messages(CALL, OUTPUT, {**CALL, "call_id": "c2"}) == [
        made("c1"),
        {"role": "tool", "tool_call_id": "c1", "content": "done"},
        made("c2"),
    ]


@pytest.mark.parametrize(
    ("item", "param"),
    [
        (5, "input[0]"),
        ({"type": "item_reference"}, "input[0].id"),
        ({"type": "reasoning", "summary": []}, "input[0].type"),
        ({"type": "web_search_call"}, "input[0].type"),
        ({"role": "tool", "content": "x"}, "input[0].role"),
        ({"role": "user"}, "input[0].content"),
        ({"role": "user", "content": []}, "input[0].content"),
        ({"role": "user", "content": [5]}, "input[0].content[0]"),
        ({"role": "user", "content": [{"type": "input_text"}]}, "input[0].content[0].text"),
        (
            {"role": "user", "content": [{"type": "input_image", "file_id": "file-1"}]},
            "input[0].content[0].image_url",
        ),
        ({"role": "user", "content": [{"type": "input_video"}]}, "input[0].content[0].type"),
        ({**CALL, "name": None}, "input[0].name"),
        ({**CALL, "arguments": {}}, "input[0].arguments"),
        ({**CALL, "call_id": None}, "input[0].call_id"),
        ({**CALL, "call_id": "a\x00"}, "input[0].call_id"),
        ({**OUTPUT, "call_id": "\ud83d"}, "input[0].call_id"),
        ({**OUTPUT, "output": None}, "input[0].output"),
    ],
)
def test_an_item_that_no_message_can_say_is_refused_by_its_place(item, param):
    assert refusal(given=[item]) == (param, "invalid_value")


@pytest.mark.parametrize("reference", [{"type": "item_reference", "id": "fc_1"}, {"id": "fc_1"}])
def test_an_item_is_referred_to_by_its_id(reference):
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "I."}],
    }
    given = [{"type": "item_reference", "id": "msg_1"}, reference, OUTPUT]
    stored = {"msg_1": message, "fc_1": {**CALL, "id": "fc_1"}}
    assert items.messages(given, stored) == items.messages([message, CALL, OUTPUT])
    with pytest.raises(ProblemError, match="no item with the id 'fc_1'") as unknown:
        items.messages(given, {"msg_1": message})
    assert (unknown.value.word, unknown.value.members["param"]) == ("no-such-response", "input[1]")


def test_the_id_of_an_item_has_that_of_its_response():
    of_response = ResponseId("acme/1_2", 7)
    token = of_response.token
    for item_id in (f"msg_{token}", f"fc_{token}_0", f"fc_{token}_12"):
        assert response_ids.parse(str(response_ids.of_item(item_id))) == of_response
    for other in ("msg_1", "fc_1", "rs_1", "msg_", "fc_", ""):
        assert response_ids.parse(response_ids.of_item(other) or "") is None


def test_items_of_very_many_responses_are_not_looked_for():
    given = [{"id": f"msg_{ResponseId('talk', version).token}"} for version in range(1, 502)]
    nowhere: Any = None
    with pytest.raises(ProblemError, match="at most 500 responses"):
        asyncio.run(references.stored_items(nowhere, nowhere, given))


def test_items_that_are_referred_to_are_as_large_as_a_body_at_most(monkeypatch):
    item_id = f"msg_{ResponseId('talk', 1).token}"
    item = {"id": item_id, "type": "message", "role": "assistant", "content": "x" * (MAX_BYTES // 4)}

    async def output(*_):
        return [item]

    monkeypatch.setattr(references, "_output", output)

    def stored(times):
        given = [{"type": "item_reference", "id": item_id}] * times
        nowhere: Any = None
        return asyncio.run(references.stored_items(nowhere, nowhere, given))

    assert stored(3) == {item_id: item}
    with pytest.raises(ProblemError, match="refers to have more than") as refused:
        stored(4)
    assert refused.value.word == "too-large"


@pytest.mark.parametrize("given", [None, [], 5, {}])
def test_without_input_there_is_no_question(given):
    assert refusal(given=given) == ("input", "invalid_value")


def test_parameters_become_settings_and_what_providers_know_is_passed_on():
    schema = {"name": "n", "schema": {"type": "object"}, "strict": True}
    found = read(
        model="owl",
        instructions="Be brief.",
        temperature=1,
        max_output_tokens=5,
        text={"format": {"type": "json_schema", **schema}, "verbosity": "low"},
        reasoning={"effort": "low", "summary": None},
        stream=True,
        store=True,
    )
    assert found.changes({}) == {
        "model": "owl",
        "temperature": 1,
        "max_completion_tokens": 5,
        "system_instruction": "Be brief.",
        "extra": {
            "response_format": {"type": "json_schema", "json_schema": schema},
            "verbosity": "low",
            "reasoning_effort": "low",
        },
    }
    assert found.stream


def test_the_instruction_of_the_response_before_is_not_carried_over_and_another_one_stays():
    stored = {"system_instruction": "Be brief."}
    assert read().changes(stored) == {}
    assert replace(read(), replaced_instruction="Be brief.").changes(stored) == {"system_instruction": None}
    # Somebody has changed it since.
    assert replace(read(), replaced_instruction="Be long.").changes(stored) == {}
    assert read(instructions="Be brief.").changes(stored) == {}
    assert read(instructions="Be long.").changes(stored) == {"system_instruction": "Be long."}


@pytest.mark.parametrize(
    "harmless",
    [
        {"background": False},
        {"include": []},
        {"parallel_tool_calls": True},
        pytest.param({"parallel_tool_calls": False}, marks=pytest.mark.regression("gateway 61")),
        {"prompt_cache_key": "k"},
        {"service_tier": "flex"},
        {"stream_options": {"include_obfuscation": False}},
        {"text": {"format": {"type": "text"}}},
        {"tool_choice": "auto"},
        {"top_logprobs": 0},
        {"truncation": "disabled"},
        {"user": "u"},
    ],
    ids=lambda one: next(iter(one)),
)
def test_what_changes_no_answer_is_left_alone(harmless):
    assert read(**harmless) == replace(read(), sha256=read(**harmless).sha256)


@pytest.mark.parametrize(
    ("parameters", "param", "code"),
    [
        ({"store": False}, "store", "unsupported_parameter"),
        ({"background": True}, "background", "unsupported_parameter"),
        ({"include": ["reasoning.encrypted_content"]}, "include", "unsupported_parameter"),
        ({"tool_choice": "required"}, "tool_choice", "unsupported_parameter"),
        ({"truncation": "auto"}, "truncation", "unsupported_parameter"),
        ({"max_tool_calls": 1}, "max_tool_calls", "unsupported_parameter"),
        ({"prompt": {"id": "p"}}, "prompt", "unsupported_parameter"),
        ({"reasoning": {"summary": "auto"}}, "reasoning.summary", "unsupported_parameter"),
        ({"text": {"format": {"type": "grammar"}}}, "text.format.type", "invalid_value"),
        ({"text": "json"}, "text", "invalid_value"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type", "unsupported_parameter"),
        ({"tools": [{"type": "function", "name": "two words"}]}, "tools[0].name", "invalid_value"),
        ({"tools": 5}, "tools", "invalid_value"),
        ({"temperature": "hot"}, "temperature", "invalid_value"),
        ({"max_output_tokens": 0}, "max_output_tokens", "invalid_value"),
        ({"instructions": ["Be brief."]}, "instructions", "invalid_value"),
        ({"model": ""}, "model", "invalid_value"),
        ({"stream": "yes"}, "stream", "invalid_value"),
        (
            {"stream_options": {"include_obfuscation": True}},
            "stream_options.include_obfuscation",
            "unsupported_parameter",
        ),
        ({"stream_options": {"foo": 1}}, "stream_options.foo", "unsupported_parameter"),
        ({"metadata": {"a": 1}}, "metadata", "invalid_value"),
        ({"metadata": {str(number): "" for number in range(17)}}, "metadata", "invalid_value"),
        ({"conversation": {"append": True}}, "conversation.append", "unsupported_parameter"),
        ({"conversation": 5}, "conversation", "invalid_value"),
        ({"conversation": {}}, "conversation", "invalid_value"),
        ({"conversation": "a", "previous_response_id": "resp_b"}, "conversation", "invalid_value"),
        ({"previous_response_id": 5}, "previous_response_id", "invalid_value"),
        ({"messages": []}, "messages", "unknown_parameter"),
    ],
    ids=lambda one: next(iter(one)) if isinstance(one, dict) else "",
)
def test_what_is_not_honoured_is_refused_by_name(parameters, param, code):
    assert refusal(**parameters) == (param, code)


@pytest.mark.regression("gateway 130")
def test_a_framework_that_always_sends_store_is_told_which_value_is_accepted():
    with pytest.raises(ProblemError, match="Send true or leave it out"):
        read("Hi", store=False)


@pytest.mark.regression("gateway 121")
def test_a_framework_that_forces_a_call_for_structured_output_is_told_what_does_the_same():
    with pytest.raises(ProblemError, match=r"`text\.format`, with `json_schema`"):
        read("Hi", tool_choice="required")


@pytest.mark.regression("gateway 16")
def test_an_object_without_an_id_is_no_new_conversation():
    assert refusal(conversation={"id": None}) == ("conversation", "invalid_value")


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"input": NaN}', b"[" * 100_000])
def test_what_is_no_object_of_json_is_refused(body):
    with pytest.raises(ProblemError, match="JSON"):
        request.parse(body)


def test_what_is_noted_leads_back_to_the_request():
    assert read().noted() == {"request_sha256": read().sha256, "response": {}}
    found = read(instructions="Be brief.", previous_response_id="resp_x", metadata={"a": "b"})
    assert found.noted()["response"] == {
        "previous_response_id": "resp_x",
        "metadata": {"a": "b"},
        "has_instructions": True,
    }
