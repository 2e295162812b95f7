"""The parameters of a completion: which are honoured, which are rejected by name, and which have no effect."""

import json

import pytest

from frameledger_services.gateway.openai import request
from frameledger_services.gateway.problems import ProblemError

HI = {"role": "user", "content": "Hi"}


def called(**change):
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    return {"role": "assistant", "tool_calls": [{**call, **change}]}


def read(**parameters):
    return request.read(json.dumps({"messages": [HI], **parameters}).encode())


def refusal(body):
    with pytest.raises(ProblemError) as refused:
        request.read(body if isinstance(body, bytes) else json.dumps(body).encode())
    assert refused.value.word == "bad-parameter"
    return refused.value.members["param"], str(refused.value)


def test_parameters_become_settings_and_what_providers_know_is_passed_on():
    found = read(model="owl", temperature=1, max_tokens=5, stop=["."], logit_bias={}, seed=None, stream=True)
    assert found.changes({}) == {"model": "owl", "temperature": 1, "max_tokens": 5, "extra": {"stop": ["."]}}
    assert found.stream
    assert not found.include_usage


def test_a_request_says_all_parameters_and_leaves_what_is_none_of_them():
    stored = {
        "model": "owl",
        "temperature": 0.2,
        "top_p": 0.5,
        "system_instruction": "Be brief.",
        "extra": {"stop": ["."], "service": "mine"},
    }
    assert read(model="owl", temperature=0.2, top_p=0.5, stop=["."]).changes(stored) == {}
    assert read(temperature=0.3).changes(stored) == {
        "model": None,
        "temperature": 0.3,
        "top_p": None,
        "extra": {"service": "mine"},
    }
    assert read().changes({"extra": {"stop": ["."]}}) == {"extra": None}


def test_a_model_of_the_name_of_the_house_is_whichever_there_is():
    assert read(model="frameledger").model is None
    assert read().model is None


@pytest.mark.parametrize(
    "harmless",
    [
        {"n": 1},
        {"tools": []},
        {"tool_choice": "auto"},
        {"logprobs": False},
        {"modalities": ["text"]},
        {"user": "ann", "metadata": {"a": "b"}, "store": True, "parallel_tool_calls": False},
        {"audio": None, "n": None, "unheard_of": None},
        {"stream_options": {"include_usage": True, "include_obfuscation": False}},
    ],
    ids=str,
)
def test_what_changes_no_answer_changes_nothing(harmless):
    assert read(**harmless).changes({}) == {}


@pytest.mark.parametrize(
    ("parameters", "name"),
    [
        ({"n": 2}, "n"),
        ({"n": True}, "n"),
        ({"tools": {}}, "tools"),
        ({"tools": [{"type": "function"}]}, "tools[0]"),
        ({"tools": [{"type": "custom", "custom": {"name": "f"}}]}, "tools[0]"),
        ({"tools": [{"type": "function", "function": {"name": ""}}]}, "tools[0].name"),
        ({"functions": [{}]}, "functions"),
        ({"tool_choice": "none"}, "tool_choice"),
        ({"logprobs": True}, "logprobs"),
        ({"modalities": ["audio"]}, "modalities"),
        ({"prediction": {"type": "content"}}, "prediction"),
        ({"best_of": 3}, "best_of"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": -1}, "temperature"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"model": 5}, "model"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": []}, "stream_options"),
        *(
            pytest.param({"stream_options": options}, place, marks=pytest.mark.regression("gateway 61"))
            for options, place in (
                ({"foo": 1}, "stream_options.foo"),
                ({"include_obfuscation": True}, "stream_options.include_obfuscation"),
            )
        ),
        ({"conversation": 7}, "conversation"),
        ({"conversation": {}}, "conversation"),
        ({"conversation": {"id": "a", "also": 1}}, "conversation"),
        ({"messages": []}, "messages"),
        ({"messages": "Hi"}, "messages"),
        ({"messages": ["Hi"]}, "messages[0]"),
        ({"messages": [{"role": "cat", "content": "Hi"}]}, "messages[0].role"),
        ({"messages": [HI, {"role": "user"}]}, "messages[1].content"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"messages": [called(id=["x"])]}, "messages[0].tool_calls[0].id"),
        ({"messages": [called(id="a\x00")]}, "messages[0].tool_calls[0].id"),
        ({"messages": [called(function=5)]}, "messages[0].tool_calls[0].function"),
        ({"messages": [called(function={"name": ["f"]})]}, "messages[0].tool_calls[0].function"),
        (
            {"messages": [called(function={"name": "f", "arguments": {}})]},
            "messages[0].tool_calls[0].function.arguments",
        ),
        ({"messages": [{"role": "assistant", "tool_calls": {"id": "x"}}]}, "messages[0].tool_calls"),
        (
            {"messages": [{"role": "tool", "content": "1", "tool_call_id": "\ud83d"}]},
            "messages[0].tool_call_id",
        ),
    ],
    ids=str,
)
def test_what_cannot_be_honoured_is_refused_by_name(parameters, name):
    assert refusal({"messages": [HI], **parameters})[0] == name


@pytest.mark.regression("gateway 121")
def test_a_framework_that_forces_a_call_for_structured_output_is_told_what_does_the_same():
    with pytest.raises(ProblemError, match="`response_format`, with `json_schema`"):
        read(tool_choice="required")


def test_a_setting_that_is_refused_says_what_it_takes():
    sentence = "temperature: a number of at least 0 is expected."
    assert refusal({"messages": [HI], "temperature": "hot"}) == ("temperature", sentence)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"5", b'{"messages": NaN}', b"[" * 100_000], ids=repr)
def test_a_body_that_is_no_object_is_refused(body):
    parameter, sentence = refusal(body)
    assert parameter is None
    assert sentence.startswith("The body is")


def test_a_conversation_is_an_id_or_an_object_with_one():
    assert read(conversation="a").conversation == "a"
    assert read(conversation={"id": "a"}).conversation == "a"
    assert read().conversation is None
    assert not read(conversation={"id": "a"}).is_only_new
    assert read(conversation={"id": "a", "append": True}).is_only_new


def test_the_same_bytes_are_the_same_request():
    body = json.dumps({"messages": [HI]}).encode()
    assert request.read(body).sha256 == request.read(body).sha256 != request.read(body + b" ").sha256
