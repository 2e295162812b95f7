"""A gateway's problem responses (RFC 9457) as the errors that a `Client` raises."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from frameledger.errors import FrameledgerError
from frameledger_services.client.errors import GatewayAnswerError, GatewayUnavailableError, NotPermittedError
from frameledger_services.client.http.answers import Answer, reading
from frameledger_services.client.reading import ContextErasedError, NoSuchContextError
from frameledger_services.store.schema import SchemaError

MEDIA_TYPE = "application/problem+json"

AGAIN = frozenset((408, 429, 502, 503, 504))
"""Statuses after which a request is repeated: those of a gateway, and of a proxy in front of it."""

MAX_SHOWN = 200

_ABOUT_FRAMES = frozenset(("bad-frame", "bad-parameter", "too-large", "unsupported-media-type"))

_WITHOUT_BODY = {
    401: "unauthorised",
    403: "forbidden",
    404: "no-such-context",
    410: "erased",
    429: "too-many",
}
"""The problems of responses to HEAD requests, which have no body, by their status."""


class GatewayProblemError(GatewayAnswerError):
    """The gateway rejects a request with one of its problem responses.

    Remedy: See the gateway's page `/problems/` of its kind.
    """

    def __init__(self, word: str, problem: Mapping[str, Any]) -> None:
        super().__init__(str(problem.get("detail") or problem.get("title") or word))
        self.word = word
        self.problem = problem


def problem_of(response: Answer) -> dict[str, Any]:
    """Returns the problem in a response; empty if it has none."""
    if response.headers.get("content-type", "").partition(";")[0] != MEDIA_TYPE:
        return {}
    if not response.content:
        return {"type": _WITHOUT_BODY.get(response.status, "")}
    try:
        problem = json.loads(response.content)
    except ValueError:
        return {}
    return problem if isinstance(problem, dict) else {}


def error_of(response: Answer, url: str, context_id: str | None) -> FrameledgerError:
    """Returns the error for an unsuccessful response. Raises `GatewayAnswerError` for an incomplete one."""
    problem = problem_of(response)
    word = str(problem.get("type", "")).rpartition("/")[2]
    detail = str(problem.get("detail") or problem.get("title") or f"status {response.status}")
    match word:
        case "erased" if receipt := problem.get("receipt"):
            with reading():
                erased_at, why = datetime.fromisoformat(receipt["erased_at"]), receipt["why"]
                # For a token that redacts content it is an object.
                reason = why if isinstance(why, str) else None
                return ContextErasedError(context_id or "", receipt["version"], erased_at, reason)
        case "no-such-context" | "erased":
            return NoSuchContextError(context_id or "")
        case "unauthorised":
            return NotPermittedError(
                f"{url} requires a valid token: {detail.rstrip('.')}. "
                "Set FRAMELEDGER_TOKEN to a token of `frameledger token new`."
            )
        case "forbidden":
            return NotPermittedError(f"{url} rejects the request. {detail}")
        case "wrong-schema":
            return SchemaError(None, f"{url}: {detail}")
        case "too-many":
            return GatewayUnavailableError(
                f"{url} accepts no more requests for now: {detail}", _retry_after(response)
            )
    if response.status in AGAIN:
        return GatewayUnavailableError(f"{url}: {detail}", _retry_after(response))
    if word and word != "internal-error":
        return GatewayProblemError(word, problem)
    status = response.status
    return GatewayAnswerError(f"{url} answered {status}{_detail(response, problem)}", status)


def is_about_frames(error: GatewayAnswerError) -> bool:
    """Returns whether a response to an append rejects the frames themselves, so that sending them again would be
    rejected too. A 413 may come from a proxy in front of the gateway. Any other response says nothing about the frames.
    """
    if isinstance(error, GatewayProblemError):
        return error.word in _ABOUT_FRAMES
    return error.status == 413


def _detail(response: Answer, problem: Mapping[str, Any]) -> str:
    if problem:
        return f": {problem.get('detail')} Its log says more."
    if "location" in response.headers:
        return f", which leads to {response.headers['location']}: is that its address?"
    kind = response.headers.get("content-type", "nothing")
    return f" with {kind[:MAX_SHOWN]}: is that the address of a gateway?"


def _retry_after(response: Answer) -> float:
    written = response.headers.get("retry-after", "")
    return float(written) if written.isascii() and written.isdigit() else 0.0
