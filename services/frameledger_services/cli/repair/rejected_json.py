"""Dead letters as JSON."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from frameledger_services.cli.repair import positions
from frameledger_services.store.dead_letters import DeadLetter


def summary(letter: DeadLetter) -> dict[str, Any]:
    """Returns its position, times and error, and the size of its value."""
    return {
        "where": positions.written(letter),
        "topic": letter.topic,
        "partition": letter.partition,
        "generation": letter.generation,
        "offset": letter.offset,
        "context_id": letter.context_id,
        "logged_at": None if letter.logged_at is None else letter.logged_at.isoformat(),
        "recorded_at": letter.recorded_at.isoformat(),
        "retried_at": None if letter.retried_at is None else letter.retried_at.isoformat(),
        "code": letter.code,
        "error": letter.error,
        "bytes": None if letter.value is None else len(letter.value),
    }


def in_full(letter: DeadLetter) -> dict[str, Any]:
    """Returns the summary with all bytes in base64, and as text where they are text. Headers that are not those of a
    record are null."""
    headers = letter.record_headers
    return summary(letter) | {
        "key_base64": _base64(letter.key),
        "value_base64": _base64(letter.value),
        "value": _text(letter.value),
        "headers": None
        if headers is None
        else [{"name": name, "value_base64": _base64(value)} for name, value in headers],
    }


def _base64(value: bytes | None) -> str | None:
    return None if value is None else b64encode(value).decode("ascii")


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None
