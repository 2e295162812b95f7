"""The JSON Schemas of a pydantic model's fields, without references, which not every provider follows."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.errors import PydanticUserError
from pydantic.json_schema import PydanticJsonSchemaWarning

from frameledger_services.json_numbers import check_json

_OF_VALUES = frozenset({"default", "const", "enum", "examples"})
"""Keywords of a schema whose content is values and not schemas."""

_OF_REFERENCES = frozenset({"$ref", "discriminator"})
"""Keywords that name definitions. The latter is OpenAPI's; the models of its union express the same by a `const`
each."""


def properties_of(model: type[BaseModel]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Returns the schemas of the fields by alias, and the names of the required ones. Raises pydantic's errors for a
    type without a schema, and for one that contains itself."""
    with warnings.catch_warnings():
        # The schema omits a default that is not JSON; the function still has it.
        warnings.simplefilter("ignore", PydanticJsonSchemaWarning)
        schema = model.model_json_schema(by_alias=True)
    definitions = schema.get("$defs", {})
    properties = {
        parameter: _inlined(described, definitions, ())
        for parameter, described in schema.get("properties", {}).items()
    }
    for described in properties.values():
        described.pop("title", None)
    return properties, tuple(schema.get("required", ()))


def _inlined(value: Any, definitions: Mapping[str, Any], inside: tuple[str, ...]) -> Any:
    """Returns the schema with its references replaced by their definitions."""
    if isinstance(value, list):
        return [_inlined(item, definitions, inside) for item in value]
    if not isinstance(value, dict):
        return value
    rest = {
        key: _keyword(key, item, definitions, inside)
        for key, item in value.items()
        if key not in _OF_REFERENCES and (key not in ("default", "examples") or _is_json(item))
    }
    reference = value.get("$ref")
    if reference is None:
        return rest
    target = str(reference).removeprefix("#/$defs/")
    if target in inside:
        raise PydanticUserError(
            f"the type '{target}' contains itself. A schema cannot be recursive: flatten the type.", code=None
        )
    return _untitled(_inlined(definitions[target], definitions, (*inside, target))) | rest


def _keyword(key: str, item: Any, definitions: Mapping[str, Any], inside: tuple[str, ...]) -> Any:
    if key in _OF_VALUES:
        # A value may look like a schema: GeoJSON has `properties`, and they may be null.
        return item
    if key == "properties":
        return {inner: _untitled(_inlined(one, definitions, inside)) for inner, one in item.items()}
    return _inlined(item, definitions, inside)


def _is_json(default: Any) -> bool:
    """Returns whether a default, or examples, can be part of a schema; `math.inf` cannot. The function has the default
    in any case."""
    try:
        check_json(default)
    except ValueError:
        return False
    return True


def _untitled(schema: Any) -> Any:
    if isinstance(schema, dict) and isinstance(schema.get("title"), str):
        return {key: item for key, item in schema.items() if key != "title"}
    return schema
