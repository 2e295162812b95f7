"""Server-sent events, read as a browser's `EventSource` reads them, of a gateway's streams."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator

from frameledger.values import value

MEDIA_TYPE = "text/event-stream"


@value
class Event:
    """An event of a stream."""

    name: str
    data: bytes


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
