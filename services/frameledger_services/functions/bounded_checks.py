"""Checks of JSON Schema that take time in proportion to the arguments, however these and the schema are made.

A check runs in the event loop of all calls: one that never ended would hold up all of them, and each worker that took
its call over.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import jsonschema
from jsonschema.exceptions import ValidationError
from pydantic_core import SchemaError, SchemaValidator, core_schema

MOST_PATTERNS = 1_000
"""Compiled patterns that are kept."""


@lru_cache(maxsize=16)
def bounded(checker: type[Any], *, from_a_client: bool) -> type[Any]:
    """Returns a class of `jsonschema` with checks that are bounded.

    Python's regular expressions take exponential time for some patterns. So those of a schema `from_a_client` are
    matched by Rust's engine. A pattern that it does not have, such as one with a lookahead, is not checked, nor are the
    keywords that choose properties by patterns.
    """
    checks: dict[str, Any] = {"uniqueItems": _unique_items}
    if from_a_client:
        checks |= {
            "pattern": _pattern,
            "patternProperties": None,
            "unevaluatedProperties": None,
            "additionalProperties": _additional_properties(checker),
        }
    found: type[Any] = jsonschema.validators.extend(checker, checks)  # type: ignore[no-untyped-call]  # it has no types
    return found


def _unique_items(validator: Any, wanted: object, instance: Any, _: object) -> Iterator[ValidationError]:
    """As `jsonschema` has it, which compares each pair of items that cannot be sorted. 1 and 1.0 are two items here."""
    if wanted and validator.is_type(instance, "array"):
        seen = {json.dumps(item, sort_keys=True) for item in instance}
        if len(seen) < len(instance):
            yield ValidationError("it has non-unique elements")


def _pattern(validator: Any, pattern: str, instance: Any, _: object) -> Iterator[ValidationError]:
    if validator.is_type(instance, "string"):
        matching = _compiled(pattern)
        if matching is not None and not matching.isinstance_python(instance):
            yield ValidationError(f"it does not match {pattern!r}: {instance!r}")


@lru_cache(maxsize=MOST_PATTERNS)
def _compiled(pattern: str) -> SchemaValidator | None:
    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
    except SchemaError:
        return None


def _additional_properties(checker: type[Any]) -> Any:
    own = checker.VALIDATORS.get("additionalProperties")

    def check(validator: Any, wanted: object, instance: Any, schema: Mapping[str, Any]) -> Any:
        return (
            () if own is None or "patternProperties" in schema else own(validator, wanted, instance, schema)
        )

    return check
