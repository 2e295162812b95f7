"""Numbers that Python reads and writes as JSON although JSON does not have them."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from frameledger import strict_json
from frameledger.decode_error import DecodeError


def no_constant(name: str) -> NoReturn:
    """Raise ValueError: a `parse_constant` of `json`, which takes NaN and both infinities otherwise."""
    raise ValueError(f"{name} is not a JSON number")


def check_json(value: Any) -> None:
    """Raise ValueError unless this is a value that a frame can contain: no Python objects, no NaN or infinity, and no
    number beyond a double."""
    try:
        strict_json.loads(json.dumps(value, allow_nan=False).encode())
    except (TypeError, RecursionError, DecodeError) as error:
        raise ValueError(str(error)) from error
