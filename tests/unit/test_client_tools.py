"""Functions that clients bring: which definitions are valid, and the resulting tools."""

import asyncio
import json
import threading

import pytest
from tests.support.gateway import AWAY, app_of

from frameledger.frames import LLMContextFrame, encode_frame
from frameledger.record import decode
from frameledger.tools import of_client
from frameledger_services import bounded_checks
from frameledger_services.gateway import client_tools
from frameledger_services.gateway.client_tools import Definition, merged, stored_definitions
from frameledger_services.gateway.problems import ProblemError
from frameledger_services.settings import Settings

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer", "default": 1}}}
SERVED = {"type": "function", "function": {"name": "pay", "description": "", "parameters": SCHEMA}}


def test_a_definition_is_written_as_the_log_has_it_and_marked():
    [tool] = stored_definitions([Definition("paint", "Paints.", SCHEMA, True)])
    function = {"name": "paint", "description": "Paints.", "parameters": SCHEMA, "strict": True}
    assert tool == {"type": "function", "function": function, "served_by": "client"}


@pytest.mark.parametrize("parameters", [None, {}, {"properties": {}}])
def test_a_function_without_parameters_takes_an_object(parameters):
    [tool] = stored_definitions([Definition("paint", None, parameters)])
    assert tool["function"]["parameters"] == {"type": "object", "properties": {}}


DEEP: dict = {}
for _ in range(5_000):
    DEEP = {"type": "object", "properties": {"a": DEEP}}


def nested(levels, value=None):
    """A value that deep inside of arrays."""
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("definition", "place"),
    [
        (Definition(""), "tools[0].name"),
        (Definition("two words"), "tools[0].name"),
        (Definition("x" * 65), "tools[0].name"),
        (Definition(7), "tools[0].name"),
        (Definition("f", 7), "tools[0].description"),
        (Definition("f", None, None, "yes"), "tools[0].strict"),
        (Definition("f", None, []), "tools[0].parameters"),
        (Definition("f", None, {"type": "array"}), "tools[0].parameters"),
        (Definition("f", None, {"type": "object", "properties": 7}), "tools[0].parameters"),
        (Definition("f", None, {"properties": {"a": {"type": "nonsense"}}}), "tools[0].parameters"),
        (Definition("f", None, {"$schema": 7}), "tools[0].parameters"),
        (Definition("f", None, DEEP), "tools[0].parameters"),
    ],
)
def test_what_no_model_can_be_offered_is_refused_and_says_where(definition, place):
    with pytest.raises(ProblemError) as refused:
        stored_definitions([definition])
    assert refused.value.members["param"] == place


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"properties": {"n": {"default": json.loads("1e999")}}}, "Infinity"),
        ({"properties": {"n": {"default": 10**400}}}, "double"),
        ({"properties": {"n": {"const": nested(93)}}}, "deep"),
        ({"properties": {"n": {"const": nested(900)}}}, ""),
    ],
)
def test_what_no_frame_can_carry_is_refused_by_the_name_of_its_function(schema, why):
    with pytest.raises(ProblemError, match=f"'paint'.*{why}") as refused:
        stored_definitions([Definition("sing"), Definition("paint", "Paints.", schema)])
    assert refused.value.members["param"] == "tools[1].parameters"


def test_a_schema_is_checked_once_however_its_fields_are_ordered(monkeypatch):
    schema = {"type": "object", "properties": {"once": {"type": "string"}}}
    stored_definitions([Definition("paint", "Paints.", schema)])

    def checked(_):
        raise AssertionError("it was checked before")

    monkeypatch.setattr(client_tools, "_problem_of", checked)
    [tool] = stored_definitions([Definition("draw", None, dict(reversed(schema.items())))])
    assert tool["function"]["parameters"] == schema


def test_a_schema_that_is_refused_is_refused_again():
    wrong = {"type": "object", "properties": {"n": {"type": "no such type"}}}
    for name in ("first", "second"):
        with pytest.raises(ProblemError, match="not a JSON Schema"):
            stored_definitions([Definition(name, None, wrong)])


def test_a_schema_as_deep_as_a_frame_can_carry_is_taken():
    """To the level: it goes to the log in the frame that opens a conversation."""
    [tool] = stored_definitions(
        [Definition("paint", "Paints.", {"properties": {"n": {"const": nested(92)}}})]
    )
    frame = LLMContextFrame.model_validate({"context": {"messages": [], "tools": [tool]}})
    assert decode(encode_frame(frame)) == frame


MANY = 20_000


@pytest.mark.regression("fault 87")
@pytest.mark.parametrize(
    "parameters",
    [
        {"properties": {str(n): {} for n in range(MANY)}},
        {"properties": {"enum": {"properties": {str(n): True for n in range(MANY)}}}},
        {"allOf": [{"type": "string"}] * MANY},
        {"required": [str(n) for n in range(30 * MANY)]},
        {"properties": {"a": {"pattern": r"[\u0000-\uffff]{1,1000}" * MANY}}},
        {"patternProperties": {r"[\u0000-\uffff]{1,1000}" * 500 + str(n): {} for n in range(20)}},
    ],
    ids=lambda one: next(iter(one)),
)
def test_schemas_that_would_take_minutes_are_refused_at_once(parameters, monkeypatch):
    def checked(_, schema):
        raise AssertionError("it is checked")

    monkeypatch.setattr(bounded_checks, "check_schema", checked)
    with pytest.raises(ProblemError, match="too large") as refused:
        stored_definitions([Definition("f", "", parameters)])
    assert refused.value.members["param"] == "tools[0].parameters"


@pytest.mark.regression("fault 87")
def test_the_schemas_of_one_request_are_not_too_large_together(monkeypatch):
    monkeypatch.setattr(bounded_checks, "check_schema", lambda *_, **__: None)
    of_fields = {f"field_{n}": {"type": "string", "description": "What it is."} for n in range(60)}
    usual = {"type": "object", "properties": of_fields, "required": list(of_fields)}
    assert (
        len(stored_definitions(Definition(f"f{n}", "", usual | {"title": str(n)}) for n in range(128))) == 128
    )
    with pytest.raises(ProblemError, match="too large") as refused:
        stored_definitions(
            Definition(f"f{n}", "", {"allOf": [{}] * 200, "title": str(n)}) for n in range(128)
        )
    assert refused.value.members["param"] == "tools[48].parameters"


@pytest.mark.regression("fault 87")
def test_values_of_a_schema_may_be_many():
    listed = {
        "properties": {"town": {"enum": [{"name": str(n)} for n in range(MANY)], "default": [{}] * MANY}}
    }
    assert len(stored_definitions([Definition("f", "", listed)])) == 1


def test_names_are_there_once_and_there_are_not_too_many():
    with pytest.raises(ProblemError, match="twice"):
        stored_definitions([Definition("f"), Definition("f")])
    assert len(stored_definitions([Definition(f"f{n}") for n in range(128)])) == 128
    with pytest.raises(ProblemError, match="128"):
        stored_definitions([Definition(f"f{n}") for n in range(129)])


def test_what_a_client_brings_takes_the_place_of_what_clients_brought_before():
    before, now = stored_definitions([Definition("old")]), stored_definitions([Definition("new")])
    assert merged([SERVED, *before], now) == [SERVED, *now]
    assert merged([SERVED, *before], ()) == [SERVED]
    assert merged([SERVED, *now], now) is None
    assert merged([SERVED], ()) is None


def test_a_function_of_a_service_stays_the_services():
    assert merged([SERVED], stored_definitions([Definition("pay"), Definition("paint")])) == [
        SERVED,
        *stored_definitions([Definition("paint")]),
    ]
    assert merged([SERVED], stored_definitions([Definition("pay")])) is None


@pytest.mark.parametrize(
    ("other", "is_same"), [(1, True), (1.0, True), (True, False), (2, False), ("1", False), ([1], False)]
)
def test_numbers_are_the_same_however_they_are_written_and_true_is_none(other, is_same):
    def tool(value):
        return of_client({"type": "function", "function": {"name": "f", "parameters": {"default": value}}})

    assert (merged([tool(1)], [tool(other)]) is None) == is_same


FUNCTION = {"name": "paint", "parameters": SCHEMA}
BODIES = {
    "/v1/chat/completions": {
        "messages": [{"role": "user", "content": "Hi"}],
        "tools": [{"type": "function", "function": FUNCTION}],
    },
    "/v1/responses": {"input": "Hi", "tools": [{"type": "function", **FUNCTION}]},
    "/v1/ag-ui": {
        "threadId": "t",
        "runId": "r",
        "messages": [],
        "tools": [{**FUNCTION, "description": "Paints."}],
    },
}


@pytest.mark.regression("gateway 60")
@pytest.mark.parametrize(
    "written",
    [
        str.encode,
        lambda text: text.replace('"tools"', '"tool\\u0073"').encode(),
        lambda text: text.encode("utf-16"),
    ],
    ids=["plain", "escaped", "utf-16"],
)
@pytest.mark.parametrize("path", BODIES)
def test_schemas_are_checked_outside_of_the_event_loop_however_a_body_is_written(path, written, monkeypatch):
    threads = []

    def stored_definitions(_):
        threads.append(threading.current_thread())
        raise ProblemError("bad-parameter", "That is enough.")

    async def ask():
        monkeypatch.setattr(client_tools, "stored_definitions", stored_definitions)
        async with app_of(Settings(**AWAY, gateway_openai=True)) as http:
            headers = {"Content-Type": "application/json"}
            return await http.post(path, content=written(json.dumps(BODIES[path])), headers=headers)

    assert asyncio.run(ask()).status_code == 400
    assert all(thread is not threading.main_thread() for thread in threads)
    # AG-UI's JSON is UTF-8.
    assert threads or path == "/v1/ag-ui"
