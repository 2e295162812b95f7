"""Tools in wire form, their names, and the differences of two lists of them."""

from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from frameledger import tools
from frameledger.tools import FunctionSchema, ToolChanges, ToolsSchema

WEATHER = FunctionSchema(
    "get_weather", "Tells the weather", {"city": {"type": "string", "enum": ["Lyon"]}}, ["city"]
)
WEATHER_ON_THE_WIRE = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Tells the weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "enum": ["Lyon"]}},
            "required": ["city"],
        },
    },
}


def named(*names: str) -> list[dict[str, Any]]:
    return [FunctionSchema(name).to_openai() for name in names]


def test_a_schema_is_written_in_openai_form() -> None:
    assert WEATHER.to_openai() == WEATHER_ON_THE_WIRE


def test_a_schema_with_a_name_alone_takes_no_parameters() -> None:
    parameters = FunctionSchema("clock").to_openai()["function"]["parameters"]
    assert parameters == {"type": "object", "properties": {}, "required": []}


def test_a_schema_does_not_change_with_what_it_was_made_from_or_what_it_made() -> None:
    properties = {"city": {"type": "string"}}
    required = ["city"]
    schema = FunctionSchema("get_weather", properties=properties, required=required)
    before = schema.to_openai()
    properties["city"]["type"] = "number"
    required.append("unit")
    schema.to_openai()["function"]["parameters"]["properties"]["city"]["type"] = "number"
    assert schema.to_openai() == before


def test_schemas_are_frozen_and_compare_by_value() -> None:
    assert (
        FunctionSchema(
            "get_weather", "Tells the weather", {"city": {"type": "string", "enum": ("Lyon",)}}, ("city",)
        )
        == WEATHER
    )
    with pytest.raises(FrozenInstanceError):
        WEATHER.name = "other"  # type: ignore[misc]  # what the test is about
    with pytest.raises(FrozenInstanceError):
        ToolsSchema().standard_tools = [WEATHER]  # type: ignore[misc]  # what the test is about


def test_custom_tools_follow_the_standard_ones_and_name_their_provider() -> None:
    search: dict[str, Any] = {"google_search": {}}
    both = ToolsSchema(standard_tools=[WEATHER, *named("clock")], custom_tools={"google": [search]})
    assert both.to_wire() == [WEATHER_ON_THE_WIRE, *named("clock"), {"llm": "google", "tool": search}]


def test_null_and_empty_both_mean_no_tools() -> None:
    assert tools.tools_to_wire(None) == tools.tools_to_wire([]) == tools.tools_to_wire(ToolsSchema()) == ()


def test_tools_are_written_in_the_order_given_whatever_their_form() -> None:
    clock = named("clock")[0]
    assert tools.tools_to_wire([clock, WEATHER]) == (clock, WEATHER_ON_THE_WIRE)
    assert tools.tools_to_wire(ToolsSchema([WEATHER])) == (WEATHER_ON_THE_WIRE,)


def test_tools_on_the_wire_share_nothing_with_those_given() -> None:
    given = named("clock")
    written = tools.tools_to_wire(given)
    given[0]["function"]["name"] = "changed"
    assert written == tuple(named("clock"))


def test_a_tools_schema_does_not_change_with_what_it_was_made_from() -> None:
    standard, custom = named("clock"), {"google": [{"google_search": {"a": 1}}]}
    schema = ToolsSchema(standard, custom)
    written = schema.to_wire()
    standard[0]["function"]["name"] = "changed"
    custom["google"][0]["google_search"]["a"] = 2
    custom["google"].append({"other": {}})
    assert schema.to_wire() == written


@pytest.mark.parametrize(
    ("tool", "told"),
    [(named, "not the function 'named': `schema_of`"), ("clock", "not a str$"), (None, "not a NoneType$")],
    ids=["a function", "text", "null"],
)
def test_what_is_neither_schema_nor_mapping_has_no_wire_form(tool, told) -> None:
    with pytest.raises(TypeError, match=f"^a tool is a FunctionSchema or a mapping, {told}"):
        tools.tools_to_wire([tool])
    with pytest.raises(TypeError, match=f"^a tool is a FunctionSchema or a mapping, {told}"):
        tools.ToolsSchema([tool])


@pytest.mark.parametrize(
    ("tool", "name"),
    [
        pytest.param(WEATHER, "get_weather", id="a schema"),
        pytest.param(WEATHER_ON_THE_WIRE, "get_weather", id="OpenAI chat"),
        pytest.param({"type": "custom", "custom": {"name": "sql"}}, "sql", id="OpenAI chat, custom"),
        pytest.param({"type": "function", "name": "clock", "parameters": {}}, "clock", id="OpenAI responses"),
        pytest.param({"type": "web_search"}, "web_search", id="OpenAI built-in"),
        pytest.param({"type": "file_search", "file_search": {"max": 3}}, "file_search", id="with options"),
        pytest.param({"name": "clock", "input_schema": {"type": "object"}}, "clock", id="Anthropic"),
        pytest.param({"type": "web_search_2", "name": "web_search"}, "web_search", id="Anthropic built-in"),
        pytest.param({"function_declarations": [{"name": "a"}, {"name": "b"}]}, "a", id="Gemini"),
        pytest.param({"functionDeclarations": [{"name": "a"}]}, "a", id="Gemini, camel case"),
        pytest.param({"google_search": {}}, "google_search", id="Gemini built-in"),
        pytest.param({"toolSpec": {"name": "clock"}}, "clock", id="Bedrock"),
        pytest.param({"llm": "google", "tool": {"google_search": {}}}, "google_search", id="custom"),
    ],
)
def test_a_tool_has_its_name_in_any_providers_form(tool, name) -> None:
    assert tools.tool_name(tool) == name


@pytest.mark.parametrize(
    "tool",
    [
        None,
        7,
        "clock",
        [],
        {},
        {"type": "function"},
        {"function": {}},
        {"toolSpec": {}},
        {"function": {"name": 5}},
        {"type": "function", "function": {"name": ""}},
        {"type": "function", "function": None},
        {"type": 3, "name": None},
        {"type": ["function"]},
        {"function_declarations": []},
        {"function_declarations": [None, {"name": 1}]},
        {"function_declarations": {"name": "a"}},
        {"llm": "google", "tool": None},
        {"llm": "google", "tool": {"llm": "google", "tool": {}}},
        {1: {}},
        {"parameters": {}, "strict": True},
    ],
    ids=repr,
)
def test_an_odd_shape_has_no_name(tool) -> None:
    assert tools.tool_name(tool) is None
    assert tools.tool_names([tool]) == ()
    assert tools.client_functions([tool]) == ()


def test_names_come_in_order_each_once_and_all_of_a_declaration() -> None:
    listed = [
        WEATHER,
        {"function_declarations": [{"name": "b"}, None, {"name": "a"}]},
        *named("get_weather", "c"),
        None,
        {"type": "web_search"},
    ]
    assert tools.tool_names(listed) == ("get_weather", "b", "a", "c", "web_search")


@pytest.mark.parametrize("none", [None, [], (), 5, "clock", ToolsSchema()], ids=repr)
def test_no_list_of_tools_has_no_names(none) -> None:
    assert tools.tool_names(none) == ()


def test_a_tools_schema_has_the_names_of_its_standard_and_custom_tools() -> None:
    schema = ToolsSchema([WEATHER], {"google": [{"google_search": {}}]})
    assert tools.tool_names(schema) == ("get_weather", "google_search")


def test_changes_are_told_by_name_in_the_order_of_their_list() -> None:
    changes = tools.tool_changes(named("a", "b", "c"), named("d", "b", "e"))
    assert changes == ToolChanges(added=("d", "e"), removed=("a", "c"))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(named("a", "b"), named("b", "a"), id="another order"),
        pytest.param([WEATHER], named("get_weather"), id="another definition"),
        pytest.param(None, [], id="null and empty"),
    ],
)
def test_lists_with_the_same_names_do_not_differ(before, after) -> None:
    assert tools.tool_changes(before, after) == ToolChanges((), ())
    assert tools.tool_change_message(before, after) is None


def test_one_developer_message_names_every_tool_that_came_or_went() -> None:
    message = tools.tool_change_message(named("clock", "lamp", "door"), named("door", "map", "radio"))
    assert message == {
        "role": "developer",
        "content": "Your tools have changed. You can now call `map`, `radio`. "
        "You can no longer call `clock`, `lamp`.",
    }


@pytest.mark.parametrize(
    ("before", "after", "content"),
    [
        (None, named("clock"), "Your tools have changed. You can now call `clock`."),
        (named("clock"), None, "Your tools have changed. You can no longer call `clock`."),
    ],
    ids=["only added", "only removed"],
)
def test_a_list_of_changes_that_is_empty_is_not_mentioned(before, after, content) -> None:
    assert tools.tool_change_message(before, after) == {"role": "developer", "content": content}


def test_the_answer_of_a_missing_function_names_it() -> None:
    text = tools.MISSING_FUNCTION_CALL_MESSAGE_TEMPLATE.format(function_name="map")
    assert text == "The function `map` is not currently available."
