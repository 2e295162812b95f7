"""The gateway's problems in the format of OpenAI's errors, on the paths of that API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
"""By status. Others are `invalid_request_error` below 500, and `server_error` from 500 on."""

CODES = {
    "unauthorised": "invalid_api_key",
    "no-such-model": "model_not_found",
    "too-many": "rate_limit_exceeded",
}
"""OpenAI's codes by the problem's word, where they differ."""


def written(word: str, status: int, detail: str, members: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a problem as the body of OpenAI's error. `members` may name the parameter (`param`) and a `code`."""
    kind = TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    return {
        "error": {
            "message": detail,
            "type": kind,
            "param": members.get("param"),
            "code": members.get("code", CODES.get(word, word.replace("-", "_"))),
        }
    }
