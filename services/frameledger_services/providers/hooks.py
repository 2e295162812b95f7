"""Hooks: functions of an application that are called when something happens in this process."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from frameledger_services import logs

HOOK_SECONDS = 10.0
"""Time limit of a hook. The work that it is called for waits meanwhile."""

Handler = TypeVar("Handler", bound=Callable[..., Any])

_log = logs.get_logger("providers")


class Hooks:
    """A service with hooks. `EVENTS` lists their names; a hook is called with the service and the event's arguments.

    Hooks are local to the process and may be lost with it: the log is the record.
    """

    EVENTS: ClassVar[frozenset[str]] = frozenset()

    def __init__(self) -> None:
        self._hooks: dict[str, list[Callable[..., Any]]] = {}

    def event_handler(self, event_name: str) -> Callable[[Handler], Handler]:
        """A decorator that adds a hook, plain or async. Several of one event are called in the order they came.

        An event that this service does not have is a ValueError that lists those it has.
        """

        def add(handler: Handler) -> Handler:
            self.add_event_handler(event_name, handler)
            return handler

        self._check_event(event_name)
        return add

    def add_event_handler(self, event_name: str, handler: Callable[..., Any]) -> None:
        """The same without the decorator."""
        self._check_event(event_name)
        self._hooks.setdefault(event_name, []).append(handler)

    def has_handlers(self, event_name: str) -> bool:
        """Whether an event has hooks."""
        self._check_event(event_name)
        return bool(self._hooks.get(event_name))

    async def notify(self, event_name: str, *arguments: Any) -> None:
        """Call the hooks of an event in order. One that raises, or takes too long, is logged and stops nothing."""
        self._check_event(event_name)
        for handler in tuple(self._hooks.get(event_name, ())):
            cancelled_before = _cancellations()
            try:
                async with asyncio.timeout(HOOK_SECONDS):
                    answer = handler(self, *arguments)
                    if inspect.isawaitable(answer):
                        await answer
            except asyncio.CancelledError:
                if _cancellations() > cancelled_before:
                    raise
                # The caller was not cancelled: the error came out of the hook, such as from a task that it awaited.
                _log_failure(event_name, handler)
            except Exception:
                _log_failure(event_name, handler)

    def _check_event(self, event_name: str) -> None:
        if event_name not in self.EVENTS:
            known = ", ".join(sorted(self.EVENTS))
            raise ValueError(
                f"{type(self).__name__} has no event {event_name!r}; its events are {known or 'none'}"
            )


def _cancellations() -> int:
    """Returns how often the current task was cancelled."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


def _log_failure(event_name: str, handler: Callable[..., Any]) -> None:
    _log.exception("provider.hook_failed", event_name=event_name, hook=getattr(handler, "__qualname__", "?"))
