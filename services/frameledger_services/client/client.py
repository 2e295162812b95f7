"""`Client`: publish frames to the log, and read from the tables what became of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Self

from frameledger.context import LLMContext
from frameledger.frames import AnyFrame
from frameledger.ids import ContextId
from frameledger.record import Place, outgoing
from frameledger_services.client import reading
from frameledger_services.client.connections import Connections
from frameledger_services.client.projected import Projected
from frameledger_services.client.reading import StoredContext, StoredFrame
from frameledger_services.event_log.completing import completed
from frameledger_services.event_log.producer import Producer, PublishError
from frameledger_services.event_log.topics import Topics
from frameledger_services.providers.out_of_band import OutOfBand
from frameledger_services.settings import Settings

SOURCE = "frameledger/client"
WITHIN = 30.0
FRAMES_AT_ONCE = 500


class NotPublishedError(Exception):
    """Some frames are not known to be on the log. `frames` are those, complete with their ids, in their order.

    They may still arrive. To publish them again is safe: a frame that comes twice counts once.
    """

    def __init__(self, sentence: str, frames: Sequence[AnyFrame]) -> None:
        super().__init__(sentence)
        self.frames = tuple(frames)


class NotVisibleError(Exception):
    """The frames are on the log, at `places`, and did not get into the tables in time. They will, or be rejected."""

    def __init__(self, sentence: str, places: Sequence[Place]) -> None:
        super().__init__(sentence)
        self.places = tuple(places)


class Client:
    """The way in and the way back, for one event loop. An async context manager.

    Kafka is connected to by the first `publish`, the database by the first question to it: who only reads needs no
    broker, and who only publishes no database. Tasks may share a client.
    """

    def __init__(self, settings: Settings, *, source: str = SOURCE) -> None:
        """`source` names the publisher in the frames' headers, as a URI reference."""
        self._source = source
        self._topic = Topics(settings.topic_prefix).frames
        self._producer = Producer(settings, name="frameledger-client")
        self._connections = Connections(settings)
        self._projected = Projected(settings)
        self._out_of_band = OutOfBand(settings)
        self._tasks = asyncio.TaskGroup()
        self._listening: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._listening is not None:
            self._listening.cancel()
        try:
            # Not told of the caller's exception, which it would wrap.
            await self._tasks.__aexit__(None, None, None)
        finally:
            await self._producer.__aexit__()
            await self._connections.close()
            await self._out_of_band.close()

    async def publish(
        self,
        context_id: str,
        *frames: AnyFrame,
        source: str | None = None,
        traceparent: str | None = None,
        wait: bool = False,
        within: float = WITHIN,
    ) -> tuple[Place, ...]:
        """Publish frames of a conversation in their order; where each lies on the log, once all replicas have it.

        A frame without an id gets a random one, and one without `produced_at` the time. With `wait` it returns when
        all of them are in the tables, or were rejected. `within` is for both, in seconds.

        Raises ValueError for a frame or a context id that nobody could read, before anything is published;
        `NotPublishedError`, `NotVisibleError`, and `BrokerError` when there is no broker or no topic.
        """
        deadline = asyncio.get_running_loop().time() + within
        complete = [completed(frame) for frame in frames]
        records = [
            outgoing(frame, ContextId(context_id), source=source or self._source, traceparent=traceparent)
            for frame in complete
        ]
        if wait:
            await self._listen()
        try:
            places = await self._producer.publish(self._topic, records, within=within)
        except PublishError as error:
            left = [frame for frame, place in zip(complete, error.places, strict=True) if place is None]
            raise NotPublishedError(str(error), left) from error
        if wait and places:
            await self._until_visible(places, deadline)
        return tuple(places)

    async def context(self, context_id: str, version: int | None = None) -> StoredContext:
        """The context as it is in the tables, or as it was at a version: 0, 1, 2 ... frames.

        Raises `NoSuchContextError`, `NoSuchVersionError`, `DatabaseError`, and `SchemaError` for a database that
        another release made.
        """
        return await self._connections.read(reading.context, context_id, version)

    async def run_inference(
        self,
        context: str | LLMContext,
        max_tokens: int | None = None,
        system_instruction: str | None = None,
        *,
        version: int | None = None,
    ) -> str | None:
        """Ask a model about a context, given or named by its id: its text, or null if it says nothing.

        It is asked from this process, by the provider that the settings name, and publishes nothing. `max_tokens` and
        `system_instruction` replace what service and context say. Raises `ProviderError`, `NoSuchProviderError`, and
        for an id what `context` raises.
        """
        if isinstance(context, str):
            context = (await self.context(context, version)).context
        return await self._out_of_band.run_inference(context, max_tokens, system_instruction)

    async def frames(self, context_id: str, after_version: int = 0) -> AsyncGenerator[StoredFrame, None]:
        """The frames of a conversation that are stored by now, in order; of one that is not there none."""
        while found := await self._frames(context_id, after_version):
            for frame in found:
                yield frame
            after_version = found[-1].version

    async def follow(self, context_id: str, after_version: int = 0) -> AsyncGenerator[StoredFrame, None]:
        """The frames of a conversation after a version, in order, each once, as they are stored; for ever.

        A conversation that does not exist yet is waited for. What becomes of a parked frame later is not told.
        """
        await self._listen()
        while True:
            signal = self._projected.signal()
            found = await self._frames(context_id, after_version)
            for frame in found:
                yield frame
                after_version = frame.version
            if not found:
                await self._projected.wait(signal)

    async def newest_version(self, context_id: str) -> int:
        """How many frames of a conversation are stored; 0 for one that is not there."""
        return await self._connections.read(reading.newest_version, context_id)

    async def _frames(self, context_id: str, after_version: int) -> list[StoredFrame]:
        return await self._connections.read(
            reading.frames_after, context_id, after_version, limit=FRAMES_AT_ONCE
        )

    async def _until_visible(self, places: Sequence[Place], deadline: float) -> None:
        # All are of one conversation, and so of one partition.
        last = max(places, key=lambda place: place.offset)
        loop = asyncio.get_running_loop()
        # Not looked for before that: the look would meet the frame in the database, and hold it up.
        await self._projected.passed(last, within=deadline - loop.time())
        while True:
            signal = self._projected.signal()
            reached = await self._connections.read(reading.next_offset, last.topic, last.partition)
            if reached is not None and reached > last.offset:
                return
            left = deadline - loop.time()
            if left <= 0:
                raise NotVisibleError(_not_visible(last, reached), places)
            await self._projected.wait(signal, within=left)

    async def _listen(self) -> None:
        if self._listening is None:
            self._listening = self._tasks.create_task(self._projected.listen())
        await self._projected.started()


def _not_visible(last: Place, reached: int | None) -> str:
    where = f"{last.topic}, partition {last.partition}"
    if reached is None:
        progress = "no projector has ever read that partition"
    else:
        progress = f"the projector has come to offset {reached}, {last.offset + 1 - reached} records before"
    return (
        f"Published, but not in the tables in time: the last frame lies at offset {last.offset} of {where}, and "
        f"{progress}. Is a projector running (`frameledger status`)?"
    )
