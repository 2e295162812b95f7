"""The lease: until when this worker may believe that nobody has taken its work over.

It lasts `seconds` from the moment before the last heartbeat that succeeded was sent. The database counts from the
moment when it got that heartbeat, which is later, so the lease ends here before it ends there. It ends while the
machine is suspended, too: the database's clock goes on then.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from frameledger.errors import FencedError


def awake_or_not() -> float:
    """Seconds that pass also while the machine is suspended, where the system can tell. Linux's monotonic clock stands
    still then; macOS's does not."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


class LeaseLostError(FencedError):
    """A worker had no heartbeat for longer than its lease, or was judged dead: its work may be another worker's by
    now.

    Remedy: Stop the job and publish nothing more of it. Workers do so by themselves.
    """

    def __init__(self) -> None:
        super().__init__("The worker's lease is over: its work may be another worker's by now.")


class Lease:
    """A lease that is renewed by heartbeats. Times are of `clock`, in seconds.

    `renew`, `valid` and `left` may be called from any thread, so that an event loop that was blocked finds it renewed
    when it goes on. The rest belongs to one event loop.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = awake_or_not) -> None:
        self.seconds = seconds
        self.clock = clock
        self._until: float | None = None
        self._ended = False
        self._look: set[Callable[[], None]] = set()

    def renew(self, sent: float) -> None:
        """A heartbeat succeeded that was sent after this moment. The first one begins the lease; one that is over stays
        over, and an answer that comes late does not shorten it."""
        until = sent + self.seconds
        if self._until is None:
            self._until = until
        elif self.valid():
            self._until = max(self._until, until)

    def end(self) -> None:
        """It is over now, and nothing renews it."""
        self._ended = True
        for look in tuple(self._look):
            look()

    def valid(self) -> bool:
        """Whether work may be believed to be ours. Ask right before each deed that needs it."""
        return self.left() > 0

    def left(self) -> float:
        """Seconds that it still lasts, 0 if it is over or has not begun."""
        return 0.0 if self._ended or self._until is None else max(0.0, self._until - self.clock())

    @asynccontextmanager
    async def held(self) -> AsyncGenerator[None, None]:
        """A block that ends with the lease, however often that is renewed. Raises `LeaseLostError` then, or at once."""
        if not self.valid():
            raise LeaseLostError
        loop = asyncio.get_running_loop()
        limit = asyncio.timeout(None)
        timer: asyncio.TimerHandle | None = None

        def look() -> None:
            nonlocal timer
            if timer is not None:
                timer.cancel()
            if self.valid():
                timer = loop.call_later(self.left(), look)
            elif not limit.expired():
                limit.reschedule(loop.time())

        try:
            async with limit:
                self._look.add(look)
                look()
                try:
                    yield
                finally:
                    self._look.discard(look)
                    if timer is not None:
                        timer.cancel()
        except TimeoutError:
            if limit.expired():
                raise LeaseLostError from None
            raise

    async def over(self) -> None:
        """Returns when it is over."""
        try:
            async with self.held():
                await asyncio.Event().wait()
        except LeaseLostError:
            return
