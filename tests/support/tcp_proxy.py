"""A TCP proxy in a thread of its own, which a test can interrupt.

While it is interrupted, it forwards nothing in either direction and closes no connection, like a network that loses
packets. Data that was sent in the meantime arrives afterwards.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from aiokafka.conn import AIOKafkaConnection
from tests.bounds import ON_SERVERS

CHUNK = 65_536


@contextmanager
def redirected(ports: tuple[int, int] | None) -> Iterator[None]:
    """Redirect every connection that aiokafka opens in this block to a broker at the first of these ports to the second
    port. Setting the port of a proxy is not enough, because a broker tells its clients its own address."""
    connect = AIOKafkaConnection.connect

    async def connect_elsewhere(self: Any) -> Any:
        if ports is not None and self._port == ports[0]:
            self._port = ports[1]
        return await connect(self)

    AIOKafkaConnection.connect = connect_elsewhere
    try:
        yield
    finally:
        AIOKafkaConnection.connect = connect


class TcpProxy:
    """Forwards `port` of this machine to another address. Use `proxy`, which also stops it."""

    def __init__(self, to_port: int) -> None:
        self.port = 0
        self._to_port = to_port
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._live()), daemon=True)

    def begin(self) -> None:
        self._thread.start()
        assert self._ready.wait(ON_SERVERS), "the proxy does not start"

    def end(self) -> None:
        # Its loop may be closed a moment later, so the only thing to wait for is the end of its thread.
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(ON_SERVERS)
        assert not self._thread.is_alive(), "the proxy does not stop"

    def cut(self) -> None:
        """Forward nothing from now on."""
        self._in_loop(self._whole.clear)

    def mend(self) -> None:
        """Forward everything again, beginning with what was sent in the meantime."""
        self._in_loop(self._whole.set)

    def _in_loop(self, do: Any) -> None:
        done = threading.Event()
        self._loop.call_soon_threadsafe(do)
        self._loop.call_soon_threadsafe(done.set)
        assert done.wait(ON_SERVERS), "the proxy is stuck"

    async def _live(self) -> None:
        self._loop, self._over, self._whole = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
        self._whole.set()
        self._going_on: set[asyncio.Task[None]] = set()
        server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._over.wait()
        server.close()
        for task in tuple(self._going_on):
            task.cancel()
        await asyncio.gather(*self._going_on, return_exceptions=True)

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._carry(reader, writer))
        self._going_on.add(task)
        task.add_done_callback(self._going_on.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            await self._whole.wait()
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._to_port)
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._pump(reader, far_writer))
                    tasks.create_task(self._pump(far_reader, writer))
            finally:
                far_writer.close()
        writer.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward data until one end closes the connection, then close the other end."""
        with suppress(OSError):
            while data := await reader.read(CHUNK):
                await self._whole.wait()
                writer.write(data)
                await writer.drain()
        writer.close()


@contextmanager
def proxy(to_port: int):
    """Yields a running proxy."""
    made = TcpProxy(to_port)
    made.begin()
    try:
        yield made
    finally:
        made.end()
