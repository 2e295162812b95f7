"""Reads the common parts of requests of both OpenAI APIs: their JSON, the model and the settings."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from pydantic import ValidationError

from frameledger_services.accepted_values import accepted_values
from frameledger_services.gateway.problems import ProblemError
from frameledger_services.json_numbers import no_constant
from frameledger_services.providers.settings import LLMSettings

ANY_MODEL = "frameledger"
"""The model name of a request that leaves the choice to the inference service."""


def parameters(body: bytes) -> dict[str, Any]:
    """Returns the parameters of a body without those that are null. Raises `bad-parameter` if it is not an object."""
    try:
        parsed = json.loads(body, parse_constant=no_constant)
    except (ValueError, RecursionError) as error:
        refuse(None, f"The body is not valid JSON: {error}.")
    if not isinstance(parsed, dict):
        refuse(None, "The body is a JSON object.")
    return {name: value for name, value in parsed.items() if value is not None}


def model(value: Any) -> str | None:
    """Returns the requested model, or None for any. Raises `bad-parameter`."""
    if value is None or value == ANY_MODEL:
        return None
    if not isinstance(value, str) or not 0 < len(value) <= 255 or "\x00" in value:
        refuse("model", "model: a name of 1 to 255 characters is expected.")
    return value


def settings(parameters: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Returns the parameters that are settings of a conversation. `names` has the setting's name by that of the
    parameter. Raises `bad-parameter`."""
    chosen = {setting: parameters[name] for name, setting in names.items() if name in parameters}
    try:
        LLMSettings.model_validate(chosen)
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_input=False)[0]["loc"][0]
        name, setting = next(pair for pair in names.items() if pair[1] == wrong)
        refuse(name, f"{name}: {accepted_values(LLMSettings, setting)} is expected.")
    return chosen


def flag(parameters: Mapping[str, Any], name: str) -> bool:
    """Returns a parameter that is true or false; false without it. Raises `bad-parameter`."""
    value = parameters.get(name)
    if value is not None and not isinstance(value, bool):
        refuse(name, f"{name}: true or false is expected.")
    return bool(value)


def is_one_of(value: Any, allowed: Iterable[Any]) -> bool:
    """Returns whether a value is one of these in JSON, where 1 is not true."""
    return any(value == one and type(value) is type(one) for one in allowed)


def refuse(param: str | None, sentence: str, *, code: str = "invalid_value") -> NoReturn:
    """Raise `bad-parameter` for a parameter, or for the body."""
    raise ProblemError("bad-parameter", sentence, param=param, code=code)
