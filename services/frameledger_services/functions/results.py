"""Results of functions as JSON, for the same types as arguments: models, dataclasses, dates."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any
from uuid import UUID

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

_WRITTEN = (BaseModel, date, time, timedelta, Decimal, Enum, UUID, PurePath)
"""Types whose values are written as pydantic writes them. No generators, which may be infinite. No sets outside a
model: they have no order, so the same result would be written differently each time."""


def as_json(result: Any) -> Any:
    """Returns a result as a JSON value. Raises whatever an object of the application raises while it is written, and
    ValueError or TypeError for values without a JSON form: other objects, bytes, sets, NaN.
    """
    return json.loads(json.dumps(_with_text_keys(result), default=_written, allow_nan=False))


def _with_text_keys(value: Any) -> Any:
    """Returns a value whose dicts have text for keys of these types: `json` calls `_written` only for values."""
    match value:
        case dict():
            return {_text_key(key): _with_text_keys(one) for key, one in value.items()}
        case list() | tuple():
            return [_with_text_keys(one) for one in value]
    return value


def _text_key(key: Any) -> Any:
    if isinstance(key, _WRITTEN) and not isinstance(key, str | int):
        return next(iter(to_jsonable_python({key: None})))
    return key


def _written(value: Any) -> Any:
    if isinstance(value, Mapping):
        return _with_text_keys(dict(value))
    if isinstance(value, _WRITTEN) or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
        return to_jsonable_python(value)
    raise TypeError(f"{type(value).__name__} is not JSON")
