"""Headers of a request: how long to wait, the expected version, the idempotency key, and the accepted media types."""

from __future__ import annotations

import re
from collections.abc import Iterator

from starlette.datastructures import Headers
from starlette.requests import Request

from frameledger_services.gateway.media_types import JSON
from frameledger_services.gateway.problems import ProblemError

WAIT_SECONDS = 5.0
"""How long an append waits for its frames to be stored, by default."""

_WAIT = "wait"
_AT_ONCE = "respond-async"

_QUALITY = re.compile(r"0(?:\.\d{0,3})?|1(?:\.0{0,3})?", re.ASCII)
_TAG = re.compile(r'(?:W/)?"(\d{1,18})(?:\.[\w.]*)?"', re.ASCII)
"""A weak tag is accepted too, although RFC 9110 (13.1.1) lets it match nothing: proxies that compress a context make
its tag weak, and the fold compares the version in the tag, not bytes."""


def wait_seconds(request: Request, most: float, *, can_be_async: bool = True) -> float:
    """Returns the seconds to wait for published frames: those of `wait`, else 0 for `respond-async` if the answer
    `can_be_async`. Ignores preferences that it cannot read or honour (RFC 7240)."""
    default = WAIT_SECONDS
    for name, value in _preferences(request):
        if name == _AT_ONCE and can_be_async:
            # Together with `wait`, `respond-async` applies only after that time (RFC 7240, 4.3).
            default = 0.0
        if name == _WAIT:
            return min(float(value), most)
    return min(default, most)


def applied(request: Request, *, is_stored: bool) -> dict[str, str]:
    """Returns the header that names the applied preferences of a request (RFC 7240, 3), if there are any. With
    `is_stored` the response has the outcomes of the frames, so it was not asynchronous."""
    honoured = {name for name, _ in _preferences(request) if not (is_stored and name == _AT_ONCE)}
    return {"Preference-Applied": ", ".join(sorted(honoured))} if honoured else {}


def _preferences(request: Request) -> Iterator[tuple[str, str]]:
    """Yields the known preferences of a request, with the value of `wait`, which is digits."""
    for preference in ",".join(request.headers.getlist("prefer")).split(","):
        name, _, value = (part.strip().lower() for part in preference.partition(";")[0].partition("="))
        seconds = value.strip('"')
        if name == _AT_ONCE or (name == _WAIT and seconds.isascii() and seconds.isdigit()):
            yield name, seconds


def prefers(headers: Headers, media_type: str) -> bool:
    """Returns whether `Accept` names this media type, with at least the quality of JSON (RFC 9110, 12.5.1)."""
    accepted = ",".join(headers.getlist("accept"))
    qualities = dict(_quality_of(one) for one in accepted.split(","))
    main_type = JSON.partition("/")[0]
    of_json = next((qualities[one] for one in (JSON, f"{main_type}/*", "*/*") if one in qualities), 0.0)
    return qualities.get(media_type, 0.0) > 0 and qualities[media_type] >= of_json


def _quality_of(media_range: str) -> tuple[str, float]:
    name, *parameters = (part.strip().lower() for part in media_range.split(";"))
    written = next((value for part in parameters if (value := part.removeprefix("q=")) != part), "1")
    return name, float(written) if _QUALITY.fullmatch(written) else 1.0


def expected_version(request: Request) -> int | None:
    """Returns the version that `If-Match` expects, or None without the header."""
    written = request.headers.get("if-match")
    if written is None:
        return None
    match = _TAG.fullmatch(written.strip())
    if match is None:
        raise ProblemError("bad-parameter", 'If-Match must be one entity tag, such as "41".')
    return int(match[1])


def idempotency_key(request: Request) -> str | None:
    """Returns the `Idempotency-Key`, or None without the header."""
    written = request.headers.get("idempotency-key")
    if written is None:
        return None
    key = written.strip()
    if len(key) > 1 and key[0] == key[-1] == '"':
        key = key[1:-1]
    if not 0 < len(key) <= 255:
        raise ProblemError("bad-parameter", "Idempotency-Key must have 1 to 255 characters.")
    return key
