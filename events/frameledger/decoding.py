"""Decodes the value of a record to a frame. Every frame from outside passes through this module."""

import json
from typing import Any

from pydantic import ValidationError

from frameledger.decode_error import DecodeError, excerpt
from frameledger.frames import (
    FRAME_TYPES,
    AnyFrame,
    FunctionCallResultFrame,
    LLMThoughtTextFrame,
    TextFrame,
    UnknownFrame,
    parse_frame,
)
from frameledger.strict_json import is_surely_strict, loads
from frameledger.surrogates import write_out_halves
from frameledger.upcasters import upcast

MAX_VALUE_BYTES = 8 * 1024 * 1024
"""The maximum size of a value that is read or published."""

MAX_ID_BYTES = 255

_BACKSLASH = ord("\\")
_ID_NAMES = frozenset(name for frame_type in FRAME_TYPES.values() for name in frame_type.id_fields)


def decode(value: bytes) -> AnyFrame:
    """Returns the frame that these bytes encode.

    A type, or a version of a type, that is unknown to this release results in an `UnknownFrame`. Old names and forms
    are read as their current equivalents, and an `id` that is a number as no id. No text has lone surrogates, except
    the `text` of frames that stream (`TextFrame` and its subclasses, `LLMThoughtTextFrame`), whose other half may
    arrive with the next frame; in other places a half becomes the six characters of its escape.

    Raises only `DecodeError`, for bytes that are not a frame. Takes time in proportion to their number.
    """
    if len(value) > MAX_VALUE_BYTES:
        raise DecodeError("too_large", f"the value has {len(value)} bytes; {MAX_VALUE_BYTES} are allowed")
    try:
        frame = parse_frame(value)
    except ValidationError:
        pass
    else:
        # The models have validated every value, unless a field accepts any JSON or a name occurred twice, in which case
        # they saw only the last value. An object without nested objects has at most one name more than commas, so with
        # one comma less than there are fields each name occurred once. The attributes are those behind `model_extra`
        # and `model_fields_set`, which as properties take 0.1 us each; a function for this would take 0.05.
        extra = frame.__pydantic_extra__
        may_hide_something = (
            extra
            or frame.carries_json
            or value.rfind(b"{") > 0
            or value.count(b",") != len(frame.__pydantic_fields_set__) - 1
        )
        if may_hide_something and not is_surely_strict(value):
            loads(value)
        if extra and _has_error_for_result(frame):
            return _decode_carefully(value)
        # The models limit the characters of ids, which are bytes in ASCII without escapes, and NUL can only be escaped.
        if _BACKSLASH in value or not value.isascii():
            _check_ids(frame)
        return frame
    return _decode_carefully(value)


def _has_error_for_result(frame: AnyFrame) -> bool:
    """Whether it is a result in an old form that the models accept: with `error` and a `result` of null."""
    extra = frame.__pydantic_extra__ or {}
    return isinstance(frame, FunctionCallResultFrame) and frame.result is None and "error" in extra


def _decode_carefully(value: bytes) -> AnyFrame:
    """Returns the frame of bytes that the models do not read directly: an old form, an unknown type, lone surrogates.
    Raises `DecodeError` if they are not a frame."""
    if not value:
        raise DecodeError("empty", "the value has no bytes; a frame is a JSON object")
    as_sent = loads(value)
    if not isinstance(as_sent, dict):
        raise DecodeError("not_an_object", f"the value is {_kind(as_sent)}; a frame is a JSON object")
    written_out = write_out_halves(value)
    has_halves = written_out != value
    storable = loads(written_out) if has_halves else as_sent
    fields = upcast(storable)
    frame = _frame(fields, written_out if fields is storable else _as_json(fields))
    _check_ids(frame)
    if has_halves and isinstance(frame, TextFrame | LLMThoughtTextFrame):
        return frame.model_copy(update={"text": as_sent["text"]})
    return frame


def _frame(fields: dict[str, Any], text: str | bytes) -> AnyFrame:
    """Returns the frame with these fields; `text` is their JSON."""
    frame_type, version = fields.get("type"), fields.get("v", 1)
    if not isinstance(frame_type, str):
        raise DecodeError("no_type", 'the object has no "type", or one that is not text')
    if type(version) is not int or version < 1:
        raise DecodeError("bad_version", f'"v" of {excerpt(frame_type)} is not an integer of at least 1')
    known = FRAME_TYPES.get(frame_type)
    try:
        if known is not None and version <= known.model_fields["v"].default:
            return parse_frame(text)
        return UnknownFrame.model_validate_json(text)
    except ValidationError as error:
        problem = _problem(error, frame_type)
    # Outside the handler: the validation error keeps the value alive, and prints parts of it.
    raise problem


def _problem(error: ValidationError, frame_type: str) -> DecodeError:
    """Returns the first problem, with the path of the field."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    path = [str(part) for part in first["loc"] if part != frame_type]
    # The name of an unknown type comes from the publisher, and may be long.
    where = ".".join([frame_type if frame_type in FRAME_TYPES else "a frame of an unknown type", *path])
    if path and path[-1] in _ID_NAMES and first["type"] != "missing":
        return DecodeError("bad_id", f"{where}: an id is text of 1 to {MAX_ID_BYTES} bytes without NUL")
    return DecodeError("invalid_field", f"{where}: {first['msg']}")


def _check_ids(frame: AnyFrame) -> None:
    for name in frame.id_fields:
        id_ = getattr(frame, name)
        if id_ is not None and ("\x00" in id_ or len(id_.encode()) > MAX_ID_BYTES):
            raise DecodeError(
                "bad_id", f"{frame.type}.{name}: an id is text of 1 to {MAX_ID_BYTES} bytes without NUL"
            )


_as_json = json.JSONEncoder(ensure_ascii=False).encode


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case str():
            return "a string"
        case list():
            return "an array"
        case _:
            return "a number"
