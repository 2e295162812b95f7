"""Schemas from function signatures, and conversion of arguments."""

import asyncio
import dataclasses
import enum
import inspect
import json
import math
import threading
from collections.abc import Callable, Sequence
from datetime import date
from decimal import Decimal
from functools import partial, update_wrapper
from typing import Annotated, Any, Literal, Optional
from uuid import UUID

import pytest
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, Strict
from typing_extensions import Doc

from frameledger.tools import FunctionSchema
from frameledger_services import cancel_tools
from frameledger_services.functions import FunctionCallParams, FunctionSchemaError, plan, schema_of
from frameledger_services.functions.arguments import ArgumentsChecker, ArgumentsError, parsed
from frameledger_services.functions.cancel_handler import NothingCancelled, choose_call
from frameledger_services.functions.options import OptionOverrides
from frameledger_services.functions.plan import plan_call
from frameledger_services.functions.registry_item import DirectFunction, checker_of, direct_item, item_of
from frameledger_services.functions.schemas import signature_of
from frameledger_services.store.tool_calls import CancellableCall


class Unit(enum.Enum):
    CELSIUS = "celsius"
    FAHRENHEIT = "fahrenheit"


class Place(BaseModel):
    city: str
    country: str | None = None


class Node(BaseModel):
    children: list["Node"]


A_NUMBER = {"type": "object", "properties": {"a": {"type": "number"}}, "required": ["a"]}


def google(city: str, unit: Unit = Unit.CELSIUS):
    """The weather.

    Now, not later.

    Args:
        city: Where it is.
        unit: In which unit.
    """


def numpy(city: str, unit: Unit = Unit.CELSIUS):
    """The weather.

    Now, not later.

    Parameters
    ----------
    city : str
        Where it is.
    unit
        In which unit.
    """


def rest(city: str, unit: Unit = Unit.CELSIUS):
    """The weather.

    Now, not later.

    :param city: Where it is.
    :param unit: In which unit.
    """


@pytest.mark.parametrize("function", [google, numpy, rest])
def test_three_styles_of_docstrings_say_the_same(function):
    assert schema_of(function) == FunctionSchema(
        function.__name__,
        "The weather.\n\nNow, not later.",
        {
            "city": {"type": "string", "description": "Where it is."},
            "unit": {
                "enum": ["celsius", "fahrenheit"],
                "type": "string",
                "description": "In which unit.",
                "default": "celsius",
            },
        },
        ("city",),
    )


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (dict[str, float], {"type": "object", "additionalProperties": {"type": "number"}}),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
        (Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}),  # noqa: UP045  # people write it
        (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        (date, {"type": "string", "format": "date"}),
        (Annotated[int, Field(ge=1)], {"type": "integer", "minimum": 1}),
        (
            Place,
            {
                "type": "object",
                "properties": {
                    "city": {"type": "string"},
                    "country": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
                },
                "required": ["city"],
            },
        ),
        (Any, {}),
    ],
)  # fmt: skip
def test_what_an_annotation_becomes(annotation, schema):
    def function(value): ...

    function.__annotations__ = {"value": annotation}
    assert schema_of(function).properties == {"value": schema}


def test_an_annotation_outranks_the_docstring():
    def function(a: Annotated[int, Field(description="From here.")]):
        """Does.

        Args:
            a: Not from here.
        """

    assert schema_of(function).properties["a"]["description"] == "From here."


def test_the_parameters_of_the_call_are_in_no_schema():
    def function(a: int, anything: FunctionCallParams): ...

    found = signature_of(function)
    assert (list(found.schema.properties), found.params_name) == (["a"], "anything")


@pytest.mark.regression("repair 8")
def test_a_parameter_called_params_says_its_type():
    async def weather(params, city: str): ...
    def for_the_model(params: dict[str, str]): ...

    with pytest.raises(FunctionSchemaError, match="weather: 'params' has no type"):
        schema_of(weather)
    assert list(schema_of(for_the_model).properties) == ["params"]


@pytest.mark.regression("repair 8")
def test_the_parameters_of_the_call_may_be_one_of_several_types_and_are_passed_once():
    def function(a: int, params: FunctionCallParams | None = None): ...
    def spelt(a: int, params: Optional["FunctionCallParams"] = None): ...
    def marked(a: int, params: Annotated[FunctionCallParams, "of the call"]): ...

    for one in (function, spelt, marked):
        found = signature_of(one)
        assert (list(found.schema.properties), found.params_name) == (["a"], "params")

    def twice(params: FunctionCallParams, more: FunctionCallParams): ...

    with pytest.raises(FunctionSchemaError, match="'params' and 'more' both have the type"):
        schema_of(twice)


def test_arguments_become_what_the_signature_says_and_defaults_stay_the_functions_own():
    def function(place: Place, unit: Unit = Unit.CELSIUS, _day: date = date.min, schema: int = 1): ...

    signature = signature_of(function)
    assert signature.converted({"place": {"city": "Oslo"}, "unit": "fahrenheit", "_day": "2026-01-02"}) == {
        "place": Place(city="Oslo"),
        "unit": Unit.FAHRENHEIT,
        "_day": date(2026, 1, 2),
    }
    with pytest.raises(ArgumentsError, match=r"place\.city: Field required"):
        signature.converted({"place": {}})
    with pytest.raises(ArgumentsError, match="other: Extra inputs"):
        signature.converted({"place": {"city": "Oslo"}, "other": 1})


def test_what_no_model_can_give_is_refused():
    def several(*cities: str): ...
    def anything(**more: str): ...
    def by_place(city: str, /): ...
    def endless(node: Node): ...
    def unknown(thing: "Nothing"): ...  # type: ignore[name-defined]  # noqa: F821
    def strange(thing: object = object): ...

    def file(handle: ArgumentsChecker): ...

    for function in (several, anything, by_place):
        with pytest.raises(FunctionSchemaError, match="by name"):
            schema_of(function)
    with pytest.raises(FunctionSchemaError, match="contains itself"):
        schema_of(endless)
    with pytest.raises(FunctionSchemaError, match="'Nothing'"):
        schema_of(unknown)
    with pytest.raises(FunctionSchemaError, match="file"):
        schema_of(file)
    # A default that is no JSON is the function's own affair.
    assert schema_of(strange).properties == {"thing": {}}


@pytest.mark.parametrize("arguments", ['{"a": 1}', {"a": 1}])
def test_arguments_come_as_an_object_or_as_its_text(arguments):
    assert parsed(arguments) == {"a": 1}


@pytest.mark.parametrize("nothing", [None, "", {}])
def test_no_arguments_are_an_empty_object(nothing):
    assert parsed(nothing) == {}


@pytest.mark.parametrize("bad", ["{", "[]", "5", '"a"', [1], 5, True, "[" * 100_000])
def test_arguments_that_are_no_object_are_refused(bad):
    with pytest.raises(ArgumentsError):
        parsed(bad)


def test_a_checker_names_the_place_and_stops_complaining():
    checker = ArgumentsChecker(
        FunctionSchema("f", properties={"n": {"type": "array", "items": {"type": "integer"}}})
    )
    checker.check({"n": [1, 2]})
    with pytest.raises(ArgumentsError) as error:
        checker.check({"n": ["x"] * 100})
    assert str(error.value).startswith("n.0: 'x' is not of type 'integer'; n.1:")
    assert str(error.value).count(";") == 4


TOOLS = [schema_of(google).to_openai(), FunctionSchema("slow").to_openai()]


def test_cancel_tools_are_offered_for_those_that_opted_in():
    offered = cancel_tools.offered(TOOLS, ["slow", "not advertised"])
    assert [one.name for one in offered] == ["cancel_slow"]
    assert list(offered[0].properties) == ["tool_call_id"]
    assert offered[0].required == ()
    own = [*TOOLS, FunctionSchema("cancel_slow").to_openai()]
    assert cancel_tools.offered(own, ["slow"]) == ()


def test_guidance_names_the_functions_and_their_cancel_tools():
    text = cancel_tools.guidance(["slow", "search"])
    assert "`slow`, `search`" in text
    assert "`cancel_slow`, `cancel_search`" in text
    assert cancel_tools.guidance([]) == ""


def test_a_cancel_tool_refuses_with_reasons():
    one, two = CancellableCall("a", 1, {"q": "cats"}), CancellableCall("b", 2, '{"q": "dogs"}')
    assert choose_call("f", [one], None) is one
    assert choose_call("f", [one, two], "b") is two
    nothing, unclear, wrong = (
        choose_call("f", [], None),
        choose_call("f", [one, two], None),
        choose_call("f", [one], "z"),
    )
    assert isinstance(nothing, NothingCancelled)
    assert "no call of `f` is running" in nothing.why
    assert isinstance(unclear, NothingCancelled)
    assert 'a with {"q": "cats"}; b with {"q": "dogs"}' in unclear.why
    assert isinstance(wrong, NothingCancelled)
    assert "'z' is no running call" in wrong.why
    many = choose_call("f", [CancellableCall(str(n), n, "x" * 1_000) for n in range(100)], None)
    assert isinstance(many, NothingCancelled)
    assert "and 80 more" in many.why
    assert len(many.why) < 10_000


@pytest.mark.regression("worker 116")
@pytest.mark.parametrize("written", ["", " "])
def test_a_cancel_tool_takes_an_empty_id_for_none(written):
    one, two = CancellableCall("a", 1, {}), CancellableCall("b", 2, {})
    assert choose_call("f", [one], written) is one
    unclear = choose_call("f", [one, two], written)
    assert isinstance(unclear, NothingCancelled)
    assert "say which one" in unclear.why


@pytest.mark.regression("worker 56")
def test_what_is_wrong_is_told_in_few_words_however_long_the_keys_of_arguments_are():
    def label(counts: dict[str, list[int]]): ...

    signature, arguments = signature_of(label), {"counts": {"k" * 100_000: list("abcdef")}}
    for check in (ArgumentsChecker(signature.schema).check, signature.converted):
        with pytest.raises(ArgumentsError) as refused:
            check(arguments)
        assert len(str(refused.value)) < 10_000


def client(schema):
    return ArgumentsChecker({"type": "object", "properties": {"a": schema}}, from_a_client=True)


@pytest.mark.regression("worker 61")
def test_patterns_of_a_client_are_matched_in_linear_time():
    # Python's own engine takes longer than anybody waits.
    client({"pattern": "^(a+)+$"}).check({"a": "a" * 10_000})
    with pytest.raises(ArgumentsError, match="does not match"):
        client({"pattern": "^(a+)+$"}).check({"a": "a" * 10_000 + "b"})


@pytest.mark.parametrize(
    "schema",
    [
        {"pattern": "^(?=x)y"},
        {"patternProperties": {"^(a+)+$": {"type": "integer"}}, "additionalProperties": False},
        {"patternProperties": {"^(a+)+$": {"type": "integer"}}, "unevaluatedProperties": False},
    ],
)
def test_patterns_of_a_client_that_cannot_be_matched_so_refuse_nothing(schema):
    client(schema).check({"a": {"a" * 100 + "b": "c"} if "pattern" not in schema else "y"})


class Order(BaseModel):
    model_config = ConfigDict(strict=True)
    unit: Unit
    day: date
    count: int = 1


@pytest.mark.regression("worker 99")
def test_strict_types_are_converted_from_what_the_schema_asks_for():
    def f(order: Order, ids: Annotated[tuple[UUID, ...], Strict()]): ...

    signature = signature_of(f)
    order = {"unit": "celsius", "day": "2026-01-02"}
    assert signature.converted({"order": order, "ids": [str(UUID(int=1))]}) == {
        "order": Order(unit=Unit.CELSIUS, day=date(2026, 1, 2)),
        "ids": (UUID(int=1),),
    }
    for wrong, told in (
        ({"count": "1"}, "count: Input should be a valid integer"),
        ({"unit": "kelvin"}, "unit: Input should be 'celsius' or 'fahrenheit'"),
        ({"unit": "\ud800"}, "unit: Input should be"),
    ):
        with pytest.raises(ArgumentsError, match=told):
            signature.converted({"order": order | wrong, "ids": []})


def test_a_text_for_which_a_text_is_allowed_stays_one_also_if_it_is_a_date():
    def f(when: date | str): ...

    assert signature_of(f).converted({"when": "2026-01-02"}) == {"when": "2026-01-02"}


@pytest.mark.regression("worker 96")
@pytest.mark.parametrize("of_a_key", [True, False])
def test_patterns_of_a_function_are_matched_in_linear_time(of_a_key):
    word = Annotated[str, Field(pattern=r"^(\w+\s?)*$")]

    def by_key(words: dict[word, int]): ...
    def by_value(words: list[word]): ...

    checker = checker_of(schema_of(by_key if of_a_key else by_value))
    text, other = "a" * 10_000, "a" * 10_000 + "!"
    checker.check({"words": {text: 1} if of_a_key else [text]})
    if of_a_key:
        # A key that matches no pattern has none of the schemas.
        checker.check({"words": {other: 1}})
    else:
        with pytest.raises(ArgumentsError, match="does not match"):
            checker.check({"words": [other]})


@pytest.mark.regression("worker 96")
def test_a_pattern_of_a_function_may_be_one_of_rust_or_of_python():
    def of_rust(text: Annotated[str, Field(pattern=r"^\p{L}+$")]): ...

    checker = checker_of(schema_of(of_rust))
    checker.check({"text": "é"})
    with pytest.raises(ArgumentsError, match="does not match"):
        checker.check({"text": "1"})
    of_python = ArgumentsChecker({"properties": {"text": {"pattern": r"^(?=a)\w+$"}}})
    of_python.check({"text": "ab"})
    with pytest.raises(ArgumentsError, match="does not match"):
        of_python.check({"text": "b"})
    with pytest.raises(ValueError, match="regex"):
        ArgumentsChecker({"properties": {"text": {"pattern": "("}}})


@pytest.mark.regression("worker 96")
def test_properties_that_match_no_pattern_of_a_function_are_additional():
    patterns = {"^(a+)+$": {"type": "integer"}, r"^\p{Lu}$": {}}
    closed = {"properties": {"id": {}}, "patternProperties": patterns, "additionalProperties": False}
    checker = ArgumentsChecker(closed)
    checker.check({"id": 1, "a" * 10_000: 1, "É": "x"})
    with pytest.raises(ArgumentsError, match="Additional properties"):
        checker.check({"a" * 10_000 + "b": 1})
    with pytest.raises(ArgumentsError, match="'x' is not of type 'integer'"):
        checker.check({"a": "x"})
    ArgumentsChecker(closed | {"additionalProperties": {"type": "string"}}).check({"b": "x"})


def test_what_a_client_says_otherwise_is_checked():
    with pytest.raises(ArgumentsError, match="unexpected"):
        client({"additionalProperties": False}).check({"a": {"b": 1}})
    with pytest.raises(ArgumentsError, match="is not of type 'string'"):
        client({"type": "string"}).check({"a": 1})


@pytest.mark.regression("worker 61")
def test_items_that_cannot_be_sorted_are_told_apart_without_comparing_each_pair():
    checker = ArgumentsChecker({"type": "object", "properties": {"a": {"uniqueItems": True}}})
    items = [{"n": number} for number in range(20_000)]
    checker.check({"a": [*items, True, 1, "1", None, [1]]})
    with pytest.raises(ArgumentsError, match="non-unique"):
        checker.check({"a": [*items, {"n": 7}]})


@pytest.mark.regression("worker 71")
@pytest.mark.parametrize("from_a_client", [True, False])
def test_what_a_client_says_about_the_arguments_as_a_whole_is_checked_as_far_as_it_can_be(from_a_client):
    def checker(schema):
        return ArgumentsChecker({"type": "object", "required": ["a"]} | schema, from_a_client=from_a_client)

    for schema in (
        {"patternProperties": {"^a$": {}}, "additionalProperties": False},
        {"properties": {"a": {}}, "unevaluatedProperties": False},
        {"properties": {"a": {"unevaluatedItems": False, "items": {}}}},
        {"not": {"patternProperties": {"^b$": {}}, "required": ["b"]}},
        {"$schema": "http://json-schema.org/draft-07/schema#", "patternProperties": {"^a$": {}}},
    ):
        checker(schema).check({"a": [1]})
        with pytest.raises(ArgumentsError, match="'a' is a required property"):
            checker(schema).check({})


@pytest.mark.regression("worker 61")
@pytest.mark.parametrize("kind", ["references", "unevaluated items"])
def test_a_schema_of_a_client_that_doubles_the_work_with_each_level_holds_nothing_up(kind):
    if kind == "references":
        levels = {str(level): {"allOf": [{"$ref": f"#/$defs/{level + 1}"}] * 2} for level in range(60)}
        schema = {"$defs": levels | {"60": {}}, "$ref": "#/$defs/0"}
        with pytest.raises(ArgumentsError, match="cannot be checked"):
            ArgumentsChecker(schema, from_a_client=True).check({})
    else:
        nested: Any = {}
        for _ in range(40):
            nested = {"allOf": [nested], "unevaluatedItems": False}
        client(nested).check({"a": [1]})


@pytest.mark.regression("fault 87")
def test_a_schema_of_a_client_that_takes_minutes_to_check_is_not_checked_and_holds_no_call_up():
    many = {"type": "object", "properties": {str(n): {} for n in range(20_000)}}
    with pytest.raises(ValueError, match="too large"):
        ArgumentsChecker(many, from_a_client=True)

    async def run():
        async def find_schema():
            return {"type": "function", "function": {"name": "f", "parameters": many}}

        return await plan_call(
            item_of(None, handler, OptionOverrides(), None), "f", {"0": 1}, 60.0, find_schema
        )

    async def handler(params: FunctionCallParams): ...

    planned = asyncio.run(run())
    assert (planned.refusal, planned.arguments) == (None, {"0": 1})


@pytest.mark.regression("fault 87")
def test_a_schema_of_a_client_is_read_beside_the_event_loop(monkeypatch):
    threads = []
    monkeypatch.setattr(plan, "checker_of", lambda *_, **__: threads.append(threading.current_thread()))

    async def run():
        async def find_schema():
            return {}

        await plan_call(item_of(None, handler, OptionOverrides(), None), "f", {}, 60.0, find_schema)

    async def handler(params: FunctionCallParams): ...

    asyncio.run(run())
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()


def test_a_reference_of_a_client_is_followed_for_each_item_of_a_long_list():
    checker = ArgumentsChecker(
        {
            "$defs": {"n": {"type": "integer"}},
            "properties": {"a": {"items": {"$ref": "#/$defs/n"}}},
        },
        from_a_client=True,
    )
    for _ in range(3):
        checker.check({"a": [1] * 4_000})
    with pytest.raises(ArgumentsError, match="is not of type 'integer'"):
        checker.check({"a": [*[1] * 4_000, "x"]})


@pytest.mark.regression("worker 61")
def test_a_long_list_in_a_schema_is_checked_without_comparing_each_pair():
    listed = [{"n": number} for number in range(20_000)]
    old = {"$schema": "http://json-schema.org/draft-04/schema#", "properties": {"a": {"enum": listed}}}
    ArgumentsChecker(old, from_a_client=True).check({"a": {"n": 7}})
    old["properties"]["a"]["enum"].append({"n": 7})
    with pytest.raises(ValueError, match="non-unique"):
        ArgumentsChecker(old, from_a_client=True)


@pytest.mark.regression("worker 61")
def test_another_dialect_within_a_schema_of_a_client_is_bounded_too():
    dialect = {"$schema": "http://json-schema.org/draft-07/schema#"}
    with pytest.raises(ArgumentsError, match="does not match"):
        client(dialect | {"pattern": "^(a+)+$"}).check({"a": "a" * 10_000 + "b"})
    tree = {"properties": {"a": {"pattern": "^(a+)+$"}, "b": {"$ref": "#"}}}
    with pytest.raises(ArgumentsError, match="does not match"):
        ArgumentsChecker(dialect | tree, from_a_client=True).check({"b": {"a": "a" * 10_000 + "b"}})


@pytest.mark.regression("worker 61")
def test_a_client_may_advertise_what_the_core_has_as_a_class():
    schema = FunctionSchema("label", "", {"a": {"pattern": "^(a+)+$"}}, ())
    with pytest.raises(ArgumentsError, match="does not match"):
        checker_of(schema, from_a_client=True).check({"a": "a" * 10_000 + "b"})


@pytest.mark.regression("worker 80")
@pytest.mark.parametrize(
    "form",
    [
        {"type": "function", "function": {"name": "label", "parameters": A_NUMBER}},
        {"type": "function", "name": "label", "parameters": A_NUMBER},
        {"name": "label", "input_schema": A_NUMBER},
        {"name": "label", "inputSchema": A_NUMBER},
        {"name": "label", "properties": A_NUMBER["properties"], "required": ["a"]},
    ],
    ids=["chat", "flat", "Anthropic", "MCP", "fields"],
)
def test_arguments_are_checked_in_whatever_form_a_tool_is_described(form):
    checker_of(form, from_a_client=True).check({"a": 1})
    for wrong in ({}, {"a": "1"}):
        with pytest.raises(ArgumentsError):
            checker_of(form, from_a_client=True).check(wrong)


@pytest.mark.regression("worker 62")
def test_names_that_differ_in_underscores_are_two_parameters():
    def move(to: int, _to: str, p_to: bool): ...

    signature = signature_of(move)
    assert list(signature.schema.properties) == ["to", "_to", "p_to"]
    given = {"to": 1, "_to": "x", "p_to": True}
    assert signature.converted(given) == given


@pytest.mark.regression("worker 62")
@pytest.mark.parametrize("annotation", ["Annotated[int,", "Place.Nowhere"])
def test_annotations_that_cannot_be_read_are_refused_with_the_name_of_the_function(annotation):
    def move(to): ...

    move.__annotations__["to"] = annotation
    with pytest.raises(FunctionSchemaError, match="move: an annotation cannot be read"):
        signature_of(move)


@pytest.mark.regression("worker 63")
@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
def test_what_python_alone_reads_as_a_number_is_no_json(number):
    # None of them is beyond a limit of a schema, as `NaN < 0` is not.
    with pytest.raises(ArgumentsError, match="not JSON"):
        parsed(f'{{"amounts": [1, {number}]}}')
    assert parsed('{"amounts": [1e308, -0.0, 12345678901234567890]}') == {
        "amounts": [1e308, -0.0, 12345678901234567890]
    }


@pytest.mark.regression("worker 74")
def test_a_default_that_only_python_reads_as_a_number_is_left_out_of_the_schema():
    class Range(BaseModel):
        most: float = math.inf

    every = Range()

    def search(
        most: float = math.inf, least: float = -math.inf, digits: int = 10**400, within: Range = every
    ): ...

    number = {"type": "number"}
    assert schema_of(search).properties == {
        "most": number,
        "least": number,
        "digits": {"type": "integer"},
        "within": {"type": "object", "properties": {"most": number}},
    }
    assert signature_of(search).converted({}) == {}


@pytest.mark.regression("worker 76")
def test_a_method_of_a_class_is_refused_and_that_of_an_object_is_a_function():
    class Shop:
        def price(self, article: str): ...

        def of(cls, article: str): ...  # noqa: N805

    for method in (Shop.price, Shop.of):
        with pytest.raises(FunctionSchemaError, match="is a method"):
            schema_of(method)
    assert list(schema_of(Shop().price).properties) == ["article"]


@pytest.mark.regression("worker 82")
def test_a_default_may_stand_in_a_field():
    which = Field(description="Which.")

    def search(
        text: str = Field(description="What."),
        most: int = Field(3, ge=1),
        tags: Annotated[list[str], Field(default_factory=list)] = which,
        page: Annotated[int, Field(default=1)] = 2,
        *,
        language: Annotated[str, Field(default="en")],
    ):
        return text, most, tags, page, language

    signature = signature_of(search)
    assert (signature.schema.required, signature.schema.properties["most"]) == (
        ("text",),
        {"default": 3, "minimum": 1, "type": "integer"},
    )
    assert {one.get("description") for one in signature.schema.properties.values()} == {
        "What.",
        "Which.",
        None,
    }
    assert search(**signature.converted({"text": "x"})) == ("x", 3, [], 2, "en")
    assert search(**signature.converted({"text": "x", "most": 1, "page": 3})) == ("x", 1, [], 3, "en")
    with pytest.raises(ArgumentsError, match="most"):
        signature.converted({"text": "x", "most": 0})


@pytest.mark.regression("worker 109")
def test_a_line_that_begins_with_a_colon_takes_no_text_and_no_parameter_away():
    def google(text: str):
        """Sends a message.

        :warning: costs money.

        Args:
            text: What.
        """

    def plain(at: str):
        """Books a table. The time is given as
        :00 or :30 of an hour.
        """

    def rest(city: str, day: str):
        """Books a table.

        :func:`refund` gives the money back.

        :param city: Where.
        :param day: When.
        :returns: Its number.
        """

    found = {function.__name__: schema_of(function) for function in (google, plain, rest)}
    assert {name: schema.description for name, schema in found.items()} == {
        "google": "Sends a message.\n\n:warning: costs money.",
        "plain": "Books a table. The time is given as\n:00 or :30 of an hour.",
        "rest": "Books a table.\n\n:func:`refund` gives the money back.",
    }
    assert found["google"].properties["text"]["description"] == "What."
    assert [one["description"] for one in found["rest"].properties.values()] == ["Where.", "When."]


@pytest.mark.regression("worker 110")
def test_a_pattern_with_a_lookaround_is_left_to_python_and_one_that_is_none_is_refused():
    def pay(code: Annotated[str, Field(pattern=r"^(?!x)[a-z]+$")]):
        """Pays."""

    signature = signature_of(pay)
    assert signature.converted({"code": "abc"}) == {"code": "abc"}
    with pytest.raises(ArgumentsError):
        signature.converted({"code": "xbc"})

    def broken(code: Annotated[str, Field(pattern="(")]):
        """Has no pattern."""

    with pytest.raises(FunctionSchemaError, match="broken"):
        schema_of(broken)


@pytest.mark.regression("worker 111")
def test_a_literal_of_members_of_an_enum_takes_the_values_that_it_offers():
    class Mode(enum.Enum):
        FAST = "fast"
        SLOW = "slow"
        PAIR = (1, 2)

    def go(mode: Literal[Mode.FAST, Mode.SLOW], then: Annotated[Literal[Mode.SLOW] | None, "x"] = None):
        """Goes."""

    signature = signature_of(go)
    assert signature.schema.properties["mode"]["enum"] == ["fast", "slow"]
    taken = signature.converted({"mode": "fast", "then": "slow"})
    assert taken == {"mode": Mode.FAST, "then": Mode.SLOW}
    assert signature.converted({"mode": "slow", "then": None}) == {"mode": Mode.SLOW, "then": None}
    with pytest.raises(ArgumentsError):
        signature.converted({"mode": "quick"})


@pytest.mark.regression("worker 112")
def test_a_literal_of_members_inside_of_another_type_takes_the_values_that_it_offers():
    class Mode(enum.Enum):
        FAST = "fast"
        SLOW = "slow"

    fast = Literal[Mode.FAST]

    def go(
        modes: list[Literal[Mode.FAST, Mode.SLOW]],
        by_leg: dict[str, fast] | None = None,
        pair: tuple[fast, int] | None = None,
        many: Sequence[Annotated[fast, "x"]] = (),
    ):
        """Goes."""

    signature = signature_of(go)
    assert signature.schema.properties["modes"]["items"]["enum"] == ["fast", "slow"]
    taken = signature.converted(
        {"modes": ["slow", "fast"], "by_leg": {"a": "fast"}, "pair": ["fast", 1], "many": ["fast"]}
    )
    assert taken == {
        "modes": [Mode.SLOW, Mode.FAST],
        "by_leg": {"a": Mode.FAST},
        "pair": (Mode.FAST, 1),
        "many": [Mode.FAST],
    }
    with pytest.raises(ArgumentsError):
        signature.converted({"modes": ["quick"]})


@pytest.mark.regression("journey 109")
def test_a_literal_of_members_in_a_field_of_a_type_takes_the_values_that_it_offers():
    class Mode(enum.Enum):
        FAST = "fast"
        SLOW = "slow"

    class Leg(BaseModel):
        modes: list[Literal[Mode.FAST, Mode.SLOW]]

    @dataclasses.dataclass
    class Train:
        mode: Literal[Mode.FAST]

    class Sprint(BaseModel):
        mode: Literal[Mode.FAST]

    class Walk(BaseModel):
        mode: Literal[Mode.SLOW]

    def go(
        leg: Leg,
        train: Train,
        way: Annotated[Sprint | Walk, Field(discriminator="mode")],
        code: Annotated[str, Field(pattern=r"^(?!x)")],
    ):
        """Goes."""

    signature = signature_of(go)
    offered = signature.schema.properties
    assert offered["leg"]["properties"]["modes"]["items"]["enum"] == ["fast", "slow"]
    given = {
        "leg": {"modes": ["fast", "slow"]},
        "train": {"mode": "fast"},
        "way": {"mode": "slow"},
        "code": "a",
    }
    assert signature.converted(given) == {
        "leg": Leg(modes=[Mode.FAST, Mode.SLOW]),
        "train": Train(Mode.FAST),
        "way": Walk(mode=Mode.SLOW),
        "code": "a",
    }
    for wrong in ({"train": {"mode": "slow"}}, {"code": "x"}):
        with pytest.raises(ArgumentsError, match=next(iter(wrong))):
            signature.converted(given | wrong)


@pytest.mark.regression("worker 113")
def test_a_default_and_examples_that_look_like_a_schema_are_told_as_they_are():
    point = {"type": "Feature", "properties": None}
    titled = {"properties": {"a": {"title": "A", "default": 1}}}

    class Place(BaseModel):
        model_config = ConfigDict(json_schema_extra={"examples": [{"properties": ["a"]}]})
        at: int

    def show(
        where: Annotated[dict[str, Any], Field(examples=[point, {"title": "x"}])],
        place: Place,
        near: dict[str, Any] = point,
        form: dict[str, Any] = titled,
    ):
        """Shows a place."""

    properties = schema_of(show).properties
    assert properties["where"]["examples"] == [point, {"title": "x"}]
    assert properties["place"]["examples"] == [{"properties": ["a"]}]
    assert properties["near"]["default"] == point
    assert properties["form"]["default"] == titled


@pytest.mark.regression("worker 79")
def test_no_text_of_a_docstring_is_lost_or_torn():
    def google(city: str):
        """Books a table
        in a city.

        Args:
            city: Where.

        Note:
            Never twice.

        Returns:
            Its number.

        Ask before.
        """

    def numpy(city: str, country: str):
        """Books a table.

        Parameters
        ----------
        city, country : str
            Where.

        Notes
        -----
        Never twice.
        """

    def parameters_only(city: str):
        """
        Args:
            city: Where.
        """

    found = {function.__name__: schema_of(function) for function in (google, numpy, parameters_only)}
    assert {name: schema.description for name, schema in found.items()} == {
        "google": "Books a table\nin a city.\n\nNote:\n    Never twice.\n\nAsk before.",
        "numpy": "Books a table.\n\nNever twice.",
        "parameters_only": "",
    }
    for schema in found.values():
        assert {parameter["description"] for parameter in schema.properties.values()} == {"Where."}


@pytest.mark.regression("worker 68")
@pytest.mark.parametrize("error", [SystemExit(1), GeneratorExit(), asyncio.CancelledError()], ids=repr)
def test_a_validator_that_exits_refuses_the_arguments_and_ends_no_service(error):
    def exits(value):
        raise error

    def move(to: Annotated[int, BeforeValidator(exits)]): ...

    with pytest.raises(ArgumentsError, match="cannot be converted"):
        signature_of(move).converted({"to": 1})


@pytest.mark.regression("worker 133")
def test_a_text_in_an_annotation_describes_the_parameter():
    def book(
        city: Annotated[str, "Where."],
        day: Annotated[date, Doc("When.")],
        seats: Annotated[int, "Told by the docstring.", Field(ge=1)] = 1,
        price: Annotated[int, "Told by the field.", Field(description="How much.")] = 0,
        at: Annotated[int, Strict()] = 0,
    ):
        """Books.

        Args:
            seats: How many.
        """

    properties = schema_of(book).properties
    assert {name: described.get("description") for name, described in properties.items()} == {
        "city": "Where.",
        "day": "When.",
        "seats": "How many.",
        "price": "How much.",
        "at": None,
    }


@pytest.mark.regression("worker 134")
@pytest.mark.parametrize("of_a_field", [True, False])
def test_null_is_taken_where_it_is_the_default(of_a_field):
    none: Any = Field(None) if of_a_field else None

    def find(
        most: int = none,
        since: Annotated[date, Field(description="From when.", gt=date(2026, 1, 1))] = none,
        unit: Optional[Unit] = none,  # noqa: UP045  # people write it
        mode: Literal["a", None] = none,
        anything: Any = none,
        untold=none,
        text: Annotated[int | None, "How much."] = none,
    ): ...

    item = direct_item(DirectFunction.of(find), OptionOverrides())
    properties = item.handler.signature.schema.properties
    assert properties["most"] == {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}
    assert properties["since"]["description"] == "From when."
    assert properties["text"]["anyOf"] == [{"type": "integer"}, {"type": "null"}]
    nothing = dict.fromkeys(properties)
    item.checker.check(nothing)
    assert item.handler.signature.converted(nothing) == nothing
    given = {"most": 1, "since": "2026-01-02"}
    item.checker.check(given)
    taken = item.handler.signature.converted(given)
    assert (taken["most"], taken["since"]) == (1, date(2026, 1, 2))
    for wrong in ({"most": "x"}, {"since": "2025-01-02"}):
        with pytest.raises(ArgumentsError, match=next(iter(wrong))):
            item.handler.signature.converted(wrong)


@pytest.mark.regression("worker 145")
@pytest.mark.parametrize("is_updated", [True, False])
def test_a_partial_is_offered_without_the_arguments_that_it_has(is_updated):
    def price(shop: object, article: str, till: object, day: date = date(2026, 1, 1)) -> str:
        """What it costs.

        Args:
            article: Its name.
        """
        return f"{shop} {article} {till} {day}"

    of_shop = partial(price, "shop", till=2)
    if is_updated:
        update_wrapper(of_shop, price)
    else:
        of_shop.__name__ = "price"  # type: ignore[attr-defined]  # a partial has a dict
    signature = signature_of(of_shop)
    assert (signature.schema.name, signature.schema.description) == ("price", "What it costs.")
    assert signature.schema.required == ("article",)
    assert list(signature.schema.properties) == ["article", "day"]
    assert signature.schema.properties["article"] == {"type": "string", "description": "Its name."}
    assert signature.schema.properties["day"]["format"] == "date"
    assert of_shop(**signature.converted({"article": "lamp"})) == "shop lamp 2 2026-01-01"


@pytest.mark.regression("worker 146")
def test_what_has_no_signature_is_refused_by_name():
    with pytest.raises(FunctionSchemaError, match="dict: its parameters cannot be read"):
        schema_of(dict)


@pytest.mark.regression("worker 144")
def test_null_is_taken_where_a_field_in_the_annotation_has_it_as_the_default():
    def find(
        most: Annotated[int, Field(default=None, ge=1), Field(description="How many.")],
        unit: Annotated[str, Field(default="cm")],
    ): ...

    item = direct_item(DirectFunction.of(find), OptionOverrides())
    properties = item.handler.signature.schema.properties
    assert properties["most"] == {
        "anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}],
        "default": None,
        "description": "How many.",
    }
    assert properties["unit"] == {"type": "string", "default": "cm"}
    item.checker.check({"most": None})
    assert item.handler.signature.converted({"most": None}) == {"most": None, "unit": "cm"}


@pytest.mark.regression("worker 135")
def test_a_schema_names_no_definitions_that_it_does_not_have():
    class Train(BaseModel):
        by: Literal["train"]

    class Bus(BaseModel):
        by: Literal["bus"]

    class Journey(BaseModel):
        leg: Annotated[Train | Bus, Field(discriminator="by")]
        discriminator: str = ""

    def go(journey: Journey): ...

    properties = schema_of(go).properties
    assert "$defs" not in json.dumps(properties)
    assert properties["journey"]["properties"]["discriminator"]["type"] == "string"
    ways = properties["journey"]["properties"]["leg"]["oneOf"]
    assert [way["properties"]["by"]["const"] for way in ways] == ["train", "bus"]
    assert signature_of(go).converted({"journey": {"leg": {"by": "bus"}}}) == {
        "journey": Journey(leg=Bus(by="bus"))
    }


@pytest.mark.regression("worker 136")
def test_an_enumeration_of_dates_decimals_or_tuples_takes_what_it_offers():
    class Quarter(enum.Enum):
        FIRST = date(2026, 1, 1)
        SECOND = date(2026, 4, 1)

    class Rate(enum.Enum):
        LOW = Decimal("0.1")

    class Pair(enum.Enum):
        BOTH = (1, 2)

    @dataclasses.dataclass
    class Plan:
        rate: Rate

    def report(quarter: Quarter, plan: Plan, pairs: list[Pair], other: Quarter | None = None):
        """Reports."""

    item = direct_item(DirectFunction.of(report), OptionOverrides())
    given = {
        "quarter": item.handler.signature.schema.properties["quarter"]["enum"][1],
        "plan": {"rate": "0.1"},
        "pairs": [[1, 2]],
        "other": "2026-01-01",
    }
    item.checker.check(given)
    assert item.handler.signature.converted(given) == {
        "quarter": Quarter.SECOND,
        "plan": Plan(Rate.LOW),
        "pairs": [Pair.BOTH],
        "other": Quarter.FIRST,
    }
    with pytest.raises(ArgumentsError, match="quarter"):
        item.handler.signature.converted(given | {"quarter": "2026-01-02"})


@pytest.mark.regression("worker 137")
def test_sections_behind_the_parameters_are_told_in_each_style_and_keep_their_indent():
    def numpy(city: str):
        """Books a table by

            - name
            - time

        Rules
        -----
        Never on Sundays.

        Parameters
        ----------
        city : str
            Where.

        Limits
        ------
        Eight people,
            never more.

        Returns
        -------
        str
            Its number.
        """

    def google(city: str):
        """Books a table by
            - name
            - time

        Args:
            city: Where.
        """

    assert schema_of(numpy).description == (
        "Books a table by\n\n    - name\n    - time\n\n"
        "Rules\n-----\nNever on Sundays.\n\nLimits\n------\nEight people,\n    never more."
    )
    assert schema_of(google).description == "Books a table by\n    - name\n    - time"
    for function in (numpy, google):
        assert schema_of(function).properties["city"]["description"] == "Where."


class Connection:
    """What an application has, and no model."""


class Opaque(enum.Enum):
    ONE = object()


@pytest.mark.regression("worker 138")
@pytest.mark.parametrize(
    ("annotation", "told"),
    [
        (Connection, r"Unable to generate .* for <class '.*Connection'>\. .*`app_resources`\.$"),
        (Callable[[int], int], r"Cannot generate .*`app_resources`\.$"),
        (Opaque, "Unable to serialize"),
        (Annotated[str, Field(pattern="(")], "."),
        (Node, "the type 'Node' contains itself"),
    ],
    ids=["class", "callable", "enumeration", "pattern", "recursive"],
)
def test_the_parameter_that_has_no_schema_is_named(annotation, told):
    def order(city: str, other): ...

    order.__annotations__["other"] = annotation
    with pytest.raises(FunctionSchemaError, match=f"^order: the parameter 'other': {told}") as refused:
        schema_of(order)
    assert "arbitrary_types_allowed" not in str(refused.value)


@pytest.mark.regression("worker 139")
def test_the_signature_that_a_decorator_declares_has_its_own_annotations():
    def with_a_connection(function):
        def weather(**arguments):
            return function(Connection(), **arguments)

        parameters = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
        declared: Any = weather
        declared.__signature__ = inspect.Signature(parameters)
        return declared

    @with_a_connection
    def weather(connection: Connection, city: str, days: int = 1, *, params: FunctionCallParams): ...

    signature = signature_of(weather)
    assert signature.params_name == "params"
    assert {name: described["type"] for name, described in signature.schema.properties.items()} == {
        "city": "string",
        "days": "integer",
    }
