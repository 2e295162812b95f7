"""A deep copy of a JSON value, which the values of the core make of their arguments."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic_core import PydanticSerializationError, to_json

_SCALARS = frozenset({str, int, float, bool, type(None)})


def json_copy(value: Any) -> Any:
    """The same JSON value, sharing nothing that can change with `value`.

    Mappings become dicts and tuples become lists, so that two spellings of one value are equal afterwards.
    Anything else that JSON has no form for is a TypeError: a context must survive being written down.
    """
    if type(value) in _SCALARS:
        return value
    if isinstance(value, Mapping):
        return {_key(key): json_copy(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_copy(item) for item in value]
    if isinstance(value, str | int | float):  # an enum of strings, for one
        return value
    raise TypeError(f"a {type(value).__name__} is no JSON value")


def _key(key: object) -> str:
    if isinstance(key, str):
        return key
    raise TypeError(f"the key {key!r} of a mapping is not text; JSON has no other keys")


# Made once: `json.dumps` makes an encoder for each call, which takes as long as a short message. A value of the core is
# a tree (`json_copy`), so nobody has to look for circles.
_compact = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), default=dict, check_circular=False
).encode

_WRITTEN_ALIKE = frozenset({str, int, bool, type(None)})


def size(value: Any) -> int:
    """Returns the number of bytes of a value as compact JSON. The state counts them, so it is the same in every
    release.

    Few messages contain floats. Pydantic encodes the others to the same bytes in a tenth of the time; it writes some
    floats differently, and fails on half of a surrogate pair.
    """
    if type(value) is dict and _is_written_alike(value):
        return size_of_text(value)
    return _exact_size(value)


def size_of_text(value: Mapping[str, Any]) -> int:
    """The `size` of an object in which nothing is a float."""
    try:
        return len(to_json(value))
    except PydanticSerializationError:
        return _exact_size(value)


def _exact_size(value: Any) -> int:
    return len(_compact(value).encode("utf-8", "surrogatepass"))


def _is_written_alike(container: dict[str, Any] | list[Any]) -> bool:
    """Whether nothing in an object or array is a float, or of a type that only the encoder above knows."""
    items: Iterable[Any] = container.values() if type(container) is dict else container
    for item in items:
        kind = type(item)
        if kind is dict or kind is list:
            if not _is_written_alike(item):
                return False
        elif kind not in _WRITTEN_ALIKE:
            return False
    return True
