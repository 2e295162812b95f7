"""Checks of JSON Schema whose time is proportional to schema and arguments, whatever both are.

A worker checks arguments in the event loop of all its calls: a check that never ended would block all of them, and then
each worker that took its call over.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from functools import lru_cache, partial, partialmethod
from typing import Any

import jsonschema
from jsonschema.exceptions import SchemaError as BadSchemaError
from jsonschema.exceptions import ValidationError
from pydantic_core import SchemaError, SchemaValidator, core_schema

MAX_PATTERNS = 100
"""Number of compiled patterns that are kept. One takes up to some ten megabytes."""

MAX_REFERENCES = 10_000
"""The number of references in a client's schema that one check follows. Without a limit it doubles with each level of a
schema that refers to the next level twice."""

MAX_WORK = 500_000
"""The limit for checking the schemas of one client's functions, in units of some 10 to 20 us (`work_of`): five to ten
seconds. That is enough for 128 functions of 60 parameters. A frame has room for a schema that takes minutes."""

_WORK_PER_SCHEMA = 50
_WORK_PER_CHARACTER = 10
"""Work per character of a regular expression, which Python compiles to check its validity."""

_KEYWORDS_WITH_NAMES = frozenset(
    ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")
)
"""Keywords whose objects have arbitrary names, each with a schema."""

_KEYWORDS_WITH_VALUES = frozenset(("enum", "const", "default", "examples"))
"""Keywords with values, which take no time."""

_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")

_followed: ContextVar[Iterator[int]] = ContextVar("followed")
"""Counts the references that the current check has followed."""


@lru_cache(maxsize=16)
def bounded(checker: type[Any], *, from_a_client: bool) -> type[Any]:
    """Returns a subclass of a `jsonschema` class whose checks are bounded. `errors` runs them.

    Python's regular expressions take exponential time for some patterns, so Rust's engine matches them. A pattern that
    it does not support, such as one with a lookahead, is matched by Python's engine if the schema is the application's,
    which is trusted. In a schema `from_a_client` such a pattern is not checked. Nor are the keywords that select
    properties by patterns, and `unevaluatedItems`, which checks everything within it twice.

    A `$schema` within a schema has no effect: `jsonschema` would continue with a class that is not bounded.
    """
    own = checker.VALIDATORS
    additional = own.get("additionalProperties", _unchecked)
    checks: dict[str, Any] = {"uniqueItems": _unique_items}
    if from_a_client:
        checks |= {
            "pattern": partial(_pattern, _matches_if_known),
            "patternProperties": _unchecked,
            "unevaluatedProperties": _unchecked,
            "unevaluatedItems": _unchecked,
            "additionalProperties": partial(_additional_without_patterns, additional),
        } | {name: partial(_reference, own[name]) for name in _REFERENCES if name in own}
    else:
        checks |= {
            "pattern": partial(_pattern, _matches),
            "patternProperties": _pattern_properties,
            "additionalProperties": partial(_additional_properties, additional),
        }
    extended: type[Any] = jsonschema.validators.extend(checker, checks)  # type: ignore[no-untyped-call]  # it has no types
    extended.evolve = partialmethod(_evolve, checker.evolve)
    return extended


def errors(validator: Any, instance: Any) -> Iterator[ValidationError]:
    """Yields the errors that a bounded validator finds in an instance. Raises RecursionError for too many references,
    and whatever `jsonschema` raises for some schemas."""
    _followed.set(itertools.count(1))
    found: Iterator[ValidationError] = validator.iter_errors(instance)
    return found


def check_schema(checker: type[Any], schema: Any, *, from_a_client: bool) -> None:
    """Check a schema like the class method of `jsonschema`, in bounded time. In a schema `from_a_client`, a pattern
    that only Rust's engine supports is refused, since compiling it may take far longer than `work_of` counts. Raises
    its `SchemaError`, and RecursionError."""
    of_schemas = jsonschema.validators.validator_for(checker.META_SCHEMA, default=checker)
    formats = jsonschema.FormatChecker(())
    formats.checkers = dict(of_schemas.FORMAT_CHECKER.checkers)
    if not from_a_client:
        formats.checkers["regex"] = (_is_pattern, ())
    validator = bounded(of_schemas, from_a_client=False)(checker.META_SCHEMA, format_checker=formats)
    for error in errors(validator, schema):
        raise BadSchemaError.create_from(error)


def work_of(schema: Any) -> int:
    """Returns an upper bound of the work of checking a schema. Counting stops above `MAX_WORK`."""
    work = 0
    waiting: list[tuple[Any, str]] = [(schema, "")]
    while waiting and work <= MAX_WORK:
        value, keyword = waiting.pop()
        if isinstance(value, Mapping):
            work += len(value) + _WORK_PER_SCHEMA
            if work > MAX_WORK:
                break
            if keyword == "patternProperties":
                work += _WORK_PER_CHARACTER * sum(len(name) for name in value)
            elif keyword not in _KEYWORDS_WITH_NAMES and isinstance(pattern := value.get("pattern"), str):
                work += _WORK_PER_CHARACTER * len(pattern)
            waiting += (
                (one, "" if keyword in _KEYWORDS_WITH_NAMES else name)
                for name, one in value.items()
                if keyword in _KEYWORDS_WITH_NAMES or name not in _KEYWORDS_WITH_VALUES
            )
        elif isinstance(value, list | tuple):
            work += len(value)
            if work <= MAX_WORK:
                waiting += ((one, "") for one in value)
        elif isinstance(value, bool):
            work += _WORK_PER_SCHEMA
        else:
            work += 1
    return work


def _evolve(validator: Any, own: Any, **changes: Any) -> Any:
    schema = changes.get("schema")
    if isinstance(schema, Mapping) and "$schema" in schema:
        changes["schema"] = {name: value for name, value in schema.items() if name != "$schema"}
    return own(validator, **changes)


def _unchecked(_: Any, __: object, ___: Any, ____: object) -> tuple[()]:
    return ()


def _reference(own: Any, validator: Any, reference: str, instance: Any, schema: object) -> Any:
    if next(_followed.get()) > MAX_REFERENCES:
        raise RecursionError(f"a check follows at most {MAX_REFERENCES} references")
    return own(validator, reference, instance, schema)


def _unique_items(validator: Any, unique: object, instance: Any, _: object) -> Iterator[ValidationError]:
    """Like `jsonschema`, which compares each pair of items that cannot be sorted. 1 and 1.0 are different items
    here."""
    if unique and validator.is_type(instance, "array"):
        distinct = {json.dumps(item, sort_keys=True) for item in instance}
        if len(distinct) < len(instance):
            yield ValidationError(f"it has non-unique elements: {instance!r}")


def _pattern(
    matches: Callable[[str, str], bool], validator: Any, pattern: str, instance: Any, _: object
) -> Iterator[ValidationError]:
    if validator.is_type(instance, "string") and not matches(pattern, instance):
        yield ValidationError(f"it does not match {pattern!r}: {instance!r}")


def _matches_if_known(pattern: str, text: str) -> bool:
    matching = _compiled(pattern)
    return matching is None or matching.isinstance_python(text)


def _matches(pattern: str, text: str) -> bool:
    matching = _compiled(pattern)
    return bool(re.search(pattern, text)) if matching is None else matching.isinstance_python(text)


def _is_pattern(pattern: object) -> bool:
    if not isinstance(pattern, str):
        return True
    try:
        re.compile(pattern)
    except re.error:
        return _compiled(pattern) is not None
    return True


@lru_cache(maxsize=MAX_PATTERNS)
def _compiled(pattern: str) -> SchemaValidator | None:
    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
    except SchemaError:
        return None


def _pattern_properties(
    validator: Any, patterns: Mapping[str, Any], instance: Any, _: object
) -> Iterator[ValidationError]:
    if validator.is_type(instance, "object"):
        for pattern, schema in patterns.items():
            for name, value in instance.items():
                if _matches(pattern, name):
                    yield from validator.descend(value, schema, path=name, schema_path=pattern)


def _additional_properties(
    own: Any, validator: Any, additional: object, instance: Any, schema: Mapping[str, Any]
) -> Any:
    patterns = schema.get("patternProperties")
    if patterns and validator.is_type(instance, "object"):
        # As if those that match a pattern were listed: `own` would match it with Python's engine.
        matched: dict[str, Any] = {
            name: {} for name in instance if any(_matches(pattern, name) for pattern in patterns)
        }
        schema = {"properties": matched | schema.get("properties", {})}
    return own(validator, additional, instance, schema)


def _additional_without_patterns(
    own: Any, validator: Any, additional: object, instance: Any, schema: Mapping[str, Any]
) -> Any:
    return () if "patternProperties" in schema else own(validator, additional, instance, schema)
