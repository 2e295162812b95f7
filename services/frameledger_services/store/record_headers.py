"""The headers of a record as JSON, as `outbox` and `rejected_frames` store them."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable
from typing import Any


def headers_as_json(headers: Iterable[tuple[str, bytes | None]]) -> bytes:
    """Returns the headers of a record as they are stored."""
    return json.dumps([[name, _header_value(value)] for name, value in headers]).encode()


def headers_from_json(written: str) -> tuple[tuple[str, bytes | None], ...]:
    """Returns the headers that `headers_as_json` wrote. Raises ValueError for anything else, which only manual changes
    of rows cause."""
    try:
        pairs = json.loads(written)
        if not all(isinstance(pair, list) for pair in pairs):
            # A text of two letters would be read as a pair.
            raise TypeError("a header is a list of a name and a value")
        headers = tuple((name, _header_bytes(value)) for name, value in pairs)
        # No record has a name with half of a surrogate pair.
        "".join(name for name, _ in headers).encode()
    # Raised for JSON of another shape, and for JSON that is nested too deeply.
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        raise ValueError(f"not the headers of a record: {error!r}") from error
    return headers


def _header_value(value: bytes | None) -> str | dict[str, str] | None:
    if value is None:
        return None
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(value).decode("ascii")}
    return text if "\x00" not in text else {"base64": b64encode(value).decode("ascii")}


def _header_bytes(value: Any) -> bytes | None:
    if isinstance(value, dict):
        return b64decode(value["base64"])
    return None if value is None else str(value).encode()
