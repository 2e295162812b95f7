"""A deep copy of a JSON value, as the values of the core take in what they are given."""

import json
from collections.abc import Mapping
from typing import Any

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
    raise TypeError(f"the key {key!r} of a mapping is no text; JSON has no other keys")


# Made once: `json.dumps` makes an encoder for each call, which takes as long as a short message.
_compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=dict).encode


def size(value: Any) -> int:
    """The bytes of a value as compact JSON."""
    return len(_compact(value).encode("utf-8", "surrogatepass"))
