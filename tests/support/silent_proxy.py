"""A proxy to a server that can stop responding without closing connections, as if packets were dropped or the machine
were frozen."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from psycopg.conninfo import conninfo_to_dict, make_conninfo


class SilentProxy:
    """Forwards the connections between clients and a server."""

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self._open: set[_Carried] = set()
        self._ended: set[_Carried] = set()
        self._is_silent = False
        self.accepted = 0
        """The number of accepted connections."""

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        carried = _Carried(reader, writer)
        self._open.add(carried)
        try:
            if self._is_silent:
                await carried.ended.wait()
            else:
                await carried.carry(*self._server)
        finally:
            self._open.discard(carried)
            self._ended.add(carried)
            carried.end()

    def fall_silent(self) -> None:
        """Stop forwarding. New connections are accepted by the kernel and receive nothing."""
        self._is_silent = True
        self.forget()

    def speak_again(self) -> None:
        """Forward new connections again. Existing ones stay silent."""
        self._is_silent = False

    def forget(self) -> None:
        """Stop forwarding on the connections that are open now, as after a failover to a server that does not know
        them. The previous server sees its clients disconnect; the clients notice nothing."""
        for carried in self._open:
            carried.fall_silent()

    def end_answers(self) -> None:
        """End what the server sends, at once, and let the clients go on sending."""
        for carried in self._open:
            carried.end_answers()

    async def end(self) -> None:
        for carried in self._open | self._ended:
            await carried.closed()


class _Carried:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._upstream: asyncio.StreamWriter | None = None
        self._is_silent = False
        self.ended = asyncio.Event()

    async def carry(self, host: str, port: int) -> None:
        answers, self._upstream = await asyncio.open_connection(host, port)
        with suppress(OSError):
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._carry(self._reader, self._upstream))
                tasks.create_task(self._carry(answers, self._writer))
        if self._is_silent:
            await self.ended.wait()

    def end_answers(self) -> None:
        with socket.socket(fileno=os.dup(self._writer.get_extra_info("socket").fileno())) as same:
            same.shutdown(socket.SHUT_WR)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65_536):
                if self._is_silent:
                    return
                writer.write(data)
                await writer.drain()
        if not self._is_silent:
            self.end()

    def fall_silent(self) -> None:
        self._is_silent = True
        if self._upstream is not None:
            self._upstream.transport.abort()

    async def closed(self) -> None:
        self.end()
        for writer in (self._writer, self._upstream):
            with suppress(OSError):
                if writer is not None:
                    await writer.wait_closed()

    def end(self) -> None:
        self.ended.set()
        for writer in (self._writer, self._upstream):
            if writer is not None:
                writer.transport.abort()


@asynccontextmanager
async def proxy_to(address: str) -> AsyncIterator[tuple[SilentProxy, str]]:
    """Yields a proxy to the server at a libpq address, and the address of the proxy."""
    parts = conninfo_to_dict(address)
    proxy = SilentProxy(str(parts.get("host") or "127.0.0.1"), int(parts.get("port") or 5432))
    server = await asyncio.start_server(proxy.accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield proxy, make_conninfo(address, host="127.0.0.1", port=port, sslmode="disable")
    finally:
        server.close()
        await proxy.end()


def both(first: str, second: str) -> str:
    """Returns an address with two hosts, which are tried in this order."""
    parts = [conninfo_to_dict(one) for one in (first, second)]
    return make_conninfo(
        first, **{name: ",".join(str(one[name]) for one in parts) for name in ("host", "port")}
    )
