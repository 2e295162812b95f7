"""The arguments of a function as a pydantic model, which accepts what its JSON Schema describes."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from pydantic import BaseModel, ConfigDict, create_model
from pydantic_core import SchemaError, SchemaValidator, to_jsonable_python
from pydantic_core.core_schema import no_info_before_validator_function

_OF_CORE_VALUES = frozenset({"default", "expected", "metadata", "serialization"})
"""Keys of a core schema that have values, or do not affect validation."""


def model_of(name: str, fields: Mapping[str, Any]) -> type[BaseModel]:
    """Returns the model with these fields. Raises pydantic's errors for a type without a schema."""
    config = ConfigDict(arbitrary_types_allowed=False, extra="forbid", protected_namespaces=())
    try:
        return _created(name, config, fields)
    except SchemaError:
        # Rust's regular expressions support neither lookaround nor backreferences.
        config["regex_engine"] = "python-re"
        return _created(name, config, fields)


def _created(name: str, config: ConfigDict, fields: Mapping[str, Any]) -> type[BaseModel]:
    model = create_model(name, __config__=config, **fields)
    schema = _by_value(model.__pydantic_core_schema__)
    if schema != model.__pydantic_core_schema__:
        # The existing validators of nested models do not have this change.
        model.__pydantic_validator__ = SchemaValidator(schema, _use_prebuilt=False)
    return model


def _by_value(schema: Any) -> Any:
    """Returns a schema of pydantic's core in which each `Enum`, and each `Literal` of its members, accepts what its
    JSON Schema describes. pydantic itself accepts Python values, such as dates, and for a `Literal` only the members,
    unless they are strings or numbers."""
    if isinstance(schema, list | tuple):
        return type(schema)(map(_by_value, schema))
    if not isinstance(schema, dict):
        return schema
    inner = {key: value if key in _OF_CORE_VALUES else _by_value(value) for key, value in schema.items()}
    if schema.get("type") == "tagged-union":
        # The tags of its models, by which they are chosen before anything is validated.
        tags = inner["choices"]
        values = {tag.value: one for tag, one in tags.items() if isinstance(tag, Enum)}
        inner["choices"] = values | tags
    offered = [(to_jsonable_python(one.value), one) for one in _members(schema)]
    if not offered:
        return inner
    return no_info_before_validator_function(
        lambda value: next((one for written, one in offered if written == value), value),
        {key: item for key, item in inner.items() if key != "ref"},
        ref=inner.get("ref"),
    )


def _members(schema: Mapping[str, Any]) -> list[Enum]:
    """Returns the members of an `Enum` whose described values this schema of pydantic's core does not accept."""
    match schema:
        case {"type": "literal", "expected": expected}:
            return [one for one in expected if isinstance(one, Enum)]
        case {"type": "enum", "members": members}:
            return [one for one in members if to_jsonable_python(one.value) != one.value]
    return []
