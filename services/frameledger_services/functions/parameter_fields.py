"""The parameters of a function as fields of a pydantic model."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import Field
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined


def field_of(parameter: inspect.Parameter, hint: Any, documented: str | None) -> tuple[Any, Any]:
    """Returns the type and the `Field` of a parameter. `hint` is None if it has no annotation, and `documented` is its
    description in the docstring."""
    annotation, default = Any if hint is None else hint, parameter.default
    if _schema_default(default, getattr(annotation, "__metadata__", ())) is None and not _accepts_none(
        annotation
    ):
        # The schema contains this default, so the model may pass it.
        annotation = _optional(annotation)
    if isinstance(default, FieldInfo):
        annotation, default = Annotated[annotation, default], parameter.empty
    default = ... if default is parameter.empty else default
    extras = getattr(annotation, "__metadata__", ())
    alias = parameter.name
    if any(getattr(extra, "description", None) for extra in extras):
        # A description in `Field` here would override that one.
        return annotation, Field(default, alias=alias)
    description = documented or next(filter(None, map(_text, extras)), None)
    return annotation, Field(default, alias=alias, description=description)


def _schema_default(default: Any, extras: Iterable[object]) -> Any:
    """Returns the default for the schema: that of a `Field` counts too, as the default or within `Annotated`."""
    if default is inspect.Parameter.empty:
        defaults = [extra.default for extra in extras if isinstance(extra, FieldInfo)]
        return next((one for one in reversed(defaults) if one is not PydanticUndefined), default)
    return default.default if isinstance(default, FieldInfo) else default


def _text(extra: object) -> str | None:
    """Returns the text of an element of `Annotated`: the element itself, or the documentation of PEP 727's `Doc`."""
    text = extra if isinstance(extra, str) else getattr(extra, "documentation", None)
    return text if isinstance(text, str) else None


def _accepts_none(hint: Any) -> bool:
    """Returns whether this type includes None, as far as can be determined."""
    if hint in (None, NoneType, Any, object):
        return True
    match get_origin(hint):
        case value if value is Literal:
            return None in get_args(hint)
        case value if value is Annotated:
            return _accepts_none(get_args(hint)[0])
        case value if value in (Union, UnionType):
            return any(map(_accepts_none, get_args(hint)))
    return False


def _optional(hint: Any) -> Any:
    if get_origin(hint) is Annotated:
        # The metadata of the parameter stays outside, where its description is found.
        return Annotated[(Union[hint.__origin__, None], *hint.__metadata__)]  # noqa: UP007  # it may be a text
    return Union[hint, None]  # noqa: UP007  # as above
