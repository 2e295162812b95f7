"""HTTP/1.1 as far as a model server needs it: requests are recorded byte for byte, responses are played step by step.

It has no tasks and no coroutines: a response is a list of steps driven by timers, so a hundred streams of sixty tokens
per second take a few per cent of a core. Data that a client does not read is buffered without a limit, which a real
server must never do.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

LIMIT = 64 * 1024 * 1024


class Received:
    """A request as it arrived, and the progress of its response. Times are of `time.monotonic`."""

    def __init__(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> None:
        self.method = method
        self.path = path
        self.headers = headers
        """Names in lower case."""
        self.body = body
        """The exact bytes of the body."""
        self.arrived_at = time.monotonic()
        self.finished_at: float | None = None
        """When the last byte of the response was passed to the operating system."""
        self.left_at: float | None = None
        """When the client closed the connection before the end of the response."""
        self.left = asyncio.Event()

    def times(self) -> dict[str, object]:
        return {
            "path": self.path,
            "arrived_at": self.arrived_at,
            "finished_at": self.finished_at,
            "left_at": self.left_at,
        }


@dataclass(frozen=True, slots=True)
class At:
    """Wait until this many seconds after the arrival of the request; no wait if they have passed."""

    secs: float


Step = bytes | At | Literal["cut", "hang"]
"""Bytes of the body; or a wait; or the connection is closed; or nothing more is sent."""


@dataclass(frozen=True, slots=True)
class Response:
    """A response. Its head is sent with the first bytes of the body."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    steps: Iterable[Step] = ()


def chunked(response: Response) -> Iterator[Step]:
    """Returns the steps of a whole chunked response: head, chunks, last chunk."""
    lines = [f"HTTP/1.1 {response.status} told", "transfer-encoding: chunked"]
    lines += [f"{name}: {value}" for name, value in response.headers.items()]
    head = ("\r\n".join(lines) + "\r\n\r\n").encode()
    for step in response.steps:
        if isinstance(step, bytes):
            yield head + b"%x\r\n%b\r\n" % (len(step), step)
            head = b""
        else:
            yield step
    yield head + b"0\r\n\r\n"


class Connection(asyncio.Protocol):
    """One connection. Its requests are answered one after another."""

    def __init__(self, answer: Callable[[Received], Response], known: set["Connection"]) -> None:
        self._answer = answer
        self._known = known
        self._buffer = bytearray()
        self._received: Received | None = None
        self._steps: Iterator[Step] = iter(())
        self._timer: asyncio.TimerHandle | None = None
        self._began = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._known.add(self)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._received is None:
            self._next_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._known.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._received is not None:
            self._received.left_at = time.monotonic()
            self._received.left.set()

    def close(self) -> None:
        self._transport.abort()

    def _next_request(self) -> None:
        head, end, rest = self._buffer.partition(b"\r\n\r\n")
        if not end:
            return
        request_line, *lines = head.decode("latin-1").split("\r\n")
        method, path, _ = request_line.split(" ", 2)
        pairs = (line.partition(":") for line in lines)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        length = int(headers.get("content-length", 0))
        if length > LIMIT or "transfer-encoding" in headers:
            self._transport.abort()  # no client of a model sends this
            return
        if len(rest) < length:
            return
        self._buffer = rest[length:]
        self._received = Received(method, path, headers, bytes(rest[:length]))
        self._began = self._loop.time()
        self._steps = chunked(self._answer(self._received))
        self._go_on()

    def _go_on(self) -> None:
        for step in self._steps:
            match step:
                case bytes():
                    self._transport.write(step)
                case At(secs):
                    due = self._began + secs
                    if due > self._loop.time():
                        self._timer = self._loop.call_at(due, self._go_on)
                        return
                case "cut":
                    self._transport.abort()
                    return
                case "hang":
                    return
            if self._transport.is_closing():
                return
        if self._received is not None:
            self._received.finished_at = time.monotonic()
            self._received = None
        if self._buffer:
            self._next_request()
