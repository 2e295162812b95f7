"""The yardstick of live streams: a bare ASGI app on uvicorn that sends the same bytes. Run as a process.

It keeps the frames in memory: for each conversation one that is there from the beginning, and the others at a pace once
all streams are connected. Each stream gets a frame as an event when its turn comes. It gives no guarantees: a stream
that is not connected then misses the frame.

Its arguments are the port, and the numbers of streams, of conversations, of frames of each, of frames per second, and
of bytes per frame. At SIGTERM it writes, as a JSON list of lists, for each conversation the Unix time in seconds of
each frame, in order.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import defaultdict
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote
from uuid import UUID

from frameledger.frames import AnyFrame, encode_frame
from frameledger_services import process
from frameledger_services.bench.gateway.bare_server import serving
from frameledger_services.bench.road.pace import at_pace
from frameledger_services.bench.road.stream import context_ids, interleaved
from frameledger_services.gateway.live import stream_events
from frameledger_services.store.following import StreamHead
from frameledger_services.store.wanted_frames import PagedFrame


class Conversation:
    """The events of a conversation so far, and the streams that wait for the next one."""

    def __init__(self) -> None:
        self.events: list[bytes] = []
        self.times: list[float] = []
        self.changed = asyncio.Event()

    def add(self, event: bytes) -> None:
        self.times.append(time.time())
        self.events.append(event)
        self.changed.set()
        self.changed = asyncio.Event()


class BareStreams:
    """The ASGI app and the conversations that it sends."""

    def __init__(self, streams: int) -> None:
        self._missing = streams
        self.all_there = asyncio.Event()
        self.conversations: defaultdict[str, Conversation] = defaultdict(Conversation)
        self._is_over = False

    def end(self) -> None:
        """End all streams: uvicorn would log each stream that it cuts off."""
        self._is_over = True
        for conversation in self.conversations.values():
            conversation.changed.set()

    async def __call__(self, scope: Any, _: Any, send: Any) -> None:
        """ASGI."""
        conversation = self.conversations[unquote(scope["path"].split("/")[3])]
        await send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [(b"content-type", b"text/event-stream")],
            }
        )
        self._missing -= 1
        if not self._missing:
            self.all_there.set()
        sent = 0
        while not self._is_over:
            changed = conversation.changed
            for event in conversation.events[sent:]:
                sent += 1
                await send({"type": "http.response.body", "body": event, "more_body": True})
            await changed.wait()
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def serve(
    stopping: asyncio.Event, port: int, streams: int, contexts: int, each: int, rate: int, size: int
) -> None:
    """Serve and send all frames until SIGTERM. Then write the times at which they were sent."""
    app = BareStreams(streams)
    names = context_ids(contexts)
    versions = dict.fromkeys(names, 0)

    async def say(named_frame: tuple[str, AnyFrame]) -> None:
        name, frame = named_frame
        versions[name] += 1
        app.conversations[name].add(_event(versions[name], frame))

    frames = interleaved(contexts, each, size)
    for _ in names:
        await say(next(frames))
    async with serving(app, port):
        await app.all_there.wait()
        await at_pace(say, frames, rate)
        await stopping.wait()
        app.end()
    print(json.dumps([app.conversations[name].times for name in names]))


def _event(version: int, frame: AnyFrame) -> bytes:
    stored = PagedFrame(
        version=version,
        frame_id=UUID(frame.id),
        type=frame.type,
        outcome="applied",
        reason=None,
        logged_at=datetime.now(UTC),
        produced_at=None,
        source=None,
        run_id=None,
        tool_call_id=None,
        causation_id=None,
        trace_id=None,
        partition=0,
        generation=1,
        offset=version,
        payload=encode_frame(frame),
    )
    return stream_events.frame(stored) + stream_events.head(StreamHead(version, "quiet", False, None))


if __name__ == "__main__":
    arguments = [int(one) for one in sys.argv[1:]]
    process.run_service(lambda stopping: serve(stopping, *arguments))
