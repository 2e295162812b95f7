"""The connection as uvicorn serves it, with a way to cut it off, and with one write for a short answer.

A server closes a connection once its client has taken what is in the buffer; a client that takes nothing would keep
connection and buffer for as long as it likes.

uvicorn writes the head of an answer by itself, and the body behind it: twice the calls of the system, and a client that
wakes up for a head alone. Here the head waits for what comes next, until the event loop comes round at most.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

EXTENSION = "frameledger.abort"


class AbortableProtocol(HttpToolsProtocol):
    """Gives every request the extension `EXTENSION`."""

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self.scope["extensions"] = {EXTENSION: {"abort": self.transport.abort}}

    def on_headers_complete(self) -> None:
        """Its answer can begin: the cycle that makes it writes to the transport from the next turn of the loop on."""
        super().on_headers_complete()
        self.cycle.transport = _HeadWithBody(self.transport, self.loop)  # type: ignore[assignment]


class _HeadWithBody:
    """The transport of one answer, as far as uvicorn's cycle uses it: what is written first waits for what follows."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head: bytes | None = None
        self._has_begun = False

    def write(self, data: bytes) -> None:
        """Write it now, behind what waits; or let it wait, if it is the first."""
        if not self._has_begun:
            self._has_begun = True
            self._head = data
            self._loop.call_soon(self._flush)
        elif self._head is not None:
            head, self._head = self._head, None
            self._transport.write(head + data)
        else:
            self._transport.write(data)

    def close(self) -> None:
        """Write what waits, and close once it is taken."""
        self._flush()
        self._transport.close()

    def is_closing(self) -> bool:
        """Returns whether it is closed, or will be."""
        return self._transport.is_closing()

    def _flush(self) -> None:
        head, self._head = self._head, None
        if head is not None and not self._transport.is_closing():
            self._transport.write(head)


def abort(scope: Any) -> bool:
    """Cut the connection of a request off. Returns whether its server can."""
    extension = scope.get("extensions", {}).get(EXTENSION)
    if extension is None:
        return False
    extension["abort"]()
    return True
