"""The clients of the reads bench, run as a process: connections that ask again and again, each once it is answered.

Its arguments are the port on this machine, the numbers of connections, of requests of all of them together and of
conversations, which they read in turn, and the `If-None-Match` that they send, if they send one. It writes how many
bytes came.

A protocol that knows only as much of HTTP as is needed here, since a client that parses would take the processor away
from what is measured.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterator
from functools import partial
from itertools import cycle, islice
from urllib.parse import quote

from frameledger_services.bench.road.stream import context_ids

_HEAD = re.compile(rb"HTTP/1.1 (\d+)[^\n]*\n(.*?)\r\n\r\n", re.DOTALL)
_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)


class Reader(asyncio.Protocol):
    """One connection."""

    def __init__(self, requests: Iterator[bytes], done: asyncio.Future[int]) -> None:
        self.done = done
        """How many bytes came, once no request is left."""

        self._requests = requests
        self._received = 0
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the first time."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._ask()

    def data_received(self, data: bytes) -> None:
        """An answer came, whole or not."""
        self._rest += data
        head = _HEAD.match(self._rest)
        if head is None:
            return
        if head[1] not in (b"200", b"304"):
            self._fail(self._rest.decode(errors="replace"))
            return
        length = _LENGTH.search(head[2])
        end = head.end() + (0 if length is None else int(length[1]))
        if len(self._rest) >= end:
            self._received += end
            self._rest = b""
            self._ask()

    def connection_lost(self, error: Exception | None) -> None:
        """None is to end while it is measured."""
        self._fail(f"the connection ended: {error}")

    def _ask(self) -> None:
        request = next(self._requests, None)
        if request is not None:
            self._transport.write(request)
        elif not self.done.done():
            self.done.set_result(self._received)
            self._transport.close()

    def _fail(self, why: str) -> None:
        if not self.done.done():
            self.done.set_exception(RuntimeError(why))


async def read(port: int, connections: int, requests: int, contexts: int, known: str | None) -> int:
    """Returns how many bytes came. Raises RuntimeError with what was said instead of an answer."""
    loop = asyncio.get_running_loop()
    also = "" if known is None else f"If-None-Match: {known}\r\n"
    asked = [
        f"GET /v1/contexts/{quote(name, safe='')} HTTP/1.1\r\nHost: localhost\r\n{also}\r\n".encode()
        for name in context_ids(contexts)
    ]
    left = islice(cycle(asked), requests)
    readers = [Reader(left, loop.create_future()) for _ in range(connections)]
    for one in readers:
        await loop.create_connection(partial(_itself, one), "127.0.0.1", port)
    return sum(await asyncio.gather(*(one.done for one in readers)))


def _itself(reader: Reader) -> Reader:
    return reader


if __name__ == "__main__":
    port, connections, requests, contexts = map(int, sys.argv[1:5])
    known = sys.argv[5] if len(sys.argv) > 5 else None
    print(asyncio.run(read(port, connections, requests, contexts, known)))
