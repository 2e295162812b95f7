"""What comes in for one call: what its handler says, how it ends, and that it is to stop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from frameledger_services.functions.handling import Ended
from frameledger_services.functions.params import ResultRefusedError
from frameledger_services.functions.reporting import Message, Said, Waits
from frameledger_services.work import StopReason


class Unreachable:
    """Nothing can report any more: the handler, and all that it gave its callback to, let go of it."""


Event = Message | Ended | Unreachable


class Inbox:
    """The events of one call, in their order. Of one event loop."""

    def __init__(self, refusal: Callable[[], ResultRefusedError]) -> None:
        """`refusal` says why a message does not count, once the inbox is closed."""
        self.told: StopReason | None = None
        """StopReason the call is to stop, until somebody acts on it."""

        self.ended: Ended | None = None
        """How the handler ended; null while it goes on."""

        self.unreachable = False
        self._refusal = refusal
        self._events: deque[Event] = deque()
        self._news = asyncio.Event()
        self._closed = False

    def begin(self) -> None:
        """A handler is about to begin. What is left of one that did not begin is not of this one."""
        self.ended, self.unreachable = None, False
        self._events.clear()

    def tell(self, why: StopReason) -> None:
        """The call is to stop."""
        self.told = why
        self._news.set()

    def take_told(self) -> StopReason | None:
        """StopReason the call is to stop, for whoever acts on it now."""
        told, self.told = self.told, None
        return told

    def put(self, event: Event) -> None:
        """Take an event; refuse it, if it is a message and the inbox is closed."""
        if isinstance(event, Unreachable):
            self.unreachable = True
        elif not isinstance(event, Said | Waits):
            self.ended = event
        if not self._closed:
            self._events.append(event)
        else:
            self._refuse(event)
        self._news.set()

    def wake(self) -> None:
        """Let whoever waits look again."""
        self._news.set()

    def take(self) -> Event | None:
        """The next event, if there is one."""
        return self._events.popleft() if self._events else None

    def take_last_word(self) -> Event | None:
        """Of what came, a final result or how the handler ended; what came before is refused. Null if neither came."""
        while (event := self.take()) is not None:
            if isinstance(event, Said) and event.is_final:
                return event
            if not isinstance(event, Said | Waits | Unreachable):
                return event
            self._refuse(event)
        return self.ended

    def close(self) -> None:
        """From now on nothing that the handler says counts."""
        self._closed = True
        while (event := self.take()) is not None:
            self._refuse(event)

    async def wait(self, until: float, *, heed: bool = True) -> None:
        """Return when something comes, or at that time of the loop. With `heed` also when the call is to stop."""
        if self._events or (heed and self.told is not None):
            return
        self._news.clear()
        try:
            async with asyncio.timeout_at(until):
                await self._news.wait()
        except TimeoutError:
            return

    def _refuse(self, event: Event) -> None:
        if isinstance(event, Said | Waits):
            event.answer.set_exception(self._refusal())
