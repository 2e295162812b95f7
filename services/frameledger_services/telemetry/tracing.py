"""Creates spans and propagates them as `traceparent` with the frames that a piece of work publishes.

This module does not decide whether spans are recorded. Frameledger's own processes record them if an endpoint is set
(`provider`); a host program records them if it uses OpenTelemetry. Otherwise a span only propagates the `traceparent`
that it was given, at no cost, so that traces of other processes stay connected. OpenTelemetry is not imported then.

Spans have durations, ids and results, never the content of a conversation.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from types import TracebackType
from typing import Literal, Self
from uuid import UUID

Kind = Literal["internal", "client", "producer", "consumer"]
Value = str | bool | int | float | Sequence[str]

_handed_on: ContextVar[str | None] = ContextVar("frameledger_traceparent", default=None)


class Span:
    """A span that is not recorded.

    As a context manager it is the current span within the block and ends with the block.
    """

    is_recording = False
    """Whether attributes are recorded. Check it before computing expensive ones."""

    def __init__(self, traceparent: str | None) -> None:
        self.traceparent = traceparent
        """The value for the header of frames that this work publishes; None if there is no trace."""

    def set(self, name: str, value: Value | None) -> None:
        """Set an attribute, unless the value is None. Does nothing after `end`."""

    def fail(self, error_type: str) -> None:
        """Mark it as failed. `error_type` is a class or a code, not a message."""

    def end(self) -> None:
        """End it. Does nothing if it has ended."""

    def current(self) -> AbstractContextManager[None]:
        """Make it the current span within the block. Does not end it."""
        return _HandedOn(self.traceparent)

    def __enter__(self) -> Self:
        self._block = self.current()
        self._block.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # A cancellation is not an Exception and not a failure: it stops work.
        if isinstance(error, Exception):
            self.fail(type(error).__name__)
        self._block.__exit__(None, None, None)
        self.end()


class _HandedOn(AbstractContextManager[None]):
    """Passes a `traceparent` on within the block. Each publish enters one; a generator takes four times as long."""

    def __init__(self, traceparent: str | None) -> None:
        self._traceparent = traceparent

    def __enter__(self) -> None:
        self._token = _handed_on.set(self._traceparent)

    def __exit__(self, *_: object) -> None:
        _handed_on.reset(self._token)


NO_SPAN = Span(None)
"""The absent span. Never use it with `with`."""


def start(
    name: str,
    kind: Kind,
    *,
    parent: str | None = None,
    new_trace: bool = False,
    links: Sequence[str] = (),
    attributes: Mapping[str, Value | None] | None = None,
) -> Span:
    """Start a span. `parent` and `links` are `traceparent`s; without a parent it is a child of the current span.

    With `new_trace` it starts a trace, with a link to `parent`. The parent is propagated also if spans are not
    recorded.
    """
    if is_possible():
        from frameledger_services.telemetry import otel

        return otel.start(name, kind, parent, new_trace, links, attributes or {})
    return Span(_handed_on.get() if parent is None else parent)


def current_traceparent() -> str | None:
    """Returns the `traceparent` of the current span; None if there is none."""
    if is_possible():
        from frameledger_services.telemetry import otel

        return otel.current_traceparent()
    return _handed_on.get()


def of_stored(trace_id: str | None, frame_id: UUID | None) -> str | None:
    """Returns a `traceparent` that links to the trace of a stored frame. The span id is not stored, so it is derived
    from the frame's id."""
    return None if trace_id is None or frame_id is None else f"00-{trace_id}-{frame_id.hex[:16]}-01"


def is_possible() -> bool:
    """Returns whether this process has imported OpenTelemetry, so that spans can be recorded."""
    return "opentelemetry.trace" in sys.modules


def is_sampled(traceparent: str | None) -> bool:
    """Returns whether the sampled flag of a valid version 00 `traceparent` is set.

    A projector calls it for every frame, so it only checks whether the last digit is odd.
    """
    return traceparent is not None and traceparent[_LAST_DIGIT] in _ODD


_LAST_DIGIT = 54
_ODD = "13579bdf"
