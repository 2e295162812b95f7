"""`LLMContext`: valid arguments, no shared state, its wire form, and trimming."""

import copy
import json
import pickle
from typing import Any

import pytest

from frameledger.context import LLMContext, LLMContextMessage, LLMSpecificMessage, OpenAILLMContext, trimmed
from frameledger.tools import FunctionSchema, ToolsSchema

SYSTEM = {"role": "system", "content": "Be brief."}
HI = {"role": "user", "content": "Hi"}
THOUGHT = LLMSpecificMessage("anthropic", {"type": "thought", "text": "Hm", "signature": "c2ln"})
CLOCK = FunctionSchema("clock")
FULL = LLMContext([SYSTEM, HI, THOUGHT], [CLOCK], {"temperature": 0.7}, "auto")


def call(*ids: str) -> dict[str, Any]:
    calls = [{"id": i, "type": "function", "function": {"name": "f", "arguments": "{}"}} for i in ids]
    return {"role": "assistant", "tool_calls": calls}


def result(tool_call_id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": tool_call_id, "content": "1"}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


# The value


def test_null_means_empty_for_each_part() -> None:
    empty = LLMContext(messages=None, tools=None, settings=None, tool_choice=None)
    assert (empty.messages, empty.tools, empty.settings, empty.tool_choice) == ((), (), {}, None)
    assert empty == LLMContext([], [], {}) == LLMContext()


def test_the_seeds_example_builds_a_context_with_settings_and_tools() -> None:
    context = LLMContext(messages=[SYSTEM], settings={"temperature": 0.7}).with_tools([CLOCK.to_openai()])
    assert context.messages == (SYSTEM,)
    assert context.settings == {"temperature": 0.7}
    assert context.get_tools() == (CLOCK.to_openai(),)


def test_parts_of_every_kind_are_carried_untouched() -> None:
    parts = [
        {"type": "text", "text": "Look"},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png", "detail": "low"}},
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
        {"type": "file", "file": {"file_id": "f1"}, "cache_control": None},
    ]
    context = LLMContext([{"role": "user", "content": parts, "name": "Ada"}])
    assert context.messages == ({"role": "user", "content": parts, "name": "Ada"},)


def test_what_is_given_is_copied() -> None:
    message, settings, choice = user("Hi"), {"stop": ["a"]}, {"function": {"name": "clock"}}
    tool = CLOCK.to_openai()
    inner: dict[str, Any] = {"parts": []}
    given = [message, LLMSpecificMessage("google", inner)]
    context = LLMContext(given, [tool], settings, choice)
    before = context.to_wire()
    message["content"] = "changed"
    given.clear()
    inner["parts"].append(1)
    settings["stop"].append("b")
    choice["function"]["name"] = "changed"
    tool["function"]["name"] = "changed"
    assert context.to_wire() == before


def test_what_is_added_is_copied() -> None:
    message = user("Hi")
    context = LLMContext().add_message(message)
    message["content"] = "changed"
    assert context.messages == (user("Hi"),)


def test_changing_the_wire_form_does_not_change_the_context() -> None:
    wire = FULL.to_wire()
    wire["messages"][1]["content"] = "changed"
    wire["messages"][2]["message"]["text"] = "changed"
    wire["tools"][0]["function"]["name"] = "changed"
    wire["settings"].clear()
    assert LLMContext([SYSTEM, HI, THOUGHT], [CLOCK], {"temperature": 0.7}, "auto") == FULL


def test_contexts_are_equal_by_value_and_unequal_in_any_part() -> None:
    assert LLMContext([{"role": "user", "content": ("a",)}]) == LLMContext(
        [{"role": "user", "content": ["a"]}]
    )
    others = [
        FULL.add_message(HI),
        FULL.with_tools(None),
        FULL.with_settings({}),
        FULL.set_tool_choice("none"),
    ]
    assert FULL not in others
    assert FULL.to_wire() != FULL


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda c: pickle.loads(pickle.dumps(c))])
def test_a_context_can_be_copied_and_pickled(again) -> None:
    assert again(FULL) == FULL


@pytest.mark.parametrize(
    ("part", "method"),
    [
        ("messages", "context.with_messages([...])"),
        ("tools", "context.with_tools([...])"),
        ("settings", "context.with_settings({...})"),
        ("tool_choice", "context.set_tool_choice(...)"),
    ],
)
def test_assigning_a_part_names_the_method_to_use(part, method) -> None:
    with pytest.raises(AttributeError, match="LLMContext is a value") as caught:
        setattr(FULL, part, [])
    assert method in str(caught.value)


def test_no_other_attribute_can_be_set_and_none_deleted() -> None:
    with pytest.raises(AttributeError, match="'mesages'"):
        FULL.mesages = []
    with pytest.raises(AttributeError, match="cannot be deleted"):
        del FULL.tools


@pytest.mark.parametrize("message", ["Hi", None, 7, ["role", "user"]], ids=repr)
def test_a_message_that_is_no_mapping_is_refused(message) -> None:
    with pytest.raises(TypeError, match="a message is a mapping"):
        LLMContext([message])


@pytest.mark.parametrize(
    "value",
    [{1, 2}, b"bytes", object(), {1: "a key that is no text"}],
    ids=lambda value: type(value).__name__,
)
def test_what_json_has_no_form_for_is_refused(value) -> None:
    with pytest.raises(TypeError, match="JSON"):
        LLMContext([{"role": "user", "content": [value]}])
    with pytest.raises(TypeError, match="JSON"):
        LLMContext(settings={"extra": value})


# The methods


def test_messages_are_added_at_the_end_in_order_with_repeats() -> None:
    context = LLMContext([SYSTEM])
    longer = context.add_messages([HI, HI]).add_message(THOUGHT)
    assert longer.messages == (SYSTEM, HI, HI, THOUGHT)
    assert context.messages == (SYSTEM,)
    assert context.add_messages([]) == context


def test_each_method_replaces_its_part_and_keeps_the_others() -> None:
    changed = FULL.with_messages([HI]).with_tools(None).with_settings({"seed": 1}).set_tool_choice(None)
    assert changed == LLMContext([HI], None, {"seed": 1}, None)
    assert FULL.with_messages([HI]).tools == FULL.tools
    assert FULL.with_tools([]).messages == FULL.messages
    assert FULL.with_settings(None).tool_choice == "auto"
    assert FULL.set_tool_choice({"type": "none"}).settings == {"temperature": 0.7}
    assert FULL.set_tool_choice({"type": "none"}).tool_choice == {"type": "none"}


def test_tools_may_be_schemas_or_a_tools_schema() -> None:
    assert LLMContext(tools=ToolsSchema([CLOCK])) == LLMContext(tools=[CLOCK.to_openai()])


def test_a_provider_reads_the_standard_messages_and_its_own() -> None:
    other = LLMSpecificMessage("google", {"parts": []})
    context = LLMContext([SYSTEM, THOUGHT, other, HI])
    assert context.get_messages() == (SYSTEM, THOUGHT, other, HI)
    assert context.get_messages("anthropic") == (SYSTEM, THOUGHT, HI)
    assert context.get_messages(llm="google") == (SYSTEM, other, HI)
    assert context.get_messages("openai") == (SYSTEM, HI)


# The wire


def test_the_wire_form_is_plain_json_and_reads_back_equal() -> None:
    wire = FULL.to_wire()
    assert wire == {
        "messages": [SYSTEM, HI, {"llm": "anthropic", "message": THOUGHT.message}],
        "tools": [CLOCK.to_openai()],
        "tool_choice": "auto",
        "settings": {"temperature": 0.7},
    }
    assert LLMContext.from_wire(json.loads(json.dumps(wire))) == FULL


@pytest.mark.parametrize("copied", [True, False])
def test_absent_and_null_parts_are_empty_and_unknown_keys_passed_over(copied) -> None:
    assert LLMContext.from_wire({"future": 1}, copy=copied) == LLMContext()
    nulls = {"messages": None, "tools": None, "tool_choice": None, "settings": None}
    assert LLMContext.from_wire(nulls, copy=copied) == LLMContext()


def test_reading_without_a_copy_gives_an_equal_context_over_the_same_messages() -> None:
    wire = FULL.to_wire()
    context = LLMContext.from_wire(wire, copy=False)
    assert context == FULL
    assert context.messages[0] is wire["messages"][0]
    assert context.messages[2].message is wire["messages"][2]["message"]
    wire["messages"].clear()
    assert context == FULL


def test_reading_with_a_copy_shares_nothing() -> None:
    wire = FULL.to_wire()
    context = LLMContext.from_wire(wire)
    wire["messages"][0]["content"] = "changed"
    assert context == FULL


def test_a_message_with_more_than_a_provider_and_a_message_is_a_standard_one() -> None:
    odd = [
        {"llm": "x", "message": {}, "role": "user"},
        {"llm": None, "message": {}},
        {"llm": "x", "role": "user"},
    ]
    assert LLMContext(odd).messages == tuple(odd)


# Logging

PNG = "data:image/png;base64," + "A" * 400


@pytest.mark.parametrize(
    ("part", "logged"),
    [
        pytest.param(
            {"type": "image_url", "image_url": {"url": PNG, "detail": "low"}},
            {"type": "image_url", "image_url": {"url": "[image/png, 300 bytes, left out]", "detail": "low"}},
            id="OpenAI image",
        ),
        pytest.param(
            {"type": "input_image", "image_url": PNG},
            {"type": "input_image", "image_url": "[image/png, 300 bytes, left out]"},
            id="OpenAI responses image",
        ),
        pytest.param(
            {"type": "input_audio", "input_audio": {"data": "AAA=", "format": "wav"}},
            {"type": "input_audio", "input_audio": {"data": "[wav, 2 bytes, left out]", "format": "wav"}},
            id="OpenAI sound",
        ),
        pytest.param(
            {"type": "file", "file": {"file_data": "AAAA", "filename": "a.pdf"}},
            {"type": "file", "file": {"file_data": "[a.pdf, 3 bytes, left out]", "filename": "a.pdf"}},
            id="OpenAI file in base64",
        ),
        pytest.param(
            {"type": "file", "file": {"file_data": "data:application/pdf;base64,AAAA", "filename": "a.pdf"}},
            {
                "type": "file",
                "file": {"file_data": "[application/pdf, 3 bytes, left out]", "filename": "a.pdf"},
            },
            id="OpenAI file as a data URL",
        ),
        pytest.param(
            {"type": "image_url", "image_url": {"url": "DATA:image/svg+xml;utf8,<svg/>"}},
            {"type": "image_url", "image_url": {"url": "[image/svg+xml, 6 bytes, left out]"}},
            id="a data URL that is not base64",
        ),
        pytest.param(
            {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": "AAAA"}},
            {
                "type": "image",
                "source": {
                    "type": "base64",
                    "media_type": "image/jpeg",
                    "data": "[image/jpeg, 3 bytes, left out]",
                },
            },
            id="Anthropic image",
        ),
        pytest.param(
            {"inline_data": {"mime_type": "audio/ogg", "data": "AAAA"}},
            {"inline_data": {"mime_type": "audio/ogg", "data": "[audio/ogg, 3 bytes, left out]"}},
            id="Gemini",
        ),
        pytest.param(
            {"inlineData": {"mimeType": "audio/ogg", "data": "AAAA"}},
            {"inlineData": {"mimeType": "audio/ogg", "data": "[audio/ogg, 3 bytes, left out]"}},
            id="Gemini, camel case",
        ),
        pytest.param(
            {"image": {"format": "png", "source": {"bytes": "AAAA"}}},
            {"image": {"format": "png", "source": {"bytes": "[source, 3 bytes, left out]"}}},
            id="Bedrock",
        ),
    ],
)
def test_media_is_left_out_of_the_log_wherever_it_stands(part, logged) -> None:
    nested, nested_logged = (
        [{"type": "tool_result", "content": [part]}],
        [{"type": "tool_result", "content": [logged]}],
    )
    context = LLMContext(
        [
            {"role": "user", "content": [part]},
            LLMSpecificMessage("x", {"role": "user", "content": nested}),
        ]
    )
    before = context.to_wire()
    assert context.messages_for_logging() == [
        {"role": "user", "content": [logged]},
        {"llm": "x", "message": {"role": "user", "content": nested_logged}},
    ]
    assert context.to_wire() == before


@pytest.mark.parametrize(
    "message",
    [
        pytest.param({"role": "user", "content": PNG}, id="words that are a data URL"),
        pytest.param({"role": "user", "content": [{"type": "text", "text": PNG}]}, id="a part of text"),
        pytest.param({"role": "tool", "tool_call_id": "1", "content": '{"data": "AAAA"}'}, id="a result"),
        pytest.param(call("c1"), id="a call"),
        pytest.param(
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://a.org/b.png"}}]},
            id="a remote image",
        ),
        pytest.param(
            {"llm": "anthropic", "message": {"type": "thought", "text": "Hm", "signature": "A" * 400}},
            id="a signed thought",
        ),
        pytest.param(
            {"llm": "anthropic", "message": {"type": "redacted_thinking", "data": "A" * 400}},
            id="an encrypted thought",
        ),
        pytest.param(
            {"role": "user", "content": [{"type": "document", "source": {"type": "text", "data": "Hello"}}]},
            id="a document of plain text",
        ),
        pytest.param({"role": "user", "content": "Hi", "name": "data: a, b"}, id="a name like a data URL"),
    ],
)
def test_text_and_remote_media_stay_in_the_log(message) -> None:
    assert LLMContext([message]).messages_for_logging() == [message]


def test_a_data_url_without_an_end_is_read_in_a_moment() -> None:
    message = {"role": "user", "url": "data:" + "a" * 200_000 + "/" + ";a" * 200_000}
    assert LLMContext([message]).messages_for_logging() == [message]


def test_the_form_for_logging_has_every_part_and_so_has_the_repr() -> None:
    context = FULL.add_message({"role": "user", "content": [{"type": "input_image", "image_url": PNG}]})
    logged = context.for_logging()
    assert logged["messages"] == context.messages_for_logging()
    assert {part: logged[part] for part in ("tools", "settings", "tool_choice")} == {
        part: FULL.to_wire()[part] for part in ("tools", "settings", "tool_choice")
    }
    assert "AAAA" not in repr(context)
    assert repr(context).startswith("LLMContext(messages=[{'role': 'system'")


# The deprecated name


def test_the_old_name_warns_and_makes_a_system_message_of_the_prompt() -> None:
    with pytest.warns(DeprecationWarning, match="use LLMContext") as caught:
        context = OpenAILLMContext([HI], [CLOCK], {"seed": 1}, "auto", system_prompt="Be brief.")
    assert caught[0].filename == __file__
    assert context == LLMContext([SYSTEM, HI], [CLOCK], {"seed": 1}, "auto")
    assert type(context.add_message(HI)) is LLMContext


def test_the_old_name_without_a_prompt_adds_no_message() -> None:
    with pytest.warns(DeprecationWarning, match="use LLMContext"):
        assert OpenAILLMContext() == LLMContext()


# Trimming


def test_a_history_within_the_limit_is_kept_whole() -> None:
    history = [SYSTEM, HI, call("c1"), result("c1")]
    assert trimmed(history, 4) == tuple(history)


def test_the_limit_is_a_hundred_unless_said_otherwise() -> None:
    history = [SYSTEM, *(user(str(n)) for n in range(150))]
    assert trimmed(history) == (SYSTEM, *history[-99:])


def test_system_messages_are_kept_where_they_stand_and_repeated_nowhere() -> None:
    late = {"role": "system", "content": "Now in French."}
    history = [SYSTEM, user("a"), user("b"), late, user("c")]
    assert trimmed(history, 3) == (SYSTEM, late, user("c"))


def test_what_is_older_than_a_late_system_message_or_a_group_is_kept_while_there_is_room() -> None:
    assert trimmed([HI, user("a"), SYSTEM, user("b")], 3) == (user("a"), SYSTEM, user("b"))
    group = (call("c1"), result("c1"))
    assert trimmed([HI, user("a"), *group, user("b")], 4) == (user("a"), *group, user("b"))


def test_only_role_system_is_kept_for_its_role() -> None:
    history: list[LLMContextMessage] = [
        {"role": "developer", "content": "x"},
        LLMSpecificMessage("x", SYSTEM),
        HI,
    ]
    assert trimmed(history, 1) == (HI,)


@pytest.mark.parametrize("limit", [0, 1, 2])
def test_more_system_messages_than_the_limit_leave_room_for_nothing_else(limit) -> None:
    assert trimmed([SYSTEM, HI, SYSTEM, HI], limit) == (SYSTEM, SYSTEM)


def test_a_call_goes_with_its_result_when_there_is_room_for_one_of_them_only() -> None:
    history = [user("a"), call("c1"), result("c1"), user("b")]
    assert trimmed(history, 2) == (user("b"),)
    assert trimmed(history, 3) == (call("c1"), result("c1"), user("b"))


def test_several_calls_of_one_message_stay_together() -> None:
    group = [call("c1", "c2"), result("c1"), result("c2")]
    assert trimmed([HI, *group], 3) == tuple(group)
    assert trimmed([HI, *group, HI], 3) == (HI,)


def test_a_result_brings_its_call_from_far_back() -> None:
    history = [call("c1"), user("a"), user("b"), user("c"), result("c1")]
    assert trimmed(history, 3) == (call("c1"), user("c"), result("c1"))


def test_a_group_larger_than_the_limit_is_left_out_with_all_that_is_older() -> None:
    history = [SYSTEM, user("a"), call("c1", "c2"), result("c1"), result("c2")]
    assert trimmed(history, 3) == (SYSTEM,)


def test_a_result_answers_the_nearest_earlier_call_with_its_id() -> None:
    history = [call("c1"), result("c1"), call("c1"), result("c1")]
    assert trimmed(history, 2) == tuple(history[2:])
    assert trimmed(history, 3) == tuple(history[2:])


def test_a_result_without_a_call_stands_alone() -> None:
    assert trimmed([HI, result("c9")], 1) == (result("c9"),)


def test_messages_of_odd_shape_are_trimmed_like_any_other() -> None:
    odd: list[dict[str, Any]] = [
        {},
        {"role": []},
        {"role": "assistant", "tool_calls": 5},
        {"role": "assistant", "tool_calls": [None]},
    ]
    unanswerable: list[dict[str, Any]] = [
        {"role": "assistant", "tool_calls": [{"id": []}]},
        {"role": "tool", "tool_call_id": []},
    ]
    assert trimmed([HI, *odd, *unanswerable], 6) == (*odd, *unanswerable)


def test_the_wire_form_and_provider_messages_are_trimmed_alike() -> None:
    context = LLMContext([HI, THOUGHT, HI])
    assert trimmed(context.messages, 2) == (THOUGHT, HI)
    assert trimmed(context.to_wire()["messages"], 2) == (THOUGHT.to_wire(), HI)


def test_a_negative_limit_is_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        trimmed([HI], -1)
