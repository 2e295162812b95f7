"""Streams of the gateway: a projector without Kafka on one side, a client like a browser on the other."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
from tests.bounds import ON_SERVERS
from tests.support.batches import PARTITIONS, TOPIC, Log, Projecting
from tests.support.polling import look_again

from frameledger_services.embedded import ports
from frameledger_services.gateway import service
from frameledger_services.settings import Settings
from frameledger_services.store import progress_channel

HOST = "127.0.0.1"
NO_KAFKA = f"{HOST}:1"
"""The Kafka address for a gateway that publishes nothing."""


class Talks(Projecting):
    """Growing conversations: frames are stored and notified like by a projector."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self._log = Log()

    async def __aenter__(self) -> Talks:
        await super().__aenter__()
        await self.connection.execute(
            "INSERT INTO topics (topic, partitions) VALUES (%s, %s) ON CONFLICT DO NOTHING",
            (TOPIC, PARTITIONS),
        )
        return self

    async def say(self, context_id: str, *texts: str, notify: bool = True) -> None:
        """Append a message for each text."""
        await self.frames(
            context_id,
            *(
                {"type": "LLMMessagesAppendFrame", "messages": [{"role": "user", "content": text}]}
                for text in texts
            ),
            notify=notify,
        )

    async def frames(
        self,
        context_id: str,
        *frames: Any,
        notify: bool = True,
        headers: tuple[tuple[str, bytes], ...] = (),
    ) -> None:
        """Append frames, each as JSON or as its bytes."""
        before = len(self._log.records)
        for frame in frames:
            value = frame if isinstance(frame, bytes) else json.dumps(frame).encode()
            self._log.add(context_id, value, headers=headers)
        records = self._log.records[before:]
        await self.store(records)
        if notify:
            offsets = {record.partition: record.offset + 1 for record in records}
            await progress_channel.notify_progress(self.connection, TOPIC, offsets, [context_id])

    async def notify_of_anything(self) -> None:
        """Notify, without naming the changed conversations."""
        await progress_channel.notify_progress(self.connection, TOPIC, {})


@dataclass(frozen=True, slots=True)
class Event:
    """An event as a browser's EventSource returns it; `id` is the position from which it would resume."""

    name: str
    data: Any
    id: str | None


class Stream:
    """One response."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self.comments: list[str] = []
        self.retry: int | None = None
        self._lines = _lines(response)
        self._id: str | None = None

    async def __aiter__(self) -> AsyncIterator[Event]:
        name = "message"
        data: list[str] = []
        async for line in self._lines:
            field, _, text = line.partition(":")
            text = text.removeprefix(" ")
            match field:
                case "" if line:
                    self.comments.append(text)
                case "":
                    if data:
                        yield Event(name, json.loads("\n".join(data)), self._id)
                    name = "message"
                    data = []
                case "event":
                    name = text
                case "data":
                    data.append(text)
                case "id":
                    self._id = text
                case "retry":
                    self.retry = int(text)

    async def until(self, name: str, version: int | None = None) -> list[Event]:
        """Returns the events up to the first one of this name and, if given, of this version."""
        found: list[Event] = []
        async with asyncio.timeout(ON_SERVERS):
            async for event in self:
                found.append(event)
                if event.name == name and version in (None, event.data.get("version")):
                    return found
        raise AssertionError(f"the stream ended without {name} {version}: {found}")


async def _lines(response: httpx.Response) -> AsyncIterator[str]:
    """Yields the lines of a body. httpx would also split at other Unicode line breaks within a text."""
    rest = b""
    async for part in response.aiter_bytes():
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            yield line.decode()


@asynccontextmanager
async def streaming(
    port: int, context_id: str, query: str = "", last: str | None = None, token: str | None = None
) -> AsyncIterator[Stream]:
    """Yields a stream of a gateway on this port."""
    headers = {} if last is None else {"Last-Event-ID": last}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    async with (
        # Without TLS: reading the certificates of all authorities takes longer than everything else.
        httpx.AsyncClient(timeout=ON_SERVERS, verify=False) as client,
        client.stream(
            "GET", f"http://{HOST}:{port}/v1/contexts/{context_id}/stream{query}", headers=headers
        ) as response,
    ):
        yield Stream(response)


class Browser:
    """A client that reconnects with its version whenever its connection breaks, until it gets 204."""

    def __init__(self, port: int, context_id: str) -> None:
        self.events: list[Event] = []
        self.connections = 0
        self._port, self._context_id = port, context_id

    async def run(self) -> None:
        while True:
            last = self.events[-1].id if self.events else None
            try:
                async with streaming(self._port, self._context_id, last=last) as stream:
                    self.connections += 1
                    if stream.response.status_code == 204:
                        return
                    assert stream.response.status_code == 200, await stream.response.aread()
                    async for event in stream:
                        self.events.append(event)
            except httpx.TransportError:
                await look_again()

    @property
    def versions(self) -> list[int]:
        return [event.data["version"] for event in self.events if event.name == "frame"]


@asynccontextmanager
async def gateway(settings: Settings) -> AsyncIterator[int]:
    """Run a gateway in this process. Yields its port."""
    port = ports.choose(0)
    stopping = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(service.serve(settings.model_copy(update={"gateway_port": port}), stopping))
        try:
            await is_up(port)
            yield port
        finally:
            stopping.set()


async def is_up(port: int) -> None:
    async with asyncio.timeout(ON_SERVERS), httpx.AsyncClient(verify=False) as client:
        while True:
            try:
                await client.get(f"http://{HOST}:{port}/livez")
                return
            except httpx.TransportError:
                await look_again()


def versions(events: Sequence[Event]) -> list[int]:
    return [event.data["version"] for event in events if event.name == "frame"]
