"""The arguments of a call: parsed from the model's output, and checked against the function's schema."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import jsonschema
import referencing
from jsonschema.exceptions import SchemaError as BadSchemaError

from frameledger.errors import RefusedError
from frameledger.tools import FunctionSchema
from frameledger_services import bounded_checks
from frameledger_services.call_words import shown
from frameledger_services.json_numbers import no_constant

MAX_COMPLAINTS = 5
"""The maximum number of mistakes in a message to the model, which corrects a few at a time."""


class ArgumentsError(RefusedError, ValueError):
    """The arguments of a call do not match the function's schema. The message is for the model.

    Remedy: None is needed: the model reads the message and may call again.
    """


class ArgumentsChecker:
    """Checks arguments against one schema. Created once per function. Raises ValueError if the schema is invalid."""

    def __init__(self, schema: FunctionSchema | Mapping[str, Any], *, from_a_client: bool = False) -> None:
        """`schema` is that of the function, or the JSON Schema of its arguments. `from_a_client` applies the limits of
        `bounded_checks`; the check may take seconds."""
        if isinstance(schema, FunctionSchema):
            parameters: dict[str, Any] = schema.to_openai()["function"]["parameters"]
        else:
            parameters = dict(schema)
        try:
            if from_a_client and bounded_checks.work_of(parameters) > bounded_checks.MAX_WORK:
                raise ValueError("it is too large")
            validator_class = jsonschema.validators.validator_for(parameters, jsonschema.Draft202012Validator)
            bounded_checks.check_schema(validator_class, parameters, from_a_client=from_a_client)
        except BadSchemaError as error:
            raise ValueError(
                f"The schema of the arguments is not a valid JSON Schema: {error.message}"
            ) from error
        except Exception as error:
            # Schemas come from outside, and jsonschema raises arbitrary errors for some: TypeError for a `$schema` that
            # is a list, RecursionError.
            raise ValueError(f"The schema of the arguments cannot be read: {error}") from error
        # An empty registry: references to other documents are not fetched.
        checker = bounded_checks.bounded(validator_class, from_a_client=from_a_client)
        self._validator = checker(parameters, registry=referencing.Registry())

    def check(self, arguments: Mapping[str, Any]) -> None:
        """Check the arguments. Raises ArgumentsError with the first mistakes, or if the check itself fails."""
        complaints = []
        try:
            for error in bounded_checks.errors(self._validator, dict(arguments)):
                where = _short(".".join(str(part) for part in error.absolute_path))
                complaints.append(f"{where}: {_short(error.message)}" if where else _short(error.message))
                if len(complaints) == MAX_COMPLAINTS:
                    break
        except Exception as error:
            # An unresolvable reference, a schema that contains itself, too many references, a number beyond floats.
            raise ArgumentsError("the arguments cannot be checked against its schema") from error
        if complaints:
            raise ArgumentsError("; ".join(complaints))


def parsed(arguments: Any) -> dict[str, Any]:
    """Returns the arguments as a dict. Accepts an object, the JSON text of an object, and None or "" for no arguments.

    Raises ArgumentsError.
    """
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}", parse_constant=no_constant, parse_float=_finite)
        except (ValueError, RecursionError) as error:
            raise ArgumentsError(f"the arguments are not JSON: {error}") from error
    if arguments is None:
        return {}
    if not isinstance(arguments, Mapping):
        raise ArgumentsError(f"the arguments are {_kind(arguments)} and must be an object")
    return dict(arguments)


def bad_arguments_message(function_name: str, why: ArgumentsError) -> str:
    """Returns the result for the model."""
    name = shown(function_name)
    return f"The function `{name}` was not run: {why}. Call it again with arguments that fit its schema."


def _finite(number: str) -> float:
    value = float(number)
    if math.isinf(value):
        raise ValueError(f"the number {_short(number)} is too large")
    return value


def _kind(value: Any) -> str:
    match value:
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case _:
            return "a list"


def _short(message: str) -> str:
    return message if len(message) <= 300 else f"{message[:300]}..."
