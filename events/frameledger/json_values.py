"""Deep copies of JSON values, which the values of the core make of their arguments."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic_core import PydanticSerializationError, to_json

_SCALARS = frozenset({str, int, float, bool, type(None)})


def json_copy(value: Any) -> Any:
    """Returns the same JSON value, sharing nothing mutable with `value`.

    Mappings become dicts and tuples become lists, so that different forms of one value are equal afterwards. Raises
    TypeError for anything else without a JSON form, because every context can be stored.
    """
    if type(value) in _SCALARS:
        return value
    if isinstance(value, Mapping):
        return {_key(key): json_copy(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_copy(item) for item in value]
    if isinstance(value, str | int | float):  # an enum of strings, for one
        return value
    raise TypeError(f"a {type(value).__name__} is not a JSON value")


def _key(key: object) -> str:
    if isinstance(key, str):
        return key
    raise TypeError(f"the key {key!r} of a mapping is not text; JSON has no other keys")


# Created once: `json.dumps` creates an encoder for each call, which takes as long as a short message. A value of the
# core is a tree (`json_copy`), so no check for cycles is needed.
_compact = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), default=dict, check_circular=False
).encode

_WRITTEN_ALIKE = frozenset({str, int, bool, type(None)})


def size(value: Any) -> int:
    """Returns the number of bytes of a value as compact JSON. The state counts these, so the result is the same in
    every release.

    Few messages contain floats. Pydantic encodes the others to the same bytes in a tenth of the time; it writes some
    floats differently, and fails on half of a surrogate pair.
    """
    if type(value) is dict and _has_no_floats(value):
        return size_of_text(value)
    return _exact_size(value)


def size_of_text(value: Mapping[str, Any]) -> int:
    """Returns the `size` of an object without floats."""
    try:
        return len(to_json(value))
    except PydanticSerializationError:
        return _exact_size(value)


def _exact_size(value: Any) -> int:
    return len(_compact(value).encode("utf-8", "surrogatepass"))


def _has_no_floats(container: dict[str, Any] | list[Any]) -> bool:
    """Whether an object or array contains no float, and no type that only the encoder above knows."""
    items: Iterable[Any] = container.values() if type(container) is dict else container
    for item in items:
        kind = type(item)
        if kind is dict or kind is list:
            if not _has_no_floats(item):
                return False
        elif kind not in _WRITTEN_ALIKE:
            return False
    return True
