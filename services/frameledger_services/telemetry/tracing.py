"""Spans: made where work is done, and handed on as `traceparent` with every frame that follows from it.

Where a trace is recorded is not decided here. In a process of ours it is recorded if an endpoint is set (`provider`);
in somebody else's program by that program, if it uses OpenTelemetry. Everywhere else a span is a note of the
`traceparent` that it was given, which costs nothing and keeps a trace whole that others record: OpenTelemetry is not
imported then.

A span says how long, of what and how it ended; never a word of what was said.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Literal, Self
from uuid import UUID

Kind = Literal["internal", "client", "producer", "consumer"]
Value = str | bool | int | float | Sequence[str]

_handed_on: ContextVar[str | None] = ContextVar("frameledger_traceparent", default=None)


class Span:
    """A span that nobody records.

    As a context manager it is the current one meanwhile, and ends with the block.
    """

    is_recording = False
    """Whether attributes reach anybody. Ask before making some that cost."""

    def __init__(self, traceparent: str | None) -> None:
        self.traceparent = traceparent
        """For the header of what follows from this; None if there is no trace."""

    def set(self, name: str, value: Value | None) -> None:
        """Set an attribute; None sets nothing. After `end` it does nothing."""

    def fail(self, error_type: str) -> None:
        """Note that it ends in an error, of this kind: a class, a code, but no sentence."""

    def end(self) -> None:
        """End it now. A second time does nothing."""

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make it the current span for a block, which does not end it."""
        token = _handed_on.set(self.traceparent)
        try:
            yield
        finally:
            _handed_on.reset(token)

    def __enter__(self) -> Self:
        self._block = self.current()
        self._block.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # A cancellation, which is no Exception, is how work is stopped.
        if isinstance(error, Exception):
            self.fail(type(error).__name__)
        self._block.__exit__(None, None, None)
        self.end()


NO_SPAN = Span(None)
"""Where there is none. Never made the current one by `with`, only asked and told."""


def start(
    name: str,
    kind: Kind,
    *,
    parent: str | None = None,
    new_trace: bool = False,
    links: Sequence[str] = (),
    attributes: Mapping[str, Value | None] | None = None,
) -> Span:
    """Begin a span. `parent` and `links` are `traceparent`s; without a parent it is below the current span.

    With `new_trace` it begins a trace, with a link to `parent`. Where nobody records spans, the parent is handed on
    all the same.
    """
    if is_possible():
        from frameledger_services.telemetry import otel

        return otel.start(name, kind, parent, new_trace, links, attributes or {})
    return Span(_handed_on.get() if parent is None else parent)


def current_traceparent() -> str | None:
    """Returns the `traceparent` of the current span, for what is published now; None if there is none."""
    if is_possible():
        from frameledger_services.telemetry import otel

        return otel.current_traceparent()
    return _handed_on.get()


def of_stored(trace_id: str | None, frame_id: UUID | None) -> str | None:
    """Returns what links to the trace of a stored frame. Its trace is stored and its span is not, so the frame's id
    stands for that."""
    return None if trace_id is None or frame_id is None else f"00-{trace_id}-{frame_id.hex[:16]}-01"


def is_possible() -> bool:
    """Returns whether this process uses OpenTelemetry, so that spans may be recorded."""
    return "opentelemetry.trace" in sys.modules


def is_sampled(traceparent: str | None) -> bool:
    """Returns whether a valid `traceparent`, as version 00 writes it, says that its trace is recorded.

    A projector asks it of every frame, so the last digit is looked at as it is: of an odd one the lowest bit is set.
    """
    return traceparent is not None and traceparent[_LAST_DIGIT] in _ODD


_LAST_DIGIT = 54
_ODD = "13579bdf"
