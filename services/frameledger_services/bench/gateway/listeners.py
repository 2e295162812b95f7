"""The clients of the streams bench: they follow conversations and record when each frame arrives. Run as a process.

Its arguments are the port on this machine, and the numbers of streams, of conversations, over which the streams are
distributed, and of frames that each conversation will have. It writes `ready` when every stream has caught up, and when
all have all of their frames, as a JSON list of lists, for each stream the Unix time in seconds of each frame, in order.

The protocol only searches for two patterns, so that parsing in the clients is not what is measured.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections.abc import Callable, Sequence
from urllib.parse import quote

from frameledger_services.bench.road.processes import BenchError
from frameledger_services.bench.road.stream import context_ids

AT_ONCE = 50
"""Maximum connections that are opened at once."""

_FRAME = re.compile(rb"event: frame\nid: (\d+)\n")
_HEAD = b"event: head\n"
_END = b"\n\n"


class Listener(asyncio.Protocol):
    """One stream."""

    def __init__(self, context_id: str, frames: int, on_progress: Callable[[], None]) -> None:
        """`on_progress` is called when the stream has caught up for the first time, and when it has all frames."""
        self.times: list[float] = []
        self.is_ready = False
        self.lost: str | None = None
        """The reason why the stream failed; None if it did not."""

        self._context_id = context_id
        self._frames = frames
        self._on_progress = on_progress
        self._rest = b""

    @property
    def has_all(self) -> bool:
        return len(self.times) >= self._frames

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Request the stream."""
        assert isinstance(transport, asyncio.Transport)
        path = f"/v1/contexts/{quote(self._context_id, safe='')}/stream"
        transport.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())

    def data_received(self, data: bytes) -> None:
        """Count the received events, which may be incomplete."""
        now = time.time()
        self._rest += data
        end = self._rest.rfind(_END) + len(_END)
        if end < len(_END):
            return
        events, self._rest = self._rest[:end], self._rest[end:]
        for version in _FRAME.findall(events):
            self.times.append(now)
            if int(version) != len(self.times):
                self._lose(f"version {int(version)} came as number {len(self.times)}")
        if not self.is_ready and _HEAD in events:
            self.is_ready = True
            self._on_progress()
        if self.has_all:
            self._on_progress()

    def connection_lost(self, error: Exception | None) -> None:
        """Record a failure unless all frames arrived: no stream may end while it is measured."""
        if not self.has_all:
            self._lose(f"the connection ended: {error}")

    def _lose(self, why: str) -> None:
        self.lost = self.lost or f"A stream of {self._context_id}: {why}."
        self._on_progress()


async def listen(port: int, streams: int, frames: int, context_ids: Sequence[str]) -> list[list[float]]:
    """Returns the times of each stream. Raises `BenchError` if a stream ends, or leaves out or repeats a frame."""
    loop, progress = asyncio.get_running_loop(), asyncio.Event()
    listeners = [
        Listener(context_ids[number % len(context_ids)], frames, progress.set) for number in range(streams)
    ]

    async def until(reached: Callable[[Listener], bool]) -> None:
        while not all(map(reached, listeners)):
            progress.clear()
            await progress.wait()
            for lost in (one.lost for one in listeners if one.lost):
                raise BenchError(lost)

    for start in range(0, streams, AT_ONCE):
        some = listeners[start : start + AT_ONCE]
        await asyncio.gather(*(_connect(loop, one, port) for one in some))
    await until(lambda one: one.is_ready)
    print("ready", flush=True)
    await until(lambda one: one.has_all)
    return [one.times for one in listeners]


async def _connect(loop: asyncio.AbstractEventLoop, listener: Listener, port: int) -> None:
    await loop.create_connection(lambda: listener, "127.0.0.1", port)


if __name__ == "__main__":
    port, streams, contexts, each = map(int, sys.argv[1:])
    print(json.dumps(asyncio.run(listen(port, streams, each, context_ids(contexts)))))
