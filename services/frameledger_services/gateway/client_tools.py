"""Functions that a client defines in its request and whose calls it answers itself: they are validated, and merged with
the functions of services.

A conversation has the client functions of the latest request. A request without them removes them, because no client
would answer their calls.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jsonschema
from jsonschema.exceptions import SchemaError

from frameledger import strict_json
from frameledger.decode_error import DecodeError
from frameledger.tools import is_of_client, of_client, tool_names
from frameledger_services import bounded_checks
from frameledger_services.gateway.problems import ProblemError

MAX_FUNCTIONS = 128
"""The maximum number of functions in a request, as in OpenAI's API."""

MAX_CHECKED = 4_096
"""The number of schemas whose check is remembered."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""A name of a function that every provider accepts."""

_NO_PARAMETERS = {"type": "object", "properties": {}}


@dataclass(frozen=True, slots=True)
class Definition:
    """A function in the client's description."""

    name: Any
    description: Any = None
    parameters: Any = None
    strict: Any = None


def stored_definitions(definitions: Iterable[Definition]) -> tuple[dict[str, Any], ...]:
    """Returns the definitions in the form of the log, marked as the client's. Raises the problem `bad-parameter`, which
    names the place. Schemas that were not checked before take milliseconds each."""
    by_name: dict[str, dict[str, Any]] = {}
    work = 0
    for number, definition in enumerate(definitions):
        place = f"tools[{number}]"
        if number == MAX_FUNCTIONS:
            raise _refused("tools", f"at most {MAX_FUNCTIONS} functions.")
        if not isinstance(definition.name, str) or not _NAME.fullmatch(definition.name):
            raise _refused(
                f"{place}.name", "a function's name is 1 to 64 letters, digits, underscores and hyphens."
            )
        if definition.name in by_name:
            raise _refused(f"{place}.name", f"the function {definition.name!r} occurs twice.")
        if not isinstance(definition.description, str | None):
            raise _refused(f"{place}.description", "a description is text.")
        if not isinstance(definition.strict, bool | None):
            raise _refused(f"{place}.strict", "true or false is expected.")
        function: dict[str, Any] = {"name": definition.name, "description": definition.description or ""}
        for name in ("description", "parameters"):
            _check_carried(f"{place}.{name}", definition.name, getattr(definition, name))
        work += bounded_checks.work_of(definition.parameters)
        if work > bounded_checks.MAX_WORK:
            raise _refused(f"{place}.parameters", "the schemas are too large to be checked.")
        function["parameters"] = _parameters(f"{place}.parameters", definition.parameters)
        if definition.strict is not None:
            function["strict"] = definition.strict
        by_name[definition.name] = of_client({"type": "function", "function": function})
    return tuple(by_name.values())


def merged(
    held: Sequence[dict[str, Any]], requested: Sequence[dict[str, Any]]
) -> list[dict[str, Any]] | None:
    """Returns the tools of a conversation with the tools `held` after a request with `requested`, or None if they do
    not change.

    A function of a service takes precedence: a client that defines one with the same name receives no calls of it.
    """
    served = [one for one in held if not is_of_client(one)]
    names = set(tool_names(served))
    tools = [*served, *(one for one in requested if not names.intersection(tool_names([one])))]
    return None if is_same(tools, held) else tools


def value(text: str) -> Any:
    """Returns the JSON object, array or string in a text, if a frame can carry it, and otherwise the unchanged text: a
    number that is parsed is not always written as it was."""
    if not text.lstrip().startswith(("{", "[", '"')):
        return text
    try:
        # Nested as deeply as in a frame.
        [parsed] = strict_json.loads(f"[{text}]".encode())
    except (DecodeError, ValueError):
        return text
    return parsed


def is_same(left: Any, right: Any) -> bool:
    """Returns whether two values are equal in JSON: 1 and 1.0 are, 1 and true are not."""
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(
            is_same(value, right[name]) for name, value in left.items()
        )
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(is_same, left, right))
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)


def _refused(place: str, why: str) -> ProblemError:
    return ProblemError("bad-parameter", f"{place}: {why}", param=place, code="invalid_value")


def _check_carried(place: str, name: str, value: Any) -> None:
    """Refuse a value that no frame can contain, because publishing it would fail later."""
    try:
        # Nested as deeply as in a frame that opens a conversation: frame, context, tools, tool, function.
        strict_json.loads(f"[[[[[{json.dumps(value)}]]]]]".encode())
    except (DecodeError, ValueError, RecursionError) as error:
        raise _refused(place, f"the function {name!r} cannot be stored: {error}.") from None


def _parameters(place: str, parameters: Any) -> Any:
    if parameters is None or parameters == {}:
        return _NO_PARAMETERS
    if not isinstance(parameters, Mapping) or parameters.get("type", "object") != "object":
        raise _refused(place, "the JSON Schema of an object is expected.")
    schema = dict(parameters)
    if (problem := _CHECKED.problem(schema)) is not None:
        raise _refused(place, problem)
    return schema if "type" in schema else {"type": "object", **schema}


class _Checked:
    """A cache of the problems of JSON Schemas. A check takes milliseconds, and a client sends the same functions with
    each request. Threads may share it."""

    def __init__(self) -> None:
        self._problems: dict[bytes, str | None] = {}

    def problem(self, schema: dict[str, Any]) -> str | None:
        """Returns the problem of a schema, or None if it has none."""
        digest = hashlib.sha256(json.dumps(schema, sort_keys=True).encode()).digest()
        try:
            return self._problems[digest]
        except KeyError:
            result = _problem_of(schema)
        if len(self._problems) >= MAX_CHECKED:
            self._problems.clear()
        self._problems[digest] = result
        return result


_CHECKED = _Checked()


def _problem_of(schema: dict[str, Any]) -> str | None:
    try:
        checker = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
        bounded_checks.check_schema(checker, schema, from_a_client=True)
    except SchemaError as error:
        return f"not a JSON Schema: {error.message[:300]}."
    except Exception:
        # Nested too deeply, or in an unknown dialect.
        return "the JSON Schema cannot be read."
    return None
