"""A connection whose socket stays registered with the event loop between statements.

psycopg registers the socket before it waits for an answer, and unregisters it afterwards. With uvloop these are seven
system calls for each statement, a third of the processor time that a short one takes here. Only the wait for an answer
is ours; writing, COPY, timeouts and cancelling are psycopg's.

What is registered is a duplicate of the socket, because libpq may close its own at any time. The number of a socket
that is closed while it is registered belongs to the next file that is opened, which the event loop would then not
watch; and if a forked process still has the socket, the event loop would report it without end. The duplicate is closed
as soon as the connection is closed or lost.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any, TypeVar

from psycopg import AsyncConnection
from psycopg.abc import PQGen
from psycopg.pq import ConnStatus
from psycopg.waiting import Ready, Wait

LOOK_AGAIN_SECONDS = 0.1
"""A wait that takes longer registers the socket again and reads it, as psycopg does: uvloop no longer reports a socket
that has had an error."""

RV = TypeVar("RV")


class RegisteredConnection(AsyncConnection[Any]):
    """An asynchronous connection of psycopg, which does what every one does. It needs a second file descriptor; while
    the process has none left, it waits as psycopg does."""

    _registration: _Registration | None = None
    _readable: asyncio.Future[None] | None = None
    """Done when there is something to read; None while nobody waits for that."""

    async def wait(self, gen: PQGen[RV], *arguments: Any, **options: Any) -> RV:
        """Called by psycopg to wait for any answer."""
        if arguments or options:
            # With a timeout, for notifications.
            return await self._wait_unregistered(gen, *arguments, **options)
        state = None
        try:
            state = next(gen)
            while state == Wait.R and (loop := self._register()) is not None:
                self._readable = loop.create_future()
                try:
                    await self._readable
                finally:
                    self._readable = None
                state = gen.send(Ready.R)
        except StopIteration as end:
            if self.pgconn.status != ConnStatus.OK:
                self._unregister()
            if state is None:
                # Without waiting, as for most rows of a COPY: psycopg lets other tasks run from time to time.
                return await super().wait(_Rest(gen, raised=end))
            answer: RV = end.value
            return answer
        except (asyncio.CancelledError, KeyboardInterrupt) as interruption:
            # psycopg cancels the statement, and then waits for its end.
            return await self._wait_unregistered(_Rest(gen, state, interruption))
        except BaseException:
            self._unregister()
            raise
        # It waits until it can write, with much to be sent, or nothing could be registered.
        return await self._wait_unregistered(_Rest(gen, state))

    async def close(self) -> None:
        self._unregister()
        await super().close()
        # Who waits finds it closed.
        self._wake()

    async def _wait_unregistered(self, gen: PQGen[RV], *arguments: Any, **options: Any) -> RV:
        """Wait as psycopg does, which registers the socket itself."""
        self._unregister()
        return await super().wait(gen, *arguments, **options)

    def _register(self) -> asyncio.AbstractEventLoop | None:
        """Returns the event loop with which the socket is registered, the running one; or None if that fails."""
        loop = asyncio.get_running_loop()
        if self._registration is None or self._registration.loop is not loop:
            self._unregister()
            # The event loop does not keep the connection alive: one that is forgotten open is closed, with a warning.
            readable, look_again = while_alive(self._note_readable), while_alive(self._look_again)
            try:
                self._registration = _Registration(loop, self.pgconn.socket, readable, look_again)
            except OSError:
                return None
        self._registration.look_again_later()
        return loop

    def _unregister(self) -> None:
        if self._registration is not None:
            registration, self._registration = self._registration, None
            registration.end()

    def _note_readable(self) -> None:
        if self._readable is None:
            # A notification, or the end of the session. Nobody reads it before the next statement, and until then the
            # event loop would report it again and again.
            self._unregister()
        else:
            self._wake()

    def _look_again(self) -> None:
        if self._readable is not None:
            self._unregister()
            self._wake()

    def _wake(self) -> None:
        if self._readable is not None and not self._readable.done():
            self._readable.set_result(None)

    def __del__(self, *warn: Any) -> None:
        self._unregister()
        super().__del__(*warn)


class _Registration:
    """A duplicate of a socket, registered with an event loop until `end` is called. Raises OSError if the process has
    no file descriptor left."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        descriptor: int,
        readable: Callable[[], None],
        look_again: Callable[[], None],
    ):
        self.loop = loop
        self._look_again = look_again
        self._timer: asyncio.TimerHandle | None = None
        self.descriptor = os.dup(descriptor)
        try:
            loop.add_reader(self.descriptor, readable)
        except BaseException:
            os.close(self.descriptor)
            raise

    def look_again_later(self) -> None:
        """Call `look_again` within `LOOK_AGAIN_SECONDS`. One timer serves all waits, since a timer for each would
        nearly always be cancelled."""
        if self._timer is None:
            self._timer = self.loop.call_later(LOOK_AGAIN_SECONDS, self._look)

    def end(self) -> None:
        """Also called by the garbage collector, which may run in another thread."""
        if self.loop.is_running() and self.loop is not _running_loop():
            self.loop.call_soon_threadsafe(self._end)
        else:
            self._end()

    def _end(self) -> None:
        if not self.loop.is_closed():
            self.loop.remove_reader(self.descriptor)
            if self._timer is not None:
                self._timer.cancel()
        os.close(self.descriptor)

    def _look(self) -> None:
        self._timer = None
        self._look_again()


def while_alive(method: Callable[[], None]) -> Callable[[], None]:
    """Returns a callback that calls a bound method, and does nothing once its object is gone. It does not keep the
    object alive."""
    weak = weakref.WeakMethod(method)

    def call() -> None:
        if (alive := weak()) is not None:
            alive()

    return call


def _running_loop() -> asyncio.AbstractEventLoop | None:
    with suppress(RuntimeError):
        return asyncio.get_running_loop()
    return None


class _Rest(Generator[Any, Any, Any]):
    """The rest of a generator that was begun: first what was raised, if anything, then the state that it yielded last,
    if any, and then what it yields from there on."""

    def __init__(self, gen: PQGen[Any], yielded: Wait | None = None, raised: BaseException | None = None):
        self._gen = gen
        self._yielded = yielded
        self._raised = raised

    def send(self, ready: Any) -> Any:
        if self._raised is not None:
            raised, self._raised = self._raised, None
            raise raised
        if self._yielded is not None:
            yielded, self._yielded = self._yielded, None
            return yielded
        return self._gen.send(ready)

    def throw(self, *error: Any) -> Any:
        return self._gen.throw(*error)
