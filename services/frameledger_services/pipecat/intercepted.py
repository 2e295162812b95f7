"""Calls the capture handlers where frames pass: wraps two methods of the processors, or uses Pipecat's events.

Pipecat calls a handler of an event through two coroutines and an inspection, for each frame, whatever its type. A
wrapped method is a plain call: it returns what the method returns, so the pipeline awaits the same coroutine as before.

To see the frames that a processor processes, its `process_frame` is wrapped. To see those that it pushes, the
`queue_frame` of its neighbours is wrapped, because its own `push_frame` may hold frames back or set their fields first.
Both methods are public and meant to be overridden. A processor whose methods cannot be replaced, or take other
arguments, gets handlers of the events.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import signature
from typing import Any

from frameledger_services.pipecat.capture import Handler, HandlersByClass


def on_processing(processor: Any, handlers: HandlersByClass) -> None:
    """Call these handlers before and after the processor processes a frame."""
    try:
        process_frame = processor.process_frame
        _check(process_frame, 2)
        processor.process_frame = _processing(process_frame, handlers)
    except _NOT_WRAPPED:
        processor.add_event_handler("on_before_process_frame", _event_handler(handlers, 0))
        processor.add_event_handler("on_after_process_frame", _event_handler(handlers, 1))


def on_pushing(processor: Any, handlers: HandlersByClass) -> None:
    """Call the first of these handlers before a frame that the processor pushes is given to its neighbour."""
    from pipecat.processors.frame_processor import FrameDirection

    ways = ((processor.next, FrameDirection.DOWNSTREAM), (processor.previous, FrameDirection.UPSTREAM))
    try:
        for neighbour, _ in ways:
            _check(neighbour.queue_frame, 3)
        for neighbour, way in ways:
            queue_frame = _queueing(neighbour.queue_frame, handlers, way, FrameDirection.DOWNSTREAM)
            neighbour.queue_frame = queue_frame
    except _NOT_WRAPPED:
        # If one neighbour was wrapped already, its frames are seen twice and captured once.
        processor.add_event_handler("on_before_push_frame", _event_handler(handlers, 0))


_NOT_WRAPPED = (AttributeError, NameError, TypeError, ValueError)
"""NameError: from Python 3.14 on a signature evaluates annotations, which may name what only a type checker imports."""


def _check(method: Callable[..., Any], count: int) -> None:
    """Raises TypeError if the method does not take exactly this number of arguments, by place: a wrapper would drop the
    others."""
    method_signature = signature(method)
    method_signature.bind(*range(count))
    if len(method_signature.parameters) != count:
        raise TypeError(method)


def _event_handler(handlers: HandlersByClass, place: int) -> Callable[[Any, Any], None]:
    def handle(processor: Any, frame: Any) -> None:
        if (handler := handlers[type(frame)][place]) is not None:
            handler(frame)

    return handle


def _processing(
    process_frame: Callable[..., Awaitable[None]], handlers: HandlersByClass
) -> Callable[..., Awaitable[None]]:
    def intercepted(frame: Any, direction: Any) -> Awaitable[None]:
        before, after = handlers[type(frame)]
        if before is not None:
            before(frame)
        if after is not None:
            return _followed(process_frame(frame, direction), after, frame)
        return process_frame(frame, direction)

    return intercepted


async def _followed(processed: Awaitable[None], after: Handler, frame: Any) -> None:
    await processed
    after(frame)


def _queueing(
    queue_frame: Callable[..., Awaitable[None]], handlers: HandlersByClass, way: Any, default: Any
) -> Callable[..., Awaitable[None]]:
    def intercepted(frame: Any, direction: Any = default, callback: Any = None) -> Awaitable[None]:
        if direction is way and (before := handlers[type(frame)][0]) is not None:
            before(frame)
        return queue_frame(frame, direction, callback)

    return intercepted
