"""The bytes of a stream: each part that arrives is a sign of life (`silence`), and the bytes after the last event are
read, so that the connection outlives the stream and the next request needs no handshake.

An answer is complete with its last event. Closing the response there, as OpenAI's SDK does, leaves a few bytes unread:
HTTP/1.1 must then close the connection, and the next answer needs a new one, with up to three round trips before its
first token. The wait for the end has a limit, because a server may never send it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Any, ClassVar

from frameledger_services.providers import silence

LAST_EVENTS = (b"data: [DONE]", b"data:[DONE]", b"event: message_stop", b"event:message_stop")
"""The last events of OpenAI's streams and of Anthropic's. The space is optional."""

LOOKED_AT = 256
"""The number of last bytes in which the last event is searched."""

SECS = 0.1
"""Maximum time by which the end of the response may delay the end of the answer."""


def reading_to_the_end(http: Any) -> Callable[[Any], Awaitable[None]]:
    """Returns a response hook for clients of this library, httpx or its successor. An answer that is closed before its
    last event is closed at once, as without the hook."""

    class ReadToTheEnd(_ReadToTheEnd, http.AsyncByteStream):  # type: ignore[misc]  # which one is known only here
        transport_error = http.TransportError

    async def read_to_the_end(response: Any) -> None:
        stream = response.stream
        if isinstance(stream, http.AsyncByteStream):
            response.stream = ReadToTheEnd(stream)

    return read_to_the_end


def is_last(end: bytes) -> bool:
    """Returns whether the last event is in these bytes, the latest of the stream. It begins a line; the text of a model
    that explains such streams is in the middle of one."""
    return any(line.startswith(LAST_EVENTS) for line in end.splitlines())


class _ReadToTheEnd:
    transport_error: ClassVar[type[Exception]]

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._parts = aiter(stream)
        self._tail = b""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._parts:
            silence.hear()
            self._tail = (self._tail + part)[-LOOKED_AT:]
            yield part

    async def aclose(self) -> None:
        async with aclosing(self._stream):
            try:
                if is_last(self._tail):
                    with suppress(TimeoutError, self.transport_error):
                        async with asyncio.timeout(SECS):
                            async for _ in self._parts:
                                pass
            finally:
                # Otherwise the garbage collector ends it, in the middle of other work or after its event loop.
                if isinstance(self._parts, AsyncGenerator):
                    await self._parts.aclose()
