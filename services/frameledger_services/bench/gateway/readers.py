"""The clients of the reads bench: connections that send the next request when the previous one is answered. Run as a
process.

Its arguments are the port on this machine, the numbers of connections, of requests of all connections together and of
conversations, which are read in turn, and optionally the value of `If-None-Match` to send. It writes the number of
received bytes.

The protocol parses only as much HTTP as is needed, so that the clients take little processor time from the server.
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
        """The number of received bytes, set when no request is left."""

        self._requests = requests
        self._received = 0
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first request."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._ask()

    def data_received(self, data: bytes) -> None:
        """Process received bytes, which may be an incomplete response."""
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
        """Fail: no connection may end while it is measured."""
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
    """Returns the number of received bytes. Raises RuntimeError with the response if it is not the expected one."""
    loop = asyncio.get_running_loop()
    also = "" if known is None else f"If-None-Match: {known}\r\n"
    all_requests = [
        f"GET /v1/contexts/{quote(name, safe='')} HTTP/1.1\r\nHost: localhost\r\n{also}\r\n".encode()
        for name in context_ids(contexts)
    ]
    left = islice(cycle(all_requests), requests)
    readers = [Reader(left, loop.create_future()) for _ in range(connections)]
    for reader in readers:
        await loop.create_connection(partial(_itself, reader), "127.0.0.1", port)
    return sum(await asyncio.gather(*(one.done for one in readers)))


def _itself(reader: Reader) -> Reader:
    return reader


if __name__ == "__main__":
    port, connections, requests, contexts = map(int, sys.argv[1:5])
    known = sys.argv[5] if len(sys.argv) > 5 else None
    print(asyncio.run(read(port, connections, requests, contexts, known)))
