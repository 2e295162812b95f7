"""Hooks: functions of an application that are called on events of this process."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, TypeVar

from frameledger_services import logs

HOOK_SECONDS = 10.0
"""Timeout of a hook. Its caller waits for it."""

Handler = TypeVar("Handler", bound=Callable[..., Any])

_log = logs.get_logger("providers")


class Hooks:
    """Base class of services with hooks. `EVENTS` lists the events; a hook gets the service and the event's arguments.

    Hooks are local to the process and lost if it dies. The log is the record.
    """

    EVENTS: ClassVar[frozenset[str]] = frozenset()

    def __init__(self) -> None:
        self._hooks: dict[str, list[Callable[..., Any]]] = {}

    def event_handler(self, event_name: str) -> Callable[[Handler], Handler]:
        """Decorator that adds a plain or async hook. Hooks of one event are called in the order of registration.

        Raises ValueError for an unknown event; the message lists the known ones.
        """

        def add(handler: Handler) -> Handler:
            self.add_event_handler(event_name, handler)
            return handler

        self._check_event(event_name)
        return add

    def add_event_handler(self, event_name: str, handler: Callable[..., Any]) -> None:
        """Add a plain or async hook. Raises ValueError for an unknown event."""
        self._check_event(event_name)
        self._hooks.setdefault(event_name, []).append(handler)

    def has_handlers(self, event_name: str) -> bool:
        """Returns whether an event has hooks. Raises ValueError for an unknown event."""
        self._check_event(event_name)
        return bool(self._hooks.get(event_name))

    async def notify(self, event_name: str, *arguments: Any) -> None:
        """Call the hooks of an event in order. A hook that raises or times out is logged; the next one is still called.

        Raises ValueError for an unknown event."""
        self._check_event(event_name)
        for handler in tuple(self._hooks.get(event_name, ())):
            error = await failure_of(partial(handler, self, *arguments), within=HOOK_SECONDS)
            if error is not None:
                name = getattr(handler, "__qualname__", "?")
                _log.error("provider.hook_failed", event_name=event_name, hook=name, exc_info=error)

    def _check_event(self, event_name: str) -> None:
        if event_name not in self.EVENTS:
            known = ", ".join(sorted(self.EVENTS))
            raise ValueError(
                f"{type(self).__name__} has no event {event_name!r}; its events are {known or 'none'}"
            )


async def failure_of(hook: Callable[[], Any], *, within: float | None = None) -> BaseException | None:
    """Call a plain or async hook. Returns its exception, or TimeoutError after this many seconds; None on success.

    Exceptions that end a program or a task have no effect here: a hook that exits stops nothing. Raises only
    KeyboardInterrupt, and the cancellation of its caller.
    """
    task = asyncio.current_task()
    assert task is not None, "an await is in a task"
    cancelled_before = task.cancelling()
    try:
        async with asyncio.timeout(within):
            answer = hook()
            if inspect.isawaitable(answer):
                await answer
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if task.cancelling() > cancelled_before:
            # Also if the hook raised another exception while it was cancelled.
            raise asyncio.CancelledError from error
        # Any other cancellation came from the hook, such as from a task that it awaited.
        return error
    return None
