"""The lease: how long this worker may assume that no other worker has taken over its work.

It lasts `seconds` from just before the last successful heartbeat was sent. The database counts from its receipt, which
is later, so the lease ends here before it ends there. It also expires while the machine is suspended, because the
database's clock continues.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from frameledger.errors import FencedError
from frameledger_services.suspend_clock import clock_through_suspend


class LeaseLostError(FencedError):
    """A worker had no heartbeat for longer than its lease, or was judged dead: another worker may have its work.

    Remedy: Stop the job and publish nothing more of it. Workers do so by themselves.
    """

    def __init__(self) -> None:
        super().__init__("The worker's lease has ended: another worker may have its work.")


class Lease:
    """A lease that is renewed by heartbeats. Times are of `clock`, in seconds.

    `renew`, `valid` and `left` may be called from any thread, so that a blocked event loop finds it renewed when it
    resumes. The rest belongs to one event loop.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = clock_through_suspend) -> None:
        self.seconds = seconds
        self.clock = clock
        self._until: float | None = None
        self._ended = False
        self._watchers: set[Callable[[], None]] = set()

    def renew(self, sent: float) -> None:
        """Record a successful heartbeat that was sent at `sent` or later. The first one begins the lease. A lease that
        ended stays ended, and a late answer does not shorten it."""
        until = sent + self.seconds
        if self._until is None:
            self._until = until
        elif self.valid():
            self._until = max(self._until, until)

    def end(self) -> None:
        """End the lease permanently."""
        self._ended = True
        for check in tuple(self._watchers):
            check()

    def valid(self) -> bool:
        """Returns whether claimed work is still ours. Call it right before each side effect that requires the lease."""
        return self.left() > 0

    def left(self) -> float:
        """Returns the remaining seconds, 0 if the lease ended or has not begun."""
        return 0.0 if self._ended or self._until is None else max(0.0, self._until - self.clock())

    @asynccontextmanager
    async def held(self) -> AsyncGenerator[None, None]:
        """Run a block that ends with the lease, however often that is renewed. Raises `LeaseLostError` when it ends, or
        at once if it has ended."""
        if not self.valid():
            raise LeaseLostError
        loop = asyncio.get_running_loop()
        limit = asyncio.timeout(None)
        timer: asyncio.TimerHandle | None = None

        def check() -> None:
            nonlocal timer
            if timer is not None:
                timer.cancel()
            if self.valid():
                timer = loop.call_later(self.left(), check)
            elif not limit.expired():
                limit.reschedule(loop.time())

        try:
            async with limit:
                self._watchers.add(check)
                check()
                try:
                    yield
                finally:
                    self._watchers.discard(check)
                    if timer is not None:
                        timer.cancel()
        except TimeoutError:
            if limit.expired():
                raise LeaseLostError from None
            raise

    async def until_ended(self) -> None:
        """Returns when the lease has ended."""
        try:
            async with self.held():
                await asyncio.Event().wait()
        except LeaseLostError:
            return
