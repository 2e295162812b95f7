"""Writes the head of a response together with its body.

uvicorn writes the head and then the body, which takes two system calls and wakes the client for the head alone. Here
the head waits for the next write, at most until the next iteration of the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from weakref import WeakMethod


class HeadWithBody:
    """The transport of one response, with the methods that uvicorn's cycle uses. The first write waits for the next
    one."""

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        end: WeakMethod[Callable[[], None]],
    ) -> None:
        """`end` closes the connection. The reference is weak, since its object refers to this one."""
        self._transport = transport
        self._loop = loop
        self._end = end
        self._head: bytes | None = None
        self._has_begun = False

    def write(self, data: bytes) -> None:
        """Write the data after the waiting data, or let it wait if it is the first."""
        if not self._has_begun:
            self._has_begun = True
            self._head = data
            self._loop.call_soon(self._flush)
        elif self._head is not None:
            head, self._head = self._head, None
            self._transport.write(head + data)
        else:
            self._transport.write(data)

    def write_complete(self, data: bytes) -> None:
        """Write a head with its complete body."""
        self._has_begun = True
        self._transport.write(data)

    def close(self) -> None:
        """Write the waiting data, and close when it has been sent."""
        self._flush()
        if (end := self._end()) is not None:
            end()

    def is_closing(self) -> bool:
        """Returns whether it is closed or closing."""
        return self._transport.is_closing()

    def _flush(self) -> None:
        head, self._head = self._head, None
        if head is not None and not self._transport.is_closing():
            self._transport.write(head)
