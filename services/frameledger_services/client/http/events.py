"""The lines of a response as it arrives, and the server-sent events of a gateway's streams, read as a browser's
`EventSource` reads them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator

from frameledger.values import value

MEDIA_TYPE = "text/event-stream"


@value
class Event:
    """An event of a stream."""

    name: str
    data: bytes


async def lines_of(pieces: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Yields each line of these pieces, without its end, once it is complete. Only a line feed ends a line."""
    begun = list[bytes]()
    async for piece in pieces:
        # A line may arrive in thousands of pieces, so they are joined only once.
        rest, *others = piece.split(b"\n")
        begun.append(rest)
        for other in others:
            yield b"".join(begun)
            begun = [other]


async def events(lines: AsyncIterator[bytes]) -> AsyncGenerator[Event, None]:
    """Yields the events that have data. Comments, which are heartbeats, are skipped."""
    name, data = b"message", list[bytes]()
    async for line in lines:
        field, _, text = line.removesuffix(b"\r").partition(b":")
        text = text.removeprefix(b" ")
        if field == b"event":
            name = text
        elif field == b"data":
            data.append(text)
        elif not field and not text:
            if data:
                yield Event(name.decode(errors="replace"), b"\n".join(data))
            name, data = b"message", []
