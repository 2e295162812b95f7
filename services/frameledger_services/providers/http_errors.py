"""Error responses of HTTP APIs, converted to `ProviderError`s."""

from __future__ import annotations

import os
import re
import socket
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from frameledger_services.providers.errors import (
    ProviderError,
    ProviderRefusedError,
    ProviderUnavailableError,
    RefusedContextError,
)

MALFORMED = (ValueError, RecursionError)
"""Errors of reading a stream whose event is not JSON, is too deep, has a number with too many digits, or does not fit
into a frame. Python has no narrower class for all of them."""

_STATUS = re.compile(r"[45][0-9]{2}")

_LONGEST = 500
"""Maximum characters of the provider's message in our errors."""

# The provider rejects the client, not the request: no retry succeeds.
_REFUSED = {
    401: "it rejected the key",
    402: "the account has no quota left",
    403: "the key has no permission for this",
    404: "the model or the address does not exist",
    405: "the address does not accept such requests",
}
_NO_KEY = "it requires a key, and none is set"
# Other statuses below 500 that are temporary.
_TRANSIENT = frozenset({408, 409, 425, 429})

# OpenAI also sends 429 for these, and they are not temporary.
_NO_QUOTA = frozenset({"insufficient_quota", "billing_error", "billing_hard_limit_reached"})

# Groq sends 400 with this if its model has written an invalid call; the next attempt writes another.
_NOT_READABLE = frozenset({"tool_use_failed"})

# OpenAI's and Anthropic's error codes as a status, for errors that come without one.
_STATUS_OF = {
    "invalid_api_key": 401,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "model_not_found": 404,
    "invalid_request_error": 400,
    "context_length_exceeded": 400,
    "content_policy_violation": 400,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "timeout_error": 504,
    "overloaded_error": 529,
} | dict.fromkeys(_NO_QUOTA, 402)


def why_not_connected(error: BaseException) -> str:
    """Returns the reason that the operating system or TLS gave for a connection that failed; empty if neither did.

    Without addresses, which do not belong on the log of a conversation.
    """
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    match error:
        case ssl.SSLCertVerificationError():
            return f"the certificate is not trusted, {error.verify_message}"
        case ssl.SSLError():
            return error.reason or ""
        case socket.gaierror():
            return error.strerror or ""
        case OSError(errno=int(number)):
            return os.strerror(number)
    return ""


def of_status(
    provider: str,
    status: int,
    *,
    message: str,
    headers: Mapping[str, str] | None = None,
    kinds: tuple[object, ...] = (),
    secret: str | None = None,
    has_key: bool = True,
    settings: str = "",
) -> ProviderError:
    """Returns the error for a response with this status. `kinds` are the provider's error codes and types.

    The provider's message is passed on, without `secret`, unless it refuses our credentials: then it is replaced, and
    `settings` names the settings to check.
    """
    context = f"{provider} answered with {status}"
    if status == 401 and not has_key:
        return _refusal(context, _NO_KEY, settings)
    return _error(context, status, message, headers or {}, kinds, secret, settings)


def in_the_stream(
    provider: str, *, message: str, kinds: tuple[object, ...], secret: str | None = None
) -> ProviderError:
    """Returns the error that a provider reports within a stream: by its kinds; unknown ones are transient."""
    status = next(filter(None, map(_status, kinds)), None)
    if status is None:
        status = next((_STATUS_OF[kind] for kind in _texts(kinds) if kind in _STATUS_OF), 500)
    return _error(f"{provider} ended its answer with an error", status, message, {}, kinds, secret)


def _status(kind: object) -> int | None:
    """Returns the status that a kind names, as a number or, from Azure, as text; None if it names none."""
    match kind:
        case int() if 400 <= kind < 600:
            return kind
        case str() if _STATUS.fullmatch(kind):
            return int(kind)
    return None


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Returns seconds to wait, by `retry-after-ms` or `retry-after` (seconds or a date); None without either."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            secs = float(value) / unit
        except ValueError:
            secs = _until(value)
        if 0 <= secs < float("inf"):
            return secs
    return None


def _refusal(context: str, why: str, settings: str) -> ProviderRefusedError:
    return ProviderRefusedError(f"{context}: {why}." + (f" See {settings}." if settings else ""))


def _error(
    context: str,
    status: int,
    message: str,
    headers: Mapping[str, str],
    kinds: tuple[object, ...],
    secret: str | None,
    settings: str = "",
) -> ProviderError:
    refused = _REFUSED[402] if _NO_QUOTA.intersection(_texts(kinds)) else _REFUSED.get(status)
    if refused is not None:
        # The provider's sentences quote keys, projects and organisations.
        return _refusal(context, refused, settings)
    shown = f"{context}: {_shown(message, secret)}"
    if status in _TRANSIENT or status >= 500 or _NOT_READABLE.intersection(_texts(kinds)):
        return ProviderUnavailableError(shown, code=_CODES.get(status), retry_after=retry_after(headers))
    return RefusedContextError(shown)


_CODES = {429: "rate_limited", 529: "overloaded"}


def _texts(kinds: tuple[object, ...]) -> list[str]:
    return [kind for kind in kinds if isinstance(kind, str)]


def _shown(message: str, secret: str | None) -> str:
    if secret:
        message = message.replace(secret, "[key]")
    message = " ".join(message.split())
    return message if len(message) <= _LONGEST else f"{message[:_LONGEST]}..."


def _until(date: str) -> float:
    try:
        then = parsedate_to_datetime(date)
    except (ValueError, OverflowError):  # the latter for a year or a minute of many digits
        return -1.0
    if then.tzinfo is None:
        then = then.replace(tzinfo=UTC)
    return max(0.0, (then - datetime.now(UTC)).total_seconds())
