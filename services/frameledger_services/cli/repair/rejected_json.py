"""Dead letters as JSON."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from frameledger_services.cli.repair import positions
from frameledger_services.store.dead_letters import DeadLetter
from frameledger_services.store.outbox import headers_from_json


def summary(one: DeadLetter) -> dict[str, Any]:
    """Returns its position, times and error, and the size of its value."""
    return {
        "where": positions.written(one),
        "topic": one.topic,
        "partition": one.partition,
        "generation": one.generation,
        "offset": one.offset,
        "context_id": one.context_id,
        "logged_at": None if one.logged_at is None else one.logged_at.isoformat(),
        "recorded_at": one.recorded_at.isoformat(),
        "retried_at": None if one.retried_at is None else one.retried_at.isoformat(),
        "code": one.code,
        "error": one.error,
        "bytes": None if one.value is None else len(one.value),
    }


def whole(one: DeadLetter) -> dict[str, Any]:
    """Returns the summary with all bytes in base64, and as text where they are text."""
    headers = [
        {"name": name, "value_base64": _base64(value)} for name, value in headers_from_json(one.headers)
    ]
    return summary(one) | {
        "key_base64": _base64(one.key),
        "value_base64": _base64(one.value),
        "value": _text(one.value),
        "headers": headers,
    }


def _base64(value: bytes | None) -> str | None:
    return None if value is None else b64encode(value).decode("ascii")


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None
