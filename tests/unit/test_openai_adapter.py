"""A context as a request to OpenAI's chat completions: each rule of the adapter."""

import re
from typing import Any

import pytest

from frameledger import async_tool_messages
from frameledger.context import LLMContext, LLMSpecificMessage
from frameledger_services.providers import UnmappableError
from frameledger_services.providers.message_order import OPENING
from frameledger_services.providers.openai import OpenAILLMService


def body(*messages, tools=None, settings=None, choice=None, **request):
    context = LLMContext(messages, tools, settings, choice)
    return OpenAILLMService().request(context, **request).body


def told(*messages, **given):
    return body(*messages, **given)["messages"]


HELLO = {"role": "user", "content": "Hello."}
IMAGE = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}


def own(message):
    return LLMSpecificMessage("openai", message)


def call(name, arguments="{}"):
    one = {"id": name, "type": "function", "function": {"name": "f", "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [one]}


def result(name, content="1"):
    return {"role": "tool", "tool_call_id": name, "content": content}


def test_standard_messages_go_as_they_are():
    messages = [
        {"role": "system", "content": "s"},
        {"role": "developer", "content": "d"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, IMAGE], "name": "Ann"},
        {"role": "assistant", "content": "b", "tool_calls": call("x")["tool_calls"]},
        async_tool_messages.build_started_message("x"),
        async_tool_messages.build_final_result_message("x", "1"),
    ]
    assert told(*messages) == messages


@pytest.mark.parametrize(
    ("role", "sent"),
    [
        ("developer", {"role": "developer", "content": "d"}),
        ("system", {"role": "system", "content": "d"}),
        ("user", {"role": "user", "content": "<developer>\nd\n</developer>"}),
    ],
)
def test_developer_messages_go_as_a_server_can_hear_them(role, sent):
    service = OpenAILLMService(developer_role=role)
    request = service.request(LLMContext([HELLO, {"role": "developer", "content": "d"}]))
    assert request.body["messages"] == [HELLO, sent]


def test_the_service_s_instruction_is_a_system_message_of_its_own():
    assert told(HELLO, settings={"system_instruction": "s"}) == [{"role": "system", "content": "s"}, HELLO]


def test_its_own_messages_are_unwrapped_and_its_thoughts_left_out():
    said = {"role": "assistant", "content": "a", "audio": {"id": "audio_1"}}
    assert told(own(said), own({"type": "thought", "text": "t", "signature": None}), HELLO) == [said, HELLO]


def test_an_assistant_that_says_nothing_is_left_out():
    assert told({"role": "assistant", "content": ""}, {"role": "assistant", "tool_calls": []}, HELLO) == [
        HELLO
    ]
    assert told() == [{"role": "user", "content": OPENING}]


@pytest.mark.regression("worker 77")
@pytest.mark.parametrize("empty", [[], ()])
def test_content_that_is_an_empty_list_is_empty_text(empty):
    made = told(
        {"role": "user", "content": empty}, {**call("x"), "content": empty}, result("x", empty), HELLO
    )
    assert made == [
        {"role": "user", "content": ""},
        {**call("x"), "content": None},
        {"role": "tool", "tool_call_id": "x", "content": ""},
        HELLO,
    ]


@pytest.mark.parametrize(
    ("arguments", "sent"), [('{"a":1.50}', '{"a":1.50}'), ({"a": "é"}, '{"a":"é"}'), (None, "{}")]
)
def test_arguments_are_sent_as_json_text(arguments, sent):
    assert told(call("x", arguments), result("x"))[0]["tool_calls"][0]["function"]["arguments"] == sent


def test_an_id_that_is_too_long_is_another_one_in_both_places():
    made = told(call("x" * 41), result("x" * 41))
    assert made[0]["tool_calls"][0]["id"] == made[1]["tool_call_id"]
    assert len(made[1]["tool_call_id"]) <= 40
    assert told(call("x" * 40), result("x" * 40))[1]["tool_call_id"] == "x" * 40


@pytest.mark.parametrize("role", ["system", "developer", "assistant"])
def test_an_image_is_the_users_alone(role):
    with pytest.raises(
        UnmappableError, match=f"'image_url' in message 1 of the request, whose role is '{role}'"
    ):
        body({"role": role, "content": [IMAGE]})


def test_an_image_in_a_result_is_refused():
    with pytest.raises(UnmappableError, match="'image_url' in message 2"):
        body(call("x"), result("x", [IMAGE]))


@pytest.mark.regression("bridge 34")
def test_a_text_stands_for_a_medium_that_is_not_stored():
    medium = {"$media": {"sha256": "00", "characters": 1_600_000, "type": "image/jpeg"}}
    note = "(image/jpeg of 1.2 MB, not stored)"
    parts = [{"type": "text", "text": "What?"}, {"type": "image_url", "image_url": {"url": medium}}]
    assert told({"role": "user", "content": parts})[0]["content"] == [
        parts[0],
        {"type": "text", "text": note},
    ]
    assert told({"role": "user", "content": medium})[0]["content"] == note


@pytest.mark.regression("bridge 35")
@pytest.mark.parametrize(
    ("kind", "file", "sent"),
    [
        (
            "file_base64",
            {
                "file_data": "data:application/pdf;base64,AA",
                "filename": "a.pdf",
                "mime_type": "application/pdf",
            },
            {"type": "file", "file": {"file_data": "data:application/pdf;base64,AA", "filename": "a.pdf"}},
        ),
        (
            "file_base64",
            {"file_data": "data:image/png;base64,AA", "filename": "", "mime_type": "image/png"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}},
        ),
        (
            "file_url",
            {"url": "https://a.example/a.png", "filename": "", "mime_type": "image/png"},
            {"type": "image_url", "image_url": {"url": "https://a.example/a.png"}},
        ),
        (
            "file_url",
            {"url": "https://a.example/a.pdf", "filename": "a.pdf", "mime_type": "application/pdf"},
            {"type": "text", "text": "(application/pdf a.pdf: https://a.example/a.pdf)"},
        ),
    ],
)
def test_pipecat_s_files_have_the_form_of_the_api(kind, file, sent):
    assert told({"role": "user", "content": [{"type": kind, "file": file}]})[0]["content"] == [sent]


def test_an_own_message_without_a_role_is_refused():
    with pytest.raises(UnmappableError, match="message 1 of the request, which has no role"):
        body(own({"type": "wizardry"}))


def test_top_k_is_refused_by_name():
    with pytest.raises(UnmappableError, match="top_k"):
        body(HELLO, settings={"top_k": 5})


def test_two_limits_are_one_and_the_smaller_counts():
    both = body(HELLO, settings={"max_tokens": 5, "max_completion_tokens": 9})
    assert (both.get("max_tokens"), both["max_completion_tokens"]) == (None, 5)


@pytest.mark.parametrize(
    ("base_url", "name"),
    [
        (None, "max_completion_tokens"),
        ("https://eu.api.openai.com/v1", "max_completion_tokens"),
        *(
            pytest.param(url, "max_completion_tokens", marks=pytest.mark.regression("worker 90"))
            for url in (
                "https://me.openai.azure.com/openai/v1/",
                "https://me.services.ai.azure.com/openai/v1",
            )
        ),
        ("https://notapi.openai.com.example/v1", "max_tokens"),
        ("http://127.0.0.1:8000/v1", "max_tokens"),
    ],
)
def test_openai_itself_gets_the_newer_limit_and_others_the_one_that_was_set(base_url, name):
    assert limit_sent(base_url) == {name: 5}


def limit_sent(base_url, **options):
    sent = OpenAILLMService(base_url=base_url, **options).request(LLMContext([HELLO]), max_tokens=5).body
    return {key: value for key, value in sent.items() if key.startswith("max")}


def test_an_option_outranks_what_the_host_says_of_a_server():
    assert limit_sent("https://gateway.example/v1", takes_max_tokens=False) == {"max_completion_tokens": 5}
    assert limit_sent("https://me.services.ai.azure.com/v1", takes_max_tokens=True) == {"max_tokens": 5}


@pytest.mark.regression("worker 87")
@pytest.mark.parametrize(
    ("base_url", "options", "is_short"),
    [
        ("https://api.mistral.ai/v1", {}, True),
        ("https://api.mistral.ai/v1", {"short_call_ids": False}, False),
        ("https://gateway.example/v1", {"short_call_ids": True}, True),
        ("https://gateway.example/v1", {}, False),
    ],
)
def test_ids_of_calls_are_nine_letters_and_digits_where_the_server_takes_no_others(
    base_url, options, is_short
):
    service = OpenAILLMService(base_url=base_url, **options)
    ids = [f"call_{number:032x}" for number in range(50)]
    history = [message for name in ids for message in (call(name), result(name))]
    request = service.request(LLMContext([HELLO, *history]))
    sent = request.body["messages"][1:]
    called = [message["tool_calls"][0]["id"] for message in sent[::2]]
    assert called == [message["tool_call_id"] for message in sent[1::2]]
    assert len(set(called)) == len(ids)
    if is_short:
        assert all(re.fullmatch("[a-zA-Z0-9]{9}", name) for name in called)
    else:
        assert called == ids
    # They are the same in the next request, and in one that is made again from the log.
    elsewhere = OpenAILLMService()
    elsewhere.write_with(
        OpenAILLMService().get_llm_adapter().with_parameters(service.get_llm_adapter().parameters())
    )
    assert elsewhere.request(LLMContext([HELLO, *history])).content == request.content


def test_a_request_that_an_earlier_version_recorded_is_made_as_it_was():
    adapter = OpenAILLMService().get_llm_adapter()
    for takes_max_tokens in (False, True):
        recorded = {"developer_role": "developer", "takes_max_tokens": takes_max_tokens}
        since = ("short_call_ids", "user_first", "plain_text", "mistral_fields", "strict_order")
        known = recorded | {"takes_extra_fields": takes_max_tokens, "reasons_with_functions": True}
        since_then = ("alternating", "accepted_names", "null_content", "omits_empty_fields")
        known |= dict.fromkeys((*since, *since_then), False)
        assert adapter.with_parameters(recorded).parameters() == known


@pytest.mark.regression("journey 135")
@pytest.mark.parametrize("base_url", ["https://api.openai.com/v1", "https://api.groq.com/openai/v1"])
def test_fields_that_say_nothing_are_left_out(base_url):
    """OpenAI's SDK has them in each answer, and Groq refuses a message with a field that it does not know."""
    empty: dict[str, Any] = {"refusal": None, "annotations": [], "audio": None, "function_call": None}
    messages = [HELLO, {"role": "assistant", "content": "Hi."}, HELLO]
    service = OpenAILLMService(base_url=base_url)

    def sent(*given):
        return service.request(LLMContext(given)).body["messages"]

    assert sent(*(message | empty for message in messages)) == sent(*messages)
    assert sent(HELLO, call("x") | empty, result("x")) == sent(HELLO, call("x"), result("x"))
    parameters = service.get_llm_adapter().parameters()
    del parameters["omits_empty_fields"]
    service.write_with(service.get_llm_adapter().with_parameters(parameters))
    assert sent(HELLO | empty) == [HELLO | empty]


@pytest.mark.regression("worker 170")
def test_calls_without_content_are_sent_with_null_to_openai_and_without_the_field_to_others():
    """OpenAI answers with 500 to a message without the field in a request with a file."""
    without = {name: value for name, value in call("x").items() if name != "content"}
    messages = [HELLO, without, result("x"), {**call("y"), "content": ""}, result("y")]

    def sent(service):
        return service.request(LLMContext(messages)).body["messages"]

    assert sent(OpenAILLMService()) == [HELLO, call("x"), *messages[2:]]
    assert sent(OpenAILLMService(base_url="http://localhost:11434/v1")) == messages
    assert sent(OpenAILLMService(null_content=False)) == messages
    recorded = OpenAILLMService()
    parameters = recorded.get_llm_adapter().parameters()
    del parameters["null_content"]
    recorded.write_with(recorded.get_llm_adapter().with_parameters(parameters))
    assert sent(recorded) == messages


@pytest.mark.regression("worker 158")
@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("Ann Lee", "Ann_Lee"),
        ("<a|b>/c\\d\n", "_a_b__c_d_"),
        ("Zoë-2.b", "Zoë-2.b"),
        ("a" * 65, "a" * 64),
        ("", None),
        (None, None),
        (7, None),
    ],
)
def test_a_name_is_sent_as_the_api_accepts_it_and_recorded_requests_as_it_was_stored(name, sent):
    messages = [{**HELLO, "name": name}, call("x"), {**result("x"), "name": name}]
    assert [one.get("name") for one in told(*messages)] == [sent, None, sent]
    assert sum("name" in one for one in told(*messages)) == (0 if sent is None else 2)
    service = OpenAILLMService()
    parameters = service.get_llm_adapter().parameters()
    del parameters["accepted_names"], parameters["omits_empty_fields"]
    service.write_with(service.get_llm_adapter().with_parameters(parameters))
    assert service.request(LLMContext(messages)).body["messages"] == messages


@pytest.mark.regression("worker 128")
@pytest.mark.parametrize(
    ("model", "effort"),
    [
        ("gpt-5.5", "none"),
        ("gpt-5.6-terra", "none"),
        ("gpt-5.10-mini", "none"),
        ("gpt-6", "none"),
        ("gpt-5.4-mini", None),
        ("gpt-5-mini", None),
        ("gpt-5.6-chat-latest", None),
        ("gpt-4o", None),
        ("o4-mini", None),
    ],
)
def test_models_that_reason_by_themselves_are_told_not_to_where_functions_are_offered(model, effort):
    settings, tools = {"model": model}, [{"name": "f"}]
    assert body(HELLO, tools=tools, settings=settings).get("reasoning_effort") == effort
    assert "reasoning_effort" not in body(HELLO, settings=settings)
    own = settings | {"extra": {"reasoning_effort": "low"}}
    assert body(HELLO, tools=tools, settings=own)["reasoning_effort"] == "low"
    gateway = OpenAILLMService(base_url="https://gateway.example/v1")
    request = gateway.request(LLMContext([HELLO], tools, settings))
    assert "reasoning_effort" not in request.body


@pytest.mark.regression("worker 129")
@pytest.mark.parametrize(
    ("base_url", "options", "role"),
    [
        ("https://api.openai.com/v1", {}, "developer"),
        ("https://me.openai.azure.com/openai/v1", {}, "developer"),
        ("https://api.deepseek.com", {}, "user"),
        ("http://127.0.0.1:8000/v1", {}, "user"),
        ("http://127.0.0.1:8000/v1", {"developer_role": "developer"}, "developer"),
    ],
)
def test_only_a_server_that_is_known_to_have_the_role_gets_developer_messages(base_url, options, role):
    service = OpenAILLMService(base_url=base_url, **options)
    final = async_tool_messages.build_final_result_message("x", "1")
    sent = service.request(LLMContext([HELLO, final])).body["messages"][-1]
    assert sent["role"] == role
    assert final["content"] in sent["content"]


@pytest.mark.regression("worker 131")
@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "system", "content": "Greet the caller."}],
        [{"role": "system", "content": "Greet."}, {"role": "assistant", "content": "Hello."}, HELLO],
        [call("x"), result("x")],
    ],
)
def test_a_server_that_wants_the_user_to_speak_first_gets_a_message_that_says_nothing(messages):
    def roles(base_url):
        service = OpenAILLMService(base_url=base_url)
        service.append_system_instruction("Be brief.")
        sent = service.request(LLMContext(messages)).body["messages"]
        return [message["role"] for message in sent if message["role"] != "system"], sent

    at_google, sent = roles("https://generativelanguage.googleapis.com/v1beta/openai/")
    assert at_google[0] == "user"
    assert {"role": "user", "content": OPENING} in sent
    at_openai, sent = roles("https://api.openai.com/v1")
    assert at_openai == at_google[1:]


def test_a_user_who_has_spoken_first_has_nothing_before_it():
    service = OpenAILLMService(base_url="http://127.0.0.1:8000/v1")
    messages = [{"role": "system", "content": "s"}, HELLO, {"role": "assistant", "content": "Hello."}]
    assert service.request(LLMContext(messages)).body["messages"] == messages


@pytest.mark.regression("worker 129")
def test_text_in_parts_is_a_string_except_for_servers_that_are_known_to_take_parts():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    messages = [
        {"role": "system", "content": parts[:1]},
        {"role": "user", "content": parts},
        {"role": "assistant", "content": parts[:1]},
        {"role": "user", "content": [*parts, IMAGE]},
    ]
    assert told(*messages) == messages
    service = OpenAILLMService(base_url="https://api.deepseek.com")
    sent = service.request(LLMContext(messages)).body["messages"]
    assert [message["content"] for message in sent] == ["a", "a\nb", "a", [*parts, IMAGE]]


def test_what_is_not_set_is_not_sent():
    assert body(HELLO).keys() == {"model", "messages", "stream", "stream_options"}


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("auto", "auto"),
        ("required", "required"),
        ("none", "none"),
        ({"type": "function", "function": {"name": "f"}}, {"type": "function", "function": {"name": "f"}}),
        ({"type": "function", "name": "run"}, {"type": "custom", "custom": {"name": "run"}}),
    ],
)
def test_a_tool_choice_has_its_own_form(choice, sent):
    run = {"llm": "openai", "tool": {"type": "custom", "custom": {"name": "run"}}}
    assert body(HELLO, tools=[{"name": "f"}, run], choice=choice)["tool_choice"] == sent


@pytest.mark.parametrize("strict", [True, False, None])
def test_a_strict_schema_says_so_and_any_other_says_nothing(strict):
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    function = {"name": "f", "parameters": schema} | ({} if strict is None else {"strict": strict})
    definition = {"type": "function", "function": function}
    assert body(HELLO, tools=[definition])["tools"] == [definition]


def called(name):
    one = {"id": "x", "type": "function", "function": {"name": name, "arguments": "{}"}}
    return {"role": "assistant", "content": None, "tool_calls": [one]}


@pytest.mark.regression("worker 30")
@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("multi_tool_use.parallel", "multi_tool_use_parallel"),
        ("f" * 70, "f" * 64),
        ("é !", "___"),
        ("", "_"),
        ("get_weather-2", "get_weather-2"),
    ],
)
def test_a_called_name_that_the_api_rejects_is_sent_as_one_that_it_accepts(name, sent):
    assert told(HELLO, called(name), result("x"))[1] == called(sent)


def test_a_called_name_that_is_offered_stays():
    tools = [{"name": "weather.get", "parameters": {}}]
    assert told(HELLO, called("weather.get"), result("x"), tools=tools)[1] == called("weather.get")


@pytest.mark.regression("worker 40")
@pytest.mark.parametrize(
    ("arguments", "sent"),
    [
        ('{"a" : 1.50}', '{"a" : 1.50}'),
        ({"a": 1}, '{"a":1}'),
        ('{"a": ', '{"arguments":"{\\"a\\": "}'),
        ('"a"', '{"arguments":"\\"a\\""}'),
        ([1], '{"arguments":[1]}'),
        ("", "{}"),
        (None, "{}"),
    ],
)
def test_arguments_are_sent_as_the_text_of_an_object_which_compatible_servers_read_again(arguments, sent):
    assert told(HELLO, call("x", arguments), result("x"))[1] == call("x", sent)
