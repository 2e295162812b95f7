"""Decodes effects. Any client may write to their topics, so every field is checked for values that the database
refuses."""

from __future__ import annotations

from typing import Any, TypeVar

import orjson
from pydantic import TypeAdapter, ValidationError

from frameledger import effects
from frameledger.errors import RefusedError

E = TypeVar("E", effects.RunInference, effects.CallFunction, effects.Cancel)

_LARGEST = {"version": 2**63 - 1, "requested_version": 2**63 - 1, "ordinal": 2**31 - 1}


class NoEffectError(RefusedError, ValueError):
    """A record on a topic of effects is not an effect of the expected kind; the message has the reason.

    Remedy: None is needed: the record is skipped. Find out which other program writes to that topic.
    """


def decode_effect(kind: type[E], value: bytes | None) -> E:
    """Returns the effect that these bytes encode. Raises `NoEffectError`, and nothing else."""
    try:
        fields = orjson.loads(value or b"")
    except orjson.JSONDecodeError as error:
        raise NoEffectError(f"no JSON: {error}") from error
    if not isinstance(fields, dict) or fields.get("effect") != kind.effect:
        raise NoEffectError(f"no {kind.effect}")
    known = {name: value for name, value in fields.items() if name in kind.__slots__}
    try:
        effect = _ADAPTERS[kind].validate_json(orjson.dumps(_DEFAULTS | known), strict=True)
    except orjson.JSONEncodeError as error:
        # orjson reads JSON that is nested more deeply than it can write.
        raise NoEffectError(f"no {kind.effect}: {error}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise NoEffectError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    for name in kind.__slots__:
        problem = _problem(name, getattr(effect, name))
        if problem is not None:
            raise NoEffectError(f"{name}: {problem}")
    return effect  # type: ignore[no-any-return]  # the adapter is of this kind


def _problem(name: str, value: Any) -> str | None:
    """Returns why the database would refuse a field, or None. A function's name may be any text, because it is not a
    key."""
    if isinstance(value, str) and name != "function_name":
        return "an id is 1 to 255 bytes without NUL" if not _is_id(value) else None
    if isinstance(value, int) and not 0 <= value <= _LARGEST[name]:
        return f"{value} is out of bounds"
    return None


def _is_id(text: str) -> bool:
    return 1 <= len(text.encode()) <= 255 and "\0" not in text


# `to_wire` omits a `group_id` of None. Unknown fields are ignored.
_DEFAULTS = {"group_id": None}
_ADAPTERS: dict[type, TypeAdapter[Any]] = {
    kind: TypeAdapter(kind) for kind in (effects.RunInference, effects.CallFunction, effects.Cancel)
}
