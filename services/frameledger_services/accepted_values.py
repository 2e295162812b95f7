"""The values that a field of a model accepts, as text for an error message about another value."""

import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, MaxLen, MinLen
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

_NOUNS: Mapping[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    SecretStr: "text",
    dict: "a JSON object",
    Mapping: "a JSON object",
    Path: "a path",
}


def accepted_values(model: type[BaseModel], name: str) -> str:
    """Returns what a field accepts, such as "a whole number from 1 to 65535" or "debug, info or error"."""
    field = model.model_fields[name]
    of_type, metadata = _unwrapped(field.annotation, field.metadata)
    if get_origin(of_type) is Literal:
        *others, last = map(str, get_args(of_type))
        return f"{', '.join(others)} or {last}" if others else last
    noun = _NOUNS[get_origin(of_type) or of_type]
    limits = {type(limit): limit for limit in metadata}
    return noun + (_length(limits) if noun == "text" else _range(limits))


def _unwrapped(annotation: Any, metadata: list[Any]) -> tuple[Any, list[Any]]:
    """Returns the type itself, without `Annotated` and `| None`, and its limits."""
    if get_origin(annotation) in (Union, types.UnionType):
        [annotation] = [one for one in get_args(annotation) if one is not type(None)]
        return _unwrapped(annotation, metadata)
    if get_origin(annotation) is Annotated:
        inner, *around = get_args(annotation)
        return _unwrapped(inner, [*metadata, *_limits(around)])
    return annotation, metadata


def _limits(around: list[Any]) -> Iterator[Any]:
    for annotation in around:
        if isinstance(annotation, FieldInfo):
            yield from annotation.metadata
        else:
            yield annotation


def _range(limits: Mapping[type, Any]) -> str:
    at_least, above, at_most = limits.get(Ge), limits.get(Gt), limits.get(Le)
    if at_least and at_most:
        return f" from {at_least.ge:.12g} to {at_most.le:.12g}"
    if at_least:
        return f" of at least {at_least.ge:.12g}"
    if above:
        return f" above {above.gt:.12g}" + (f", at most {at_most.le:.12g}" if at_most else "")
    return ""


def _length(limits: Mapping[type, Any]) -> str:
    least, most = limits.get(MinLen), limits.get(MaxLen)
    if most:
        return f" of {least.min_length if least else 0} to {most.max_length} characters"
    return " that is not empty" if least else ""
