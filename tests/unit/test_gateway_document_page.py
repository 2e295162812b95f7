"""The page of the routes: what it says that each parameter takes, and the requests that it shows."""

import json
import shlex
from functools import cache
from urllib.parse import urlsplit

import pytest
from jsonschema import Draft202012Validator
from starlette.routing import Match
from tests.support.gateway import AWAY, all_routes, with_app

from frameledger.decoding import decode
from frameledger_services.gateway import append
from frameledger_services.gateway.document_page import example, takes
from frameledger_services.settings import Settings


@cache
def document():
    async def ask(http):
        return (await http.get("/openapi.json")).json()

    return with_app(Settings(**AWAY), ask)


def operations():
    return [
        (method, path, operation)
        for path, methods in document()["paths"].items()
        for method, operation in methods.items()
    ]


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "integer", "minimum": 0, "maximum": 2**63 - 1}, "integer, at least 0"),
        ({"type": "integer", "minimum": 1, "maximum": 200}, "integer from 1 to 200"),
        (
            {"anyOf": [{"type": "integer", "minimum": 0, "maximum": 5}, {"enum": ["now"]}]},
            "integer from 0 to 5 or `now`",
        ),
        ({"enum": [True, None]}, "`true` or `null`"),
        ({"type": "boolean"}, "`true` or `false`"),
        ({"type": "string", "format": "date-time"}, "time such as `2026-05-01T12:00:00Z`"),
        ({"type": "string", "minLength": 1, "maxLength": 9}, "text of 1 to 9 characters"),
        ({"type": ["string", "null"]}, "string or null"),
        (
            {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 9}, "maxItems": 5},
            "up to 5, each text of 1 to 9 characters",
        ),
        ({"description": "The result."}, "any JSON"),
    ],
)
def test_what_a_parameter_takes_is_said_in_words(schema, words):
    assert takes(schema) == words


def test_every_parameter_says_what_it_is():
    assert [
        (path, one["name"])
        for _, path, operation in operations()
        for one in operation["parameters"]
        if not one["description"]
    ] == []


def test_every_route_shows_a_request_that_is_one_of_it():
    routes = all_routes()
    for method, path, operation in operations():
        words = shlex.split(example(path, method, operation))
        [address] = [word for word in words if word.startswith("$GATEWAY")]
        asked = urlsplit(address.removeprefix("$GATEWAY"))
        assert "{" not in asked.path
        scope = {"type": "http", "method": method.upper(), "path": asked.path, "headers": []}
        found = [route.path for _, route in routes if route.matches(scope)[0] is Match.FULL]
        assert [one.replace(":path}", "}") for one in found] == [path]
        required = [
            one["name"] for one in operation["parameters"] if one["required"] and one["in"] == "query"
        ]
        assert [pair.partition("=")[0] for pair in asked.query.split("&") if pair] == required
        assert ("-d" in words) == ("requestBody" in operation)
        if "-d" in words:
            check_body(operation, json.loads(words[words.index("-d") + 1]))


def check_body(operation, body):
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    Draft202012Validator({**schema, "components": document()["components"]}).validate(body)


def test_the_frame_that_is_shown_is_one():
    assert decode(json.dumps(append.EXAMPLE).encode()).type == "LLMMessagesAppendFrame"
