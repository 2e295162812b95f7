"""Tools and tool choices in all accepted forms."""

import pytest

from frameledger.tools import FunctionSchema, ToolsSchema, tools_to_wire
from frameledger_services.providers import UnmappableError
from frameledger_services.providers.tool_forms import Function, OwnTool, ToolChoice, choice_of, tools_of

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WANTED = Function("weather", "Of a city.", SCHEMA)
ABOUT = {"name": "weather", "description": "Of a city."}


@pytest.mark.regression("worker 94")
@pytest.mark.parametrize(
    "definition",
    [
        FunctionSchema("weather", "Of a city.", SCHEMA["properties"], ["city"]).to_openai(),
        {"type": "function", **ABOUT, "parameters": SCHEMA},
        {**ABOUT, "input_schema": SCHEMA},
        {"type": "custom", **ABOUT, "input_schema": SCHEMA},
        {"function_declarations": [{**ABOUT, "parameters": SCHEMA}]},
        {**ABOUT, "properties": SCHEMA["properties"], "required": ["city"]},
        {**ABOUT, "inputSchema": SCHEMA},
        {"functionDeclarations": [{**ABOUT, "parametersJsonSchema": SCHEMA}]},
        {"function_declarations": [{**ABOUT, "parameters_json_schema": SCHEMA}]},
    ],
    ids=[
        "openai",
        "flat",
        "anthropic",
        "anthropic with a type",
        "gemini",
        "schema",
        "mcp",
        "gemini, JSON Schema",
        "gemini, JSON Schema, snake case",
    ],
)
def test_a_function_is_read_from_every_form(definition):
    assert tools_of("p", [definition]) == (WANTED,)


@pytest.mark.regression("worker 94")
def test_the_types_of_gemini_s_schemas_are_those_of_json_schema():
    declared = {
        "type": "OBJECT",
        "properties": {
            "type": {"type": "STRING", "enum": ["OBJECT"], "default": {"type": "OBJECT"}},
            "items": {"type": "ARRAY", "items": {"anyOf": [{"type": "INTEGER"}, {"type": "NULL"}]}},
        },
        "required": ["type"],
    }
    [tool] = tools_of("p", [{"function_declarations": [{**ABOUT, "parameters": declared}]}])
    assert tool.parameters == {
        "type": "object",
        "properties": {
            "type": {"type": "string", "enum": ["OBJECT"], "default": {"type": "OBJECT"}},
            "items": {"type": "array", "items": {"anyOf": [{"type": "integer"}, {"type": "null"}]}},
        },
        "required": ["type"],
    }


@pytest.mark.regression("worker 94")
def test_a_custom_tool_that_takes_free_text_is_no_function_without_parameters():
    with pytest.raises(UnmappableError, match="the tool 'code', whose form is unknown"):
        tools_of("p", [{"type": "custom", "name": "code", "format": {"type": "text"}}])


def test_a_strict_tool_stays_strict():
    strict = {"type": "function", "function": {**ABOUT, "parameters": SCHEMA, "strict": True}}
    assert tools_of("p", [strict])[0].strict is True


def test_a_function_without_parameters_takes_an_empty_object():
    [tool] = tools_of("p", [{"type": "function", "function": {"name": "now"}}])
    assert tool.parameters == {"type": "object", "properties": {}}


@pytest.mark.regression("worker 35")
@pytest.mark.parametrize(
    ("schema", "sent"),
    [
        ({"type": "object"}, {"type": "object", "properties": {}}),
        ({"type": "object", "properties": None}, {"type": "object", "properties": {}}),
        ({"properties": {"a": {}}}, {"type": "object", "properties": {"a": {}}}),
        (
            {"additionalProperties": False},
            {"type": "object", "properties": {}, "additionalProperties": False},
        ),
        ({"type": "string"}, {"type": "string"}),
        (SCHEMA, SCHEMA),
    ],
)
def test_parameters_say_that_they_are_an_object_and_of_what_properties(schema, sent):
    [tool] = tools_of("p", [{"name": "f", "parameters": schema}])
    assert tool.parameters == sent


@pytest.mark.regression("worker 36")
@pytest.mark.parametrize("required", [None, "city", 1, ["city", None]])
def test_required_properties_that_are_no_list_of_names_are_refused_or_none(required):
    definition = {**ABOUT, "properties": SCHEMA["properties"], "required": required}
    if required is None:
        [tool] = tools_of("p", [definition])
        assert tool.parameters["required"] == []
    else:
        with pytest.raises(UnmappableError, match="the tool 'weather', whose required"):
            tools_of("p", [definition])


@pytest.mark.regression("worker 39")
def test_a_name_is_offered_once_and_a_service_s_function_rather_than_a_client_s():
    of_a_client = {"type": "function", "function": {"name": "weather"}, "served_by": "client"}
    clock, own = {"name": "clock", "parameters": SCHEMA}, {"llm": "p", "tool": {"type": "x", "name": "clock"}}
    service = {"type": "function", **ABOUT, "parameters": SCHEMA}
    assert tools_of("p", [of_a_client, clock, service, own]) == (Function("clock", "", SCHEMA), WANTED)
    assert tools_of("p", [service, of_a_client, service]) == (WANTED,)
    nameless = {"llm": "p", "tool": {"a": 1, "b": 2}}
    assert len(tools_of("p", [nameless, nameless])) == 2


def test_custom_tools_are_the_provider_s_own_and_nobody_else_s():
    schema = ToolsSchema(
        [FunctionSchema("weather")], {"p": [{"type": "web_search"}], "q": [{"name": "other"}]}
    )
    tools = tools_of("p", tools_to_wire(schema))
    assert [tool.name for tool in tools] == ["weather", "web_search"]
    assert tools[1] == OwnTool({"type": "web_search"})


@pytest.mark.parametrize(
    "definition",
    [
        {},
        {"type": "web_search"},
        {"type": "function"},
        {"name": "f", "parameters": "none"},
        {"llm": "p", "tool": 1},
        {"type": "function", "function": {"name": ""}},
        {"name": "", "input_schema": {"type": "object"}},
        {"name": "", "properties": {}},
    ],
)
def test_what_is_no_tool_is_refused(definition):
    with pytest.raises(UnmappableError, match="tool"):
        tools_of("p", [definition])


@pytest.mark.parametrize(
    ("choice", "wanted"),
    [
        (None, None),
        ("auto", ToolChoice("auto")),
        ("required", ToolChoice("required")),
        ("none", ToolChoice("none")),
        ({"type": "any"}, ToolChoice("required")),
        ({"type": "auto"}, ToolChoice("auto")),
        ({"type": "function", "function": {"name": "weather"}}, ToolChoice("function", "weather")),
        ({"type": "tool", "name": "weather"}, ToolChoice("function", "weather")),
    ],
)
def test_a_choice_is_read_from_every_form(choice, wanted):
    assert choice_of("p", choice, [WANTED]) == wanted


def test_without_tools_there_is_nothing_to_choose():
    assert choice_of("p", "auto", []) is None
    assert choice_of("p", "none", []) is None


@pytest.mark.parametrize(
    ("choice", "tools"),
    [
        ("required", []),
        ("sometimes", [WANTED]),
        ({"type": "function", "function": {"name": "other"}}, [WANTED]),
        ({"type": "allowed_tools", "tools": []}, [WANTED]),
        (7, [WANTED]),
    ],
)
def test_a_choice_that_cannot_be_kept_is_refused(choice, tools):
    with pytest.raises(UnmappableError, match="tool choice"):
        choice_of("p", choice, tools)
