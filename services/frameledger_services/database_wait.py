"""A connection whose socket stays registered with the event loop between statements.

psycopg registers the socket before it waits for an answer, and unregisters it afterwards. With uvloop these are seven
system calls for each statement, a third of the processor time that a short one takes here. Only the wait for an answer
is ours; writing, COPY, timeouts and cancelling are psycopg's.

A socket may be registered only while it is open: afterwards its number belongs to the next file that is opened. So it
is unregistered before it is closed here, and after each error and each cancellation, when libpq may have closed it.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Generator
from functools import partial
from typing import Any, TypeVar

import psycopg
from psycopg import AsyncConnection
from psycopg.abc import PQGen
from psycopg.pq import ConnStatus
from psycopg.waiting import Ready, Wait

LOOK_AGAIN_SECONDS = 0.1
"""A wait that takes longer registers the socket again and reads it, as psycopg does. uvloop no longer reports a socket
that has had an error, and nothing reports one that another task has closed."""

RV = TypeVar("RV")


class RegisteredConnection(AsyncConnection[Any]):
    """An asynchronous connection of psycopg, which does what every one does."""

    _registered: tuple[asyncio.AbstractEventLoop, int] | None = None
    """The event loop, and the number of the socket that is registered with it."""

    _readable: asyncio.Future[None] | None = None
    """Done when there is something to read; None while nobody waits for that."""

    _wait_timer: asyncio.TimerHandle | None = None
    """One for all waits: a timer for each would nearly always be cancelled."""

    async def wait(self, gen: PQGen[RV], *arguments: Any, **options: Any) -> RV:
        """Called by psycopg to wait for any answer."""
        if arguments or options:
            # With a timeout, for notifications.
            return await self._wait_unregistered(gen, *arguments, **options)
        try:
            state = next(gen)
        except StopIteration as end:
            # Without waiting, as for most rows of a COPY: psycopg lets other tasks run from time to time.
            return await super().wait(_Rest(gen, raised=end))
        try:
            while state == Wait.R:
                await self._until_readable()
                state = gen.send(Ready.R)
        except StopIteration as end:
            if self.pgconn.status != ConnStatus.OK:
                self._unregister()
            answer: RV = end.value
            return answer
        except (asyncio.CancelledError, KeyboardInterrupt) as interruption:
            # psycopg cancels the statement, and then waits for its end.
            return await self._wait_unregistered(_Rest(gen, state, interruption))
        except OSError as error:
            self._unregister()
            raise psycopg.OperationalError("the socket of the connection is closed") from error
        except BaseException:
            self._unregister()
            raise
        # It waits until it can write, with much to be sent.
        return await self._wait_unregistered(_Rest(gen, state))

    async def close(self) -> None:
        self._unregister()
        await super().close()

    async def _wait_unregistered(self, gen: PQGen[RV], *arguments: Any, **options: Any) -> RV:
        """Wait as psycopg does, which registers the socket itself."""
        self._unregister()
        return await super().wait(gen, *arguments, **options)

    async def _until_readable(self) -> None:
        loop, number = asyncio.get_running_loop(), self.pgconn.socket
        if self._registered != (loop, number):
            self._unregister()
            # The event loop does not keep the connection alive: one that is forgotten open is closed, with a warning.
            loop.add_reader(number, partial(_note_readable, weakref.ref(self)))
            self._registered = loop, number
        if self._wait_timer is None:
            self._wait_timer = loop.call_later(LOOK_AGAIN_SECONDS, partial(_look_again, weakref.ref(self)))
        self._readable = loop.create_future()
        try:
            await self._readable
        finally:
            self._readable = None

    def _note_readable(self) -> None:
        if self._readable is None:
            # A notification, or the end of the session. Nobody reads it before the next statement, and until then the
            # event loop would report it again and again.
            self._unregister()
        elif not self._readable.done():
            self._readable.set_result(None)

    def _look_again(self) -> None:
        self._wait_timer = None
        if self._readable is not None and not self._readable.done():
            self._unregister()
            self._readable.set_result(None)

    def _unregister(self) -> None:
        if self._registered is not None:
            (loop, number), self._registered = self._registered, None
            if not loop.is_closed():
                loop.remove_reader(number)

    def __del__(self, *warn: Any) -> None:
        self._unregister()
        super().__del__(*warn)


def _note_readable(connection: weakref.ref[RegisteredConnection]) -> None:
    if (alive := connection()) is not None:
        alive._note_readable()


def _look_again(connection: weakref.ref[RegisteredConnection]) -> None:
    if (alive := connection()) is not None:
        alive._look_again()


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
