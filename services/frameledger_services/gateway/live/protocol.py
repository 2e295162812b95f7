"""uvicorn's protocol, changed for clients that are slow, unusual or hostile.

*Abort.* A server closes a connection when its client has read the buffer, so a client that reads nothing would keep
connection and buffer indefinitely. Here a connection is aborted if its client hardly reads a response, even a complete
one: uvicorn would wait as long as the client keeps its side open.

*Heads.* A caller is known only after the head of its request, so the size of a head and its duration are limited: it
has to be complete by the time at which an idle connection would be closed, however often a byte of it arrives. Trailer
fields are ignored.

*Pipelines.* A client may send requests without waiting for the answers. A few of them are queued; nothing more is
parsed or read until one is answered. So such a client is slowed down and uses no memory. Until then only a write
notices that the client is gone.

*Upgrades.* A request that offers another protocol is still a request of HTTP/1.1. The parser takes the bytes after such
a head for the other protocol, and the body of the request would be lost; Java's client offers HTTP/2 by default.

*Refused bodies.* A request may be answered before its body has arrived. If the connection were closed then, the rest of
the body would reset it, and the client would lose the answer that it has not read yet (RFC 9112, 9.6). So only our side
is closed, and a limited part of the body is read and discarded.

*Half-closed connections.* A client that closes its side of the connection after its request still reads the answer.
Answers that watch their client (`receive`) treat it as gone, because a closed connection looks the same.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any
from weakref import WeakMethod

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from frameledger_services.gateway.live import complete_response
from frameledger_services.gateway.live.head_with_body import HeadWithBody
from frameledger_services.gateway.live.unchunked import Unchunked

EXTENSION = "frameledger.abort"

MAX_HEAD_BYTES = 64 * 1024
"""More than browsers, proxies and this gateway's longest paths need. The piece in which a head begins is not counted,
since it may contain the body of the previous request."""

MAX_WAITING = 20
"""The maximum number of pipelined requests that wait for earlier answers. Those of one piece may exceed it."""

PIECE_BYTES = 2048
"""The number of bytes that are parsed at once, since the parser cannot be stopped: about a hundred requests without
fields."""

MAX_DISCARDED = 64 * 1024 * 1024
"""Maximum bytes of a body that are read and discarded after the response, if the connection closes after it, for at
most as long as an idle connection stays open. Many clients read no response before they have sent everything."""

UNREAD_SECONDS = 45.0
MIN_RATE = 1_000
"""A connection is aborted if its client reads fewer bytes a second than `MIN_RATE` for `UNREAD_SECONDS`. Streams, which
write at least every 15 s and then wait 20 s, notice a slow client earlier, and count it as slow (`timed_send`)."""

_INVALID = "Invalid HTTP request received."

_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class AbortableProtocol(HttpToolsProtocol):
    """Gives every request the extensions `EXTENSION` and `complete_response.COMPLETE`."""

    flow: _Reading

    _head_bytes = 0
    _piece_bytes = 0
    _is_in_head = True
    _running: RequestResponseCycle | None = None
    _unparsed = b""
    _discarded: int | None = None

    _watching: asyncio.TimerHandle | None = None

    is_half_closed = False
    """Whether the client has closed its side and is still being answered."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Called when a client has connected."""
        super().connection_made(transport)
        self.flow = _Reading(transport)
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )

    def connection_lost(self, exc: Exception | None) -> None:
        """Called when the connection is closed or lost."""
        # uvicorn notifies only the newest request; the tasks of earlier ones would never end.
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()
        self._watch_no_longer()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Called when the client has not read much of what was written."""
        super().pause_writing()
        self._watch()

    def resume_writing(self) -> None:
        """Called when most of it has been read."""
        super().resume_writing()
        self._watch_no_longer()

    def timeout_keep_alive_handler(self) -> None:
        """Called when a connection was idle for some time. It is closed once the last answer was read."""
        super().timeout_keep_alive_handler()
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Called with data from the client."""
        if self._discarded is not None:
            self._discarded += len(data)
            if self._discarded > MAX_DISCARDED:
                self.transport.abort()
            return
        # uvicorn's own handler is not called: it would end the time limit of a head at its first byte.
        self._unparsed += data
        self._parse_on()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Called when the client closes its side. Returns whether it is still answered."""
        # None before the first request, whatever uvicorn's type says.
        newest: RequestResponseCycle | None = self.cycle
        if newest is None or newest.response_complete or newest.more_body or self._is_in_head:
            return False
        self.is_half_closed = True
        newest.keep_alive = False
        if self._running is not None:
            self._running.message_event.set()
        return True

    def on_message_begin(self) -> None:
        """Called when a request begins."""
        super().on_message_begin()
        self._is_in_head, self._head_bytes = True, -self._piece_bytes
        self.scope["extensions"] = {EXTENSION: {"abort": self.transport.abort}}

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called with a header field, or a trailer field."""
        if self._is_in_head:
            # The parser leaves trailing spaces, which are not part of the value.
            super().on_header(name, value.rstrip(b" \t"))

    def on_headers_complete(self) -> None:
        """Called when the response can begin: its cycle writes to the transport from the next iteration of the loop
        on."""
        if self.parser.should_upgrade():
            return
        self._is_in_head = False
        self._unset_keepalive_if_required()
        super().on_headers_complete()
        cycle = self.cycle
        self.scope["extensions"][complete_response.COMPLETE] = complete_response.extension(cycle)
        cycle.transport = HeadWithBody(  # type: ignore[assignment]
            self.transport, self.loop, WeakMethod(self._end)
        )

    def on_message_complete(self) -> None:
        """Called when a request is complete."""
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """Called when a request was answered."""
        super().on_response_complete()
        if not self.transport.is_closing():
            self._parse_on()
            self.flow.resume_reading()

    def _end(self) -> None:
        """Close the connection after the requests that are being answered."""
        if self._running is not None and self._running.response_complete and self._running.more_body:
            # It is closed like an idle one, or by its client.
            self._discarded = 0
            self.transport.write_eof()
        else:
            self.transport.close()

    def _parse_on(self) -> None:
        """Parse what was read, until enough requests wait. Nothing more is read before all of it is parsed."""
        data, self._unparsed = self._unparsed, b""
        for begin in range(0, len(data), PIECE_BYTES):
            if self.transport.is_closing():
                break
            if len(self.pipeline) >= MAX_WAITING:
                self._unparsed = data[begin:]
                break
            self._parse(data[begin : begin + PIECE_BYTES])
        # The bodies of queued requests are not read, so only this limits how much of the last one is buffered.
        self.flow.is_enough = bool(self.pipeline) and (
            len(self.pipeline) >= MAX_WAITING or len(self.cycle.body) > HIGH_WATER_LIMIT
        )

    def _parse(self, piece: bytes) -> None:
        self._piece_bytes = len(piece)
        rest = piece
        try:
            while rest:
                rest = self._parsed(rest)
        except httptools.HttpParserError:
            self.logger.warning(_INVALID)
            self.send_400_response(_INVALID)
            return
        if self._is_in_head:
            self._head_bytes += len(piece)
            if self._head_bytes > MAX_HEAD_BYTES:
                self.transport.write(_TOO_LARGE)
                self.transport.close()

    def _watch(self, most: float = math.inf) -> None:
        """Abort the connection if more than `most` bytes are still unread by its client; else check again later."""
        self._watch_no_longer()
        left = self.transport.get_write_buffer_size()
        if left > most:
            self.transport.abort()
        elif left > 0:
            most = max(left - MIN_RATE * UNREAD_SECONDS, 0)
            self._watching = self.loop.call_later(UNREAD_SECONDS, self._watch, most)

    def _watch_no_longer(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        # `cycle.receive` is not replaced: the cycle would refer to itself, and only the garbage collector would delete
        # it.
        super()._start_asgi_task(cycle, partial(self._answer, cycle, app))

    async def _answer(
        self, cycle: RequestResponseCycle, app: Any, scope: Any, receive: Any, send: Any
    ) -> None:
        if scope["http_version"] == "1.0":
            send = Unchunked(cycle, send)
        await app(scope, _Receiving(self, receive), send)
        if (self.is_half_closed or self.transport.is_closing()) and not cycle.response_complete:
            # The app learned that its client is gone, or aborted the connection. uvicorn does not know that, and would
            # report a failure of the app.
            cycle.disconnected = True
            cycle.transport.close()

    def _parsed(self, data: bytes) -> bytes:
        """Parse data. Returns the rest that is still to be parsed: the bytes after the head of a request that offers
        another protocol."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._parse_without_offer()
            return data[upgrade.args[0] :]
        return b""

    def _parse_without_offer(self) -> None:
        """Parse the head of the request again, without the offer of another protocol."""
        method, version = self.parser.get_method(), self.parser.get_http_version()
        if method == b"CONNECT":
            raise httptools.HttpParserError("nobody is connected elsewhere")
        head = [b"%s %s HTTP/%s\r\n" % (method, self.url, version.encode())]
        for name, value in self.headers:
            if name == b"connection":
                options = (one.strip() for one in value.split(b","))
                value = b", ".join(one for one in options if one.lower() != b"upgrade")
            if name != b"upgrade":
                head.append(b"%s: %s\r\n" % (name, value))
        self.parser = httptools.HttpRequestParser(self)
        # Like uvicorn's; httptools before 0.6.3 has none.
        with suppress(AttributeError):
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self.parser.feed_data(b"".join((*head, b"\r\n")))


class _Reading(FlowControl):
    """uvicorn's flow control. Each answered request resumes reading by it."""

    is_enough = False
    """Whether reading stays paused because enough requests wait."""

    def resume_reading(self) -> None:
        """Resume reading unless enough requests wait."""
        if not self.is_enough:
            super().resume_reading()


class _Receiving:
    """ASGI's `receive` of one request: once the request is complete, a half-closed connection is a closed one."""

    def __init__(self, protocol: AbortableProtocol, receive: Callable[[], Awaitable[Any]]) -> None:
        self._protocol = protocol
        self._receive = receive
        self._is_complete = False

    async def __call__(self) -> Any:
        """ASGI."""
        if self._is_gone():
            return {"type": "http.disconnect"}
        message = await self._receive()
        if self._is_gone():
            return {"type": "http.disconnect"}
        self._is_complete = message["type"] == "http.request" and not message["more_body"]
        return message

    def _is_gone(self) -> bool:
        return self._is_complete and self._protocol.is_half_closed


def abort(scope: Any) -> bool:
    """Abort the connection of a request. Returns whether its server supports that."""
    extension = scope.get("extensions", {}).get(EXTENSION)
    if extension is None:
        return False
    extension["abort"]()
    return True
