"""A context as a request to Anthropic's Messages API: each rule of the adapter."""

import pytest

from frameledger.context import LLMContext, LLMSpecificMessage
from frameledger_services.providers import UnmappableError
from frameledger_services.providers.anthropic import AnthropicLLMService
from frameledger_services.providers.anthropic_adapter import MAX_TOKENS
from frameledger_services.providers.anthropic_messages import GOING_ON, OPENING


def body(*messages, tools=None, settings=None, choice=None, **request):
    context = LLMContext(messages, tools, settings, choice)
    return AnthropicLLMService().request(context, **request).body


def told(*messages, **given):
    return body(*messages, **given)["messages"]


def user(content):
    return {"role": "user", "content": content}


def bot(content):
    return {"role": "assistant", "content": content}


def call(name="x", arguments="{}"):
    return {
        "role": "assistant",
        "tool_calls": [{"id": name, "function": {"name": "f", "arguments": arguments}}],
    }


def result(content, name="x"):
    return {"role": "tool", "tool_call_id": name, "content": content}


def text(words):
    return {"type": "text", "text": words}


def thought(words, signature="c2ln"):
    return LLMSpecificMessage("anthropic", {"type": "thought", "text": words, "signature": signature})


def thinking(words, signature="c2ln"):
    return {"type": "thinking", "thinking": words, "signature": signature}


def image(url):
    return user([{"type": "image_url", "image_url": {"url": url}}])


def test_messages_of_one_role_are_one_message():
    assert told(user("a"), user("b"), bot("c"), bot("d"), user("e")) == [
        user([text("a"), text("b")]),
        bot([text("c"), text("d")]),
        user([text("e")]),
    ]


def test_the_user_speaks_first_and_last():
    assert told(bot("a")) == [user([text(OPENING)]), bot([text("a")]), user([text(GOING_ON)])]
    assert told() == [user([text(OPENING)])]


def test_first_instructions_are_system_and_later_ones_stay_in_their_place():
    made = body(
        {"role": "system", "content": "s"},
        {"role": "developer", "content": "d"},
        user("a"),
        {"role": "developer", "content": "later"},
        settings={"system_instruction": "the context's setting"},
    )
    assert made["system"] == [text("the context's setting"), text("s"), text("d")]
    assert made["messages"] == [user([text("a"), text("<developer>\nlater\n</developer>")])]


def test_a_thought_goes_before_what_it_belongs_to():
    assert told(user("a"), thought(" t "), bot("b"), user("c"))[1] == bot([thinking(" t "), text("b")])
    with_call = told(user("a"), thought("t"), call(), result("1"))
    assert [block["type"] for block in with_call[1]["content"]] == ["thinking", "tool_use"]


def test_a_thought_waits_for_its_answer_while_others_speak():
    """What a client appends while an answer streams stands before the answer."""
    assert told(user("a"), thought("t"), user("note"), bot("b"), user("c")) == [
        user([text("a"), text("note")]),
        bot([thinking("t"), text("b")]),
        user([text("c")]),
    ]


def test_a_thought_that_nothing_followed_is_left_out():
    assert told(user("a"), thought("t")) == [user([text("a")])]
    interrupted = told(user("a"), thought("old"), user("b"), thought("new"), bot("c"), user("d"))
    assert interrupted[1] == bot([thinking("new"), text("c")])


@pytest.mark.parametrize("signature", [None, ""])
def test_a_thought_that_was_never_signed_is_left_out(signature):
    assert told(user("a"), thought("t", signature), bot("b"), user("c"))[1] == bot([text("b")])


@pytest.mark.regression("worker 163")
@pytest.mark.parametrize("signature", ["", None])
def test_a_server_that_signs_no_thoughts_gets_them_back(signature):
    history = [user("a"), thought("t", signature), call(), result("1")]

    def answered(**options):
        return AnthropicLLMService(**options).request(LLMContext(history)).body["messages"][1]["content"]

    elsewhere = {"base_url": "https://api.xiaomimimo.com/anthropic"}
    assert answered(**elsewhere)[0] == thinking("t") | {"signature": ""}
    assert [block["type"] for block in answered(**elsewhere)] == ["thinking", "tool_use"]
    for options in ({}, elsewhere | {"unsigned_thoughts": False}):
        assert [block["type"] for block in answered(**options)] == ["tool_use"]


def test_a_request_of_an_earlier_version_has_no_unsigned_thoughts():
    service = AnthropicLLMService(base_url="https://api.xiaomimimo.com/anthropic")
    parameters = service.get_llm_adapter().parameters()
    assert parameters.pop("unsigned_thoughts")
    service.write_with(service.get_llm_adapter().with_parameters(parameters))
    made = service.request(LLMContext([user("a"), thought("t", None), bot("b"), user("c")])).body
    assert made["messages"][1] == bot([text("b")])


def test_a_sealed_thought_is_its_own_block_again():
    sealed = {"type": "redacted_thinking", "data": "x"}
    assert told(user("a"), thought("", sealed), bot("b"), user("c"))[1] == bot([sealed, text("b")])


def test_results_stand_before_other_words():
    made = told(user("a"), call(), user("meanwhile"), result("1"))
    assert [block["type"] for block in made[2]["content"]] == ["tool_result", "text"]


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [
        ('{"a": [1.50, "é"]}', {"a": [1.5, "é"]}),
        ({"a": 1}, {"a": 1}),
        ("", {}),
        (None, {}),
        ("no json", {"arguments": "no json"}),
        ("[1]", {"arguments": "[1]"}),
        ('{"a": NaN}', {"arguments": '{"a": NaN}'}),
        ('{"a": 1e999}', {"arguments": '{"a": 1e999}'}),
        ([1], {"arguments": [1]}),
    ],
)
def test_arguments_are_an_object_or_stand_in_one(arguments, sent):
    assert told(user("a"), call(arguments=arguments), result("1"))[1]["content"][0]["input"] == sent


def test_an_id_that_the_api_refuses_is_another_one_in_both_places():
    made = told(user("a"), call("a:b"), result("1", "a:b"))
    [use], [answer] = made[1]["content"], made[2]["content"]
    assert use["id"] == answer["tool_use_id"] != "a:b"


def test_images_come_from_data_and_from_addresses():
    def source(url):
        return told(image(url))[0]["content"][0]["source"]

    assert source("data:image/jpg;base64,AAAA") == {
        "type": "base64",
        "media_type": "image/jpeg",
        "data": "AAAA",
    }
    assert source("https://example.com/a.png") == {"type": "url", "url": "https://example.com/a.png"}


def test_images_may_stand_in_results():
    made = told(user("a"), call(), result(image("data:image/png;base64,AAAA")["content"]))
    assert made[2]["content"][0]["content"][0]["type"] == "image"


def test_documents_come_from_data_and_from_files():
    def document(**file):
        return told(user([{"type": "file", "file": file}]))[0]["content"][0]

    assert document(file_data="data:application/pdf;base64,AAAA", filename="a.pdf") == {
        "type": "document",
        "source": {"type": "base64", "media_type": "application/pdf", "data": "AAAA"},
        "title": "a.pdf",
    }
    assert document(file_id="file_1") == {"type": "document", "source": {"type": "file", "file_id": "file_1"}}


@pytest.mark.parametrize(
    ("message", "named"),
    [
        (image("data:image/tiff;base64,AAAA"), "'image_url' in message 1"),
        (image("ftp://example.com/a.png"), "'image_url' in message 1"),
        (user([{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}]), "'input_audio'"),
        (user([{"type": "file", "file": {"file_data": "data:text/csv;base64,AAAA"}}]), "'file' in message 1"),
        ({**image("https://example.com/a.png"), "role": "developer"}, "an image or a file in message 1"),
        pytest.param(
            {**image("https://example.com/a.png"), "role": "assistant"},
            "an image or a file in message 1 of the request, whose role is 'assistant'",
            marks=pytest.mark.regression("worker 78"),
        ),
        (LLMSpecificMessage("anthropic", {"role": "wizard"}), "message 1 of the request, which is its own"),
        (LLMSpecificMessage("anthropic", "words"), "message 1 of the request, which is its own"),
    ],
)
def test_what_has_no_form_is_refused_by_name(message, named):
    with pytest.raises(UnmappableError, match=named):
        body(message)


def test_the_temperature_is_refused_where_the_scale_ends():
    assert body(user("a"), settings={"temperature": 1.0})["temperature"] == 1.0
    with pytest.raises(UnmappableError, match=r"temperature of 1.5"):
        body(user("a"), settings={"temperature": 1.5})


def test_what_a_front_end_sends_to_any_provider_is_no_demand():
    asked = {
        "frequency_penalty": 0,
        "presence_penalty": 0.0,
        "top_p": 1,
        "extra": {"stop": ".", "response_format": {"type": "text"}},
    }
    made = body(user("a"), settings=asked)
    assert (made["top_p"], made["stop_sequences"]) == (1, ["."])
    assert not made.keys() & {"stop", "response_format", "frequency_penalty", "presence_penalty"}
    several = body(user("a"), settings={"extra": {"stop": [".", "!"], "stop_sequences": ["?"]}})
    assert (several["stop_sequences"], "stop" in several) == (["?"], False)


@pytest.mark.regression("worker 166")
def test_null_is_no_demand():
    assert body(user("a"), settings={"extra": {"stop": None, "response_format": None}}) == body(user("a"))
    asked = body(user("a"), settings={"extra": {"stop": None, "stop_sequences": ["?"]}})
    assert asked["stop_sequences"] == ["?"]


@pytest.mark.parametrize("name", ["frequency_penalty", "presence_penalty", "seed"])
def test_a_setting_that_the_api_lacks_is_refused_by_name(name):
    with pytest.raises(UnmappableError, match=name):
        body(user("a"), settings={name: 1})


def test_there_is_always_one_limit_and_the_smaller_counts():
    assert body(user("a"))["max_tokens"] == MAX_TOKENS
    assert body(user("a"), settings={"max_tokens": 7, "max_completion_tokens": 5})["max_tokens"] == 5


@pytest.mark.regression("worker 157")
def test_a_budget_for_thoughts_leaves_the_answer_its_limit():
    thinking = {"thinking": {"type": "enabled", "budget_tokens": 16_000}}
    assert body(user("a"), settings={"extra": thinking})["max_tokens"] == MAX_TOKENS + 16_000
    # A limit that somebody set is sent as it is.
    assert body(user("a"), settings={"extra": thinking, "max_tokens": 7})["max_tokens"] == 7
    assert body(user("a"), settings={"extra": thinking | {"max_tokens": 9}})["max_tokens"] == 9


@pytest.mark.parametrize("budget", [None, "many", -5, [], 1.5])
def test_a_budget_that_is_none_is_left_to_the_api(budget):
    thinking = {"type": "enabled", "budget_tokens": budget}
    made = body(user("a"), settings={"extra": {"thinking": thinking}})
    assert (made["thinking"], made["max_tokens"]) == (thinking, MAX_TOKENS)


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("auto", {"type": "auto"}),
        ("required", {"type": "any"}),
        ("none", {"type": "none"}),
        ({"type": "function", "function": {"name": "f"}}, {"type": "tool", "name": "f"}),
    ],
)
def test_a_tool_choice_has_its_own_form(choice, sent):
    assert body(user("a"), tools=[{"name": "f"}], choice=choice)["tool_choice"] == sent


def test_a_history_with_calls_has_tools_even_if_the_context_has_none():
    made = body(user("a"), call(), result("1"))
    assert [tool["name"] for tool in made["tools"]] == ["f"]
    assert made["tool_choice"] == {"type": "none"}


MARK = {"type": "ephemeral"}


def marked(messages):
    return [
        (at, place)
        for at, message in enumerate(messages)
        for place, block in enumerate(message["content"])
        if "cache_control" in block
    ]


def test_caching_marks_the_ends_of_tools_system_and_what_stays():
    tools = [{"name": "f"}, {"name": "g"}]
    made = body(
        {"role": "system", "content": "s"}, user("a"), bot("b"), user("c"), tools=tools, prompt_caching=True
    )
    assert [tool.get("cache_control") for tool in made["tools"]] == [None, MARK]
    assert [block.get("cache_control") for block in made["system"]] == [MARK]
    assert marked(made["messages"]) == [(2, 0)]


def test_caching_stops_before_what_will_have_other_words():
    assert marked(told(user("a"), bot("b"), prompt_caching=True)) == [(1, 0)]
    assert marked(told(user("a"), call(), result("IN_PROGRESS"), user("b"), prompt_caching=True)) == [(1, 0)]
    assert marked(told(prompt_caching=True)) == []


def test_caching_leaves_a_mark_that_is_there():
    own = {"type": "web_search_20250305", "name": "s", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    made = body(user("a"), tools=[{"llm": "anthropic", "tool": own}], prompt_caching=True)
    assert made["tools"] == [own]


@pytest.mark.regression("worker 33")
@pytest.mark.parametrize("of_its_own", [1, 2, 4])
def test_caching_leaves_the_marks_of_a_client_and_adds_no_more_than_the_api_takes(of_its_own):
    own = [
        text(str(number)) | {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
        for number in range(of_its_own)
    ]
    made = body(
        {"role": "system", "content": "s"},
        LLMSpecificMessage("anthropic", user(own)),
        bot("b"),
        user("c"),
        tools=[{"name": "f"}],
        prompt_caching=True,
    )
    assert made["messages"][0]["content"] == own
    # A mark for five minutes must not come before one for an hour.
    assert "cache_control" not in str(made["tools"]) + str(made["system"])
    assert marked(made["messages"])[of_its_own:] == ([(2, 0)] if of_its_own < 4 else [])


def test_caching_counts_the_marks_of_a_clients_tools():
    own = {"type": "custom", "name": "s", "input_schema": {"type": "object"}, "cache_control": MARK}
    tools = [{"llm": "anthropic", "tool": own | {"name": str(number)}} for number in range(3)]
    made = body(
        {"role": "system", "content": "s"}, user("a"), bot("b"), user("c"), tools=tools, prompt_caching=True
    )
    assert [block.get("cache_control") for block in made["system"]] == [None]
    assert marked(made["messages"]) == [(2, 0)]


@pytest.mark.regression("worker 93")
def test_caching_marks_no_tool_that_is_loaded_later():
    later = {
        "llm": "anthropic",
        "tool": {"name": "g", "input_schema": {"type": "object"}, "defer_loading": True},
    }
    made = body(user("a"), tools=[{"name": "f"}, {"name": "h"}, later, later], prompt_caching=True)
    assert [tool.get("cache_control") for tool in made["tools"]] == [None, MARK, None]
    made = body(user("a"), tools=[later], prompt_caching=True)
    assert made["tools"] == [later["tool"]]


@pytest.mark.regression("worker 95")
@pytest.mark.parametrize("content", [None, "", "Well."])
def test_a_refusal_in_a_field_of_its_message_is_text(content):
    refused = bot(content) | {"refusal": "I can't help.", "audio": None, "function_call": None}
    words = [text("Well.")] if content else []
    assert told(user("a"), refused, user("why?"))[1] == bot([*words, text("I can't help.")])


@pytest.mark.regression("worker 95")
@pytest.mark.parametrize("field", ["audio", "function_call"])
def test_a_field_of_a_message_that_the_api_has_no_form_for_is_refused_by_name(field):
    with pytest.raises(UnmappableError, match=f"the field '{field}' of message 2"):
        told(user("a"), bot("b") | {field: {"id": "x"}}, user("c"))


@pytest.mark.regression("worker 30")
def test_a_called_name_that_the_api_rejects_is_sent_as_one_that_it_accepts():
    called = call()
    called["tool_calls"][0]["function"]["name"] = "multi_tool_use.parallel"
    made = body(user("a"), called, result("1"))
    assert made["messages"][1]["content"][0]["name"] == "multi_tool_use_parallel"
    assert [tool["name"] for tool in made["tools"]] == ["multi_tool_use_parallel"]


def test_without_caching_nothing_is_marked():
    assert "cache_control" not in str(body(user("a"), tools=[{"name": "f"}]))
