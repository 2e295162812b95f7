"""Limits of a token: requests per second, with a burst, and concurrent streams.

It uses the generic cell rate algorithm, a token bucket stored as one number per caller: the time at which its bucket is
full again. (ASGI libraries count in windows, which admit twice the rate at their edges.)
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable

from starlette.datastructures import URL, Headers, QueryParams
from starlette.types import ASGIApp, Receive, Scope, Send

from frameledger_services.gateway import preferences, problems
from frameledger_services.gateway.access import caller, policy
from frameledger_services.gateway.media_types import EVENT_STREAM, NDJSON
from frameledger_services.gateway.problems import ProblemError
from frameledger_services.gateway.raw_paths import path_of
from frameledger_services.settings import Settings

_TAKEN = "frameledger.taken"

STREAM_RETRY_SECONDS = 5
"""The `Retry-After` of a stream beyond the limit: another stream has to end first."""


class Buckets:
    """A bucket of `burst` requests for each key, refilled with `per_sec` requests a second."""

    def __init__(self, per_sec: float, burst: int, *, now: Callable[[], float] = time.monotonic) -> None:
        self._interval = 1 / per_sec
        self._depth = burst / per_sec
        self._now = now
        self._full_at: dict[str, float] = {}

    def take(self, key: str) -> float:
        """Take one request out of the key's bucket. Returns 0; or, if the bucket is empty, takes none and returns the
        seconds until it has one."""
        now = self._now()
        full_at = max(self._full_at.get(key, now), now) + self._interval
        missing = full_at - now - self._depth
        # Sums of intervals are exact to nanoseconds only.
        if missing > 1e-9:
            return missing
        self._full_at[key] = full_at
        return 0.0


class RateLimit:
    """ASGI middleware: requests beyond the limits of their token get 429. Without tokens there are no limits."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._buckets = Buckets(settings.gateway_requests_per_sec, settings.gateway_burst)
        self._most_streams = settings.gateway_streams_per_token
        self._streams: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        key = caller.of(scope).token_id if scope["type"] == "http" else None
        if key is None:
            await self._app(scope, receive, send)
            return
        is_stream = _is_stream(scope)
        problem = self._problem(scope, key, is_stream=is_stream)
        if problem is not None:
            await problems.response(URL(scope=scope), problem)(scope, receive, send)
        elif not is_stream:
            await self._app(scope, receive, send)
        else:
            self._streams[key] += 1
            try:
                await self._app(scope, receive, send)
            finally:
                self._streams[key] -= 1

    def has_taken(self, scope: Scope) -> bool:
        """Take the request of this scope out of its caller's bucket, unless that was done before. Returns whether the
        bucket had room for it."""
        key = caller.of(scope).token_id
        if key is not None and not scope.get(_TAKEN):
            scope[_TAKEN] = self._buckets.take(key) == 0.0
            return bool(scope[_TAKEN])
        return True

    def _problem(self, scope: Scope, key: str, *, is_stream: bool) -> ProblemError | None:
        if not scope.get(_TAKEN) and (wait := self._buckets.take(key)):
            again = {"Retry-After": str(math.ceil(wait))}
            return ProblemError("too-many", "The token exceeds its request rate.", headers=again)
        if is_stream and self._streams[key] >= self._most_streams:
            again = {"Retry-After": str(STREAM_RETRY_SECONDS)}
            return ProblemError(
                "too-many",
                f"The token has {self._most_streams} open streams, which is its limit.",
                headers=again,
            )
        return None


def _is_stream(scope: Scope) -> bool:
    """Returns whether the response is sent piece by piece, at its client's pace."""
    path = path_of(scope)
    if path.endswith("/stream") or path in policy.NAMED_WITHIN or path.startswith(f"{policy.AG_UI}/"):
        return True
    if path.startswith(f"{policy.RESPONSES}/") and _asks_for(scope, "stream", "true"):
        return True
    headers = Headers(scope=scope)
    if preferences.prefers(headers, EVENT_STREAM):
        return True
    if scope["method"] != "GET" or not path.endswith("/frames"):
        return False
    # All frames of a conversation, as `frames` reads them.
    return preferences.prefers(headers, NDJSON) or _asks_for(scope, "format", "ndjson")


def _asks_for(scope: Scope, name: str, value: str) -> bool:
    """Returns whether the query has this value of a parameter, in any spelling that the route accepts."""
    query = scope["query_string"]
    return bool(query) and QueryParams(query).get(name) == value
