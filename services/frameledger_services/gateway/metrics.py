"""Metrics of the gateway: requests by route, and live streams."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from frameledger_services.telemetry import metrics as listed
from frameledger_services.telemetry.metrics_recorder import NO_METRICS, Metrics

NO_ROUTE = ""
"""The route of requests that were rejected before routing or have an unknown path."""

_FOUND = "frameledger.found"

StreamEnd = Literal["ended", "left", "slow", "closing"]


class RequestMetrics:
    """The outermost ASGI middleware, so that rejected requests are counted too."""

    def __init__(self, app: ASGIApp, metrics: Metrics, routes: Sequence[BaseRoute]) -> None:
        self._app = app
        self._metrics = metrics
        metrics.declare(listed.HTTP_DURATION)
        self._templates: Mapping[object, str] = {
            route.endpoint: route.path for route in reversed(routes) if isinstance(route, Route)
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, found = time.perf_counter(), _Found()

        async def noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                found.status = message["status"]
            await send(message)

        try:
            await self._app({**scope, _FOUND: found}, receive, noted)
        finally:
            last = found.route
            route = last if isinstance(last, str) else self._templates.get(last, NO_ROUTE)
            duration = self._metrics.histogram(
                listed.HTTP_DURATION, route, scope["method"], str(found.status)
            )
            duration.observe(time.perf_counter() - began)


@dataclass(slots=True)
class _Found:
    """The route and the status of a request, as far as they are known when it ends."""

    route: object = NO_ROUTE
    """The template of its route, or the endpoint that the router found."""

    status: int = 500


def note_template(scope: Scope, template: str, status: int) -> None:
    """Record the route of a request that the router does not resolve, and the status of its response, which may be sent
    without ASGI."""
    if _FOUND in scope:
        scope[_FOUND].route = template
        scope[_FOUND].status = status


class NoteRoute:
    """The innermost ASGI middleware: records the endpoint that the router found."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        try:
            await self._app(scope, receive, send)
        finally:
            if _FOUND in scope:
                scope[_FOUND].route = scope.get("endpoint")


class StreamMetrics:
    """Metrics of the live streams of one hub."""

    def __init__(self, metrics: Metrics = NO_METRICS) -> None:
        self._metrics = metrics
        self._frames = metrics.counter(listed.GATEWAY_STREAM_FRAMES)
        self._behind = metrics.gauge(listed.GATEWAY_STREAM_BEHIND)
        reasons: tuple[StreamEnd, ...] = ("ended", "left", "slow", "closing")
        self._closed = {reason: metrics.counter(listed.GATEWAY_STREAMS_CLOSED, reason) for reason in reasons}

    def watch(self, streams: Callable[[], int]) -> None:
        """Expose the number of open streams."""
        self._metrics.watch(listed.GATEWAY_STREAMS, lambda: {(): streams()})

    def sent(self, frames: int, behind: int) -> None:
        """Count the frames of one read. `behind` is the largest backlog of a stream that received some."""
        self._frames.inc(frames)
        self._behind.set(behind)

    def closed(self, why: StreamEnd) -> None:
        """Count a closed stream."""
        self._closed[why].inc()
