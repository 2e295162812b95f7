"""`Client`: publish frames to the log, and read from the tables what became of them."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from frameledger.context import LLMContext
from frameledger.errors import RefusedError
from frameledger.frames import LLMSetToolsFrame
from frameledger.ids import ContextId
from frameledger.record import Outgoing, outgoing
from frameledger.tools import Tools, tools_to_wire
from frameledger_services import access
from frameledger_services.client import published, reading
from frameledger_services.client.connections import Connections
from frameledger_services.client.errors import FramesRefusedError, FramesUnacknowledgedError
from frameledger_services.client.given import Given, Taken, Taking
from frameledger_services.client.misspelled import warn_of_misspelled
from frameledger_services.client.projected import Projected
from frameledger_services.client.published import Published
from frameledger_services.client.reading import StoredContext, StoredFrame
from frameledger_services.client.visible import until_visible
from frameledger_services.event_log.frame_defaults import note_published, was_published
from frameledger_services.event_log.producer import Producer, PublishError
from frameledger_services.event_log.topics import TopicNames
from frameledger_services.settings import Settings

if TYPE_CHECKING:
    from frameledger_services.providers.out_of_band import OutOfBand

SOURCE = "frameledger/client"
WITHIN = 30.0
FRAMES_AT_ONCE = 500

LISTEN_SECONDS = 1.0
"""What is published is not held up any longer by a database that does not answer."""


class RepeatedWarning(UserWarning):
    """A frame object whose publishing had succeeded was published once more, which says nothing new."""


class Client:
    """The way in and the way back, for one event loop.

    Kafka is connected to by the first `publish`, the database by the first question to it: who only reads needs no
    broker, and who only publishes no database. Tasks may share a client. It ends with `close`, or at the end of
    `async with`.
    """

    def __init__(self, settings: Settings, *, source: str = SOURCE) -> None:
        """`source` names the publisher in the frames' headers, as a URI reference."""
        self._settings = settings
        self._source = source
        self._topic = TopicNames(settings.topic_prefix).frames
        self._producer = Producer(settings, name="frameledger-client")
        self._connections = Connections(settings)
        self._projected = Projected(settings)
        self._out_of_band: OutOfBand | None = None
        self._taking = Taking()
        # Of nobody's task group: one would cancel whoever uses the client when listening fails.
        self._listening: asyncio.Task[None] | None = None
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End it: what was taken for publishing is still sent, for a few seconds at most. Closing twice does nothing;
        anything else then raises RuntimeError."""
        self._closed = True
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.cancel()
            await asyncio.wait([listening])
        try:
            await self._producer.__aexit__()
        finally:
            await self._connections.close()
            if self._out_of_band is not None:
                await self._out_of_band.close()

    async def publish(
        self,
        context_id: str,
        *frames: Given,
        source: str | None = None,
        traceparent: str | None = None,
        wait: bool = False,
        within: float = WITHIN,
    ) -> tuple[Published, ...]:
        """Publish frames of a conversation in their order; where each lies on the log, once all replicas have it.

        A frame is an object of ours, its JSON as a mapping, or as text; lists of these are taken too. One without an id
        gets a random one, and one without `produced_at` the time. With `wait` it returns when all of them are in the
        tables, or were rejected, and says of each which version of the context it made and what became of it; a
        database that is away is waited for. `within` is for all of that, in seconds.

        To try again is safe: publish the same frame objects again, or those that the error has, or frames with the ids
        of the first time. A frame that comes twice counts once. So a frame object says one thing once, and
        `RepeatedWarning` is given for one whose publishing has succeeded already: who wants to say the same words again
        makes a new frame. Mappings and texts are new frames each time, but for the very object whose publishing failed.

        A type or a field that is not known is published; if it is one letter from one that is, `MisspelledWarning`.

        Before anything is published it raises TypeError for what is no frame, ValueError for a frame or a context id
        that nobody could read, `SettingsError` if no database is set and `wait` needs one, and `BrokerError` when there
        is no broker or no topic. Afterwards `NotPublishedError` and `NotVisibleError`, which have the frames.
        """
        self._check_open()
        deadline = asyncio.get_running_loop().time() + within
        taken = self._taking.take(_context_id(context_id), frames)
        records = [
            outgoing(
                one.complete, ContextId(context_id), source=source or self._source, traceparent=traceparent
            )
            for one in taken
        ]
        self._warn(context_id, taken)
        if wait:
            await self._listen(within=min(within, LISTEN_SECONDS))
        try:
            found = await self._publish(taken, records, within)
            if wait and found:
                complete = [one.complete for one in taken]
                found = await until_visible(
                    self._connections, self._projected, context_id, found, complete, deadline=deadline
                )
        except BaseException:
            # A cancellation too: whoever gave up waiting may try again.
            self._taking.note_unsure(context_id, taken)
            raise
        self._taking.note_published(context_id, taken)
        for one in taken:
            note_published(one.frame, context_id)
        return found

    async def set_tools(
        self, context_id: str, tools: Tools | None, *, wait: bool = False, within: float = WITHIN
    ) -> tuple[Published, ...]:
        """Publish which tools the model may call from here on: schemas, a `ToolsSchema`, or definitions in wire form.

        It only says so; `FunctionService.set_tools` also runs functions of yours. Raises TypeError for what is no tool,
        and what `publish` raises.
        """
        return await self.publish(
            context_id, LLMSetToolsFrame(tools=tools_to_wire(tools)), wait=wait, within=within
        )

    async def context(self, context_id: str, version: int | None = None) -> StoredContext:
        """The context as it is in the tables, or as it was at a version: 0, 1, 2 ... frames.

        Raises `NoSuchContextError`, `NoSuchVersionError`, `DatabaseError`, and `SchemaError` for a database that
        another release made.
        """
        self._check_open()
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
        self._check_open()
        if isinstance(context, str):
            context = (await self.context(context, version)).context
        if self._out_of_band is None:
            # Imported here: most clients ask no model, and the providers cost them a quarter of a second.
            from frameledger_services.providers.out_of_band import OutOfBand

            self._out_of_band = OutOfBand(self._settings)
        return await self._out_of_band.run_inference(context, max_tokens, system_instruction)

    async def frames(self, context_id: str, after_version: int = 0) -> AsyncGenerator[StoredFrame, None]:
        """The frames of a conversation that are stored by now, in order; of one that is not there none."""
        while found := await self._frames(context_id, after_version):
            for frame in found:
                yield frame
            after_version = found[-1].version

    async def follow(self, context_id: str, after_version: int = 0) -> AsyncGenerator[StoredFrame, None]:
        """The frames of a conversation after a version, in order, each once, as they are stored; for ever.

        A conversation that does not exist yet is waited for. What becomes of a parked frame later is not told. Raises
        `SettingsError` if no database is set.
        """
        await self._listen(within=LISTEN_SECONDS)
        partition = await self._connections.read(reading.partition_of, context_id)
        while True:
            signal = self._projected.signal()
            seen = None if partition is None else self._projected.offset(self._topic, partition)
            found = await self._frames(context_id, after_version)
            for frame in found:
                yield frame
                after_version, partition = frame.version, frame.partition
            if not found and partition is not None:
                await self._projected.moved(self._topic, partition, seen)
            elif not found:
                await self._projected.wait(signal)

    async def newest_version(self, context_id: str) -> int:
        """How many frames of a conversation are stored; 0 for one that is not there."""
        self._check_open()
        return await self._connections.read(reading.newest_version, context_id)

    async def _publish(
        self, taken: Sequence[Taken], records: Sequence[Outgoing], within: float
    ) -> tuple[Published, ...]:
        try:
            places = await self._producer.publish(self._topic, records, within=within)
        except PublishError as error:
            left = [one.complete for one, place in zip(taken, error.places, strict=True) if place is None]
            kind = FramesRefusedError if isinstance(error, RefusedError) else FramesUnacknowledgedError
            raise kind(str(error), left) from error
        return tuple(
            published.acknowledged(place, one.complete) for place, one in zip(places, taken, strict=True)
        )

    async def _frames(self, context_id: str, after_version: int) -> list[StoredFrame]:
        self._check_open()
        return await self._connections.read(
            reading.frames_after, context_id, after_version, limit=FRAMES_AT_ONCE
        )

    async def _listen(self, *, within: float) -> None:
        """Have notifications listened to, and wait until they are, or cannot be for now: waiting works without too."""
        self._check_open()
        if self._listening is None or self._listening.done():
            # Raises SettingsError here, where the caller is.
            access.database_address(self._settings)
            self._listening = asyncio.create_task(self._projected.listen())
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._projected.started()

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("This client is closed.")

    def _warn(self, context_id: str, taken: Sequence[Taken]) -> None:
        for one in taken:
            warn_of_misspelled(one.frame)
            if was_published(one.frame, context_id):
                warnings.warn(
                    f"{one.complete.name} was published to {context_id} before and counts once: to say the same again, "
                    "make a new frame, as with frame.model_copy().",
                    RepeatedWarning,
                    stacklevel=3,
                )


def _context_id(context_id: object) -> str:
    if not isinstance(context_id, str):
        raise TypeError(
            f"A context id is text, and publish() was given {context_id!r}; the frames come after it."
        )
    return context_id
