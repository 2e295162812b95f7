"""The union of all frames, distinguished by `type`, and its JSON in both directions."""

import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated, Any, get_args

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from frameledger.frames.base import FROM_THE_WIRE, Frame, Speaker, Value
from frameledger.frames.calls import CallFrames
from frameledger.frames.context import ContextFrames
from frameledger.frames.life import LifeFrames
from frameledger.frames.response import ResponseFrames
from frameledger.frames.turn import TurnFrames
from frameledger.frames.unknown import UnknownFrame

KnownFrame = ContextFrames | ResponseFrames | TurnFrames | CallFrames | LifeFrames
"""A frame that this release can read: those that the modules of frames list at their end. `match frame.type` over it
ends with `assert_never`."""

AnyFrame = KnownFrame | UnknownFrame

FRAME_TYPES: dict[str, type[Frame]] = {
    frame_type.model_fields["type"].default: frame_type for frame_type in get_args(KnownFrame)
}
"""The class of each type, in the order of the frame reference."""


def types_said_by(*speakers: Speaker) -> tuple[str, ...]:
    """Returns the types of the frames that show the activity of one of these, in the order of `FRAME_TYPES`."""
    return tuple(name for name, frame_type in FRAME_TYPES.items() if frame_type.said_by in speakers)


# The parser caches the keys of objects for the next frame. By default it would also cache string values, but ids, times
# and words hardly ever recur, and caching them takes a tenth of the parsing time.
_adapter: TypeAdapter[KnownFrame] = TypeAdapter(
    Annotated[KnownFrame, Field(discriminator="type")], config=ConfigDict(cache_strings="keys")
)
# Bound here, since the adapter's own method of this name takes a quarter of a microsecond more per frame.
parse_frame: Callable[[bytes | str], KnownFrame] = _adapter.validator.validate_json
"""Returns the frame that this JSON encodes.

Plain pydantic: raises its `ValidationError` for JSON that is not a frame, for an unknown type or version, and for lone
surrogate escapes; accepts NaN, Infinity and numbers beyond a double inside free JSON. For bytes from outside use
`frameledger.record`.
"""


def frame_from_object(value: Mapping[str, Any]) -> KnownFrame:
    """Returns the frame that this parsed JSON encodes. Here text may contain a lone surrogate. Raises
    `ValidationError`."""
    return _adapter.validate_python(dict(value), context=FROM_THE_WIRE)


def encode_frame(frame: Frame) -> bytes:
    """Returns the frame as compact JSON in UTF-8: `type` first, then `id`, then everything that is required or differs
    from its default, then unknown fields. Equal frames give equal bytes, and these decode to an equal frame.

    A lone surrogate is written as its escape. Raises ValueError, with the frame's name, for values without a JSON form:
    NaN, Infinity, a Python object, a cycle.
    """
    try:
        wire = wire_object(frame)
        try:
            return _compact(wire).encode()
        except UnicodeEncodeError:
            return _ascii(wire).encode()
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{frame.name} cannot be written as JSON: {error}") from error


def wire_object(value: Value) -> dict[str, Any]:
    """Returns the fields of a frame, or of a value inside one, as they are written. Nested values are not converted."""
    # Read from where pydantic keeps them: as attributes, and with `model_extra`, it takes twice as long.
    fields, wire = value.__dict__, {}
    for name, key, always, default in _fields_on_the_wire(type(value)):
        field = fields[name]
        if always or (field is not default and field != default):
            wire[key] = field
    if value.__pydantic_extra__:
        wire.update(value.__pydantic_extra__)
    return wire


@cache
def _fields_on_the_wire(model: type[Value]) -> tuple[tuple[str, str, bool, Any], ...]:
    """Returns name, key, whether it is always written, and default of each field on the wire."""
    return tuple(
        (
            name,
            field.serialization_alias or name,
            name == "type" or field.is_required() or name in model.always_written,
            field.get_default(call_default_factory=True, validated_data={}),
        )
        for name, field in model.model_fields.items()
        if not field.exclude
    )


def _plain(value: Any) -> Any:
    """Convert a value that the JSON encoder does not know. Raises TypeError for a value that is not JSON."""
    if isinstance(value, Value):
        return wire_object(value)
    if isinstance(value, Mapping) and not isinstance(value, BaseModel):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


_compact = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain).encode
_ascii = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"), default=_plain).encode
