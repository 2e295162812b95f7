"""`Client`: publish frames to the log, and read their outcomes from the tables."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from frameledger.context import LLMContext
from frameledger.errors import RefusedError
from frameledger.frames import LLMContextEraseFrame
from frameledger_services import access
from frameledger_services.client import forking, outcomes, reading
from frameledger_services.client.conversations import WITHIN, Conversations
from frameledger_services.client.erasing import NotErasedError, Receipt
from frameledger_services.client.errors import FramesRefusedError, FramesUnacknowledgedError
from frameledger_services.client.forking import Fork
from frameledger_services.client.frame_inputs import FrameInput
from frameledger_services.client.metrics import PublishMetrics
from frameledger_services.client.notifications import RECONNECT_SECONDS, Notifications
from frameledger_services.client.outcomes import PublishedFrame
from frameledger_services.client.publication import Publication, Publications, checked_context_id
from frameledger_services.client.reading import StoredContext, StoredFrame
from frameledger_services.client.waiting import until_stored
from frameledger_services.event_log.producer import Producer
from frameledger_services.event_log.publish_errors import PublishError
from frameledger_services.event_log.topics import TopicNames
from frameledger_services.settings import Settings
from frameledger_services.store import erasures
from frameledger_services.store.connections import MAX_CONNECTIONS, Connections, DatabaseUnavailableError
from frameledger_services.store.frame_ids import frame_uuid
from frameledger_services.telemetry import names
from frameledger_services.telemetry.message_spans import sending
from frameledger_services.telemetry.metrics_recorder import NO_METRICS, Metrics

if TYPE_CHECKING:
    from frameledger_services.providers.out_of_band import OutOfBand

SOURCE = "frameledger/client"
FRAMES_AT_ONCE = 500

LISTEN_SECONDS = 1.0
"""Maximum time that publishing waits for a database that does not answer."""


class Client(Conversations):
    """Publishes frames and reads conversations, on one event loop: on another one, `publish` and methods that wait for
    frames raise RuntimeError.

    The first `publish` connects to Kafka, and the first query to the database: a client that only reads needs no
    broker, and one that only publishes needs no database. Tasks may share a client. Close it with `close`, or use it
    with `async with`.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        source: str = SOURCE,
        connections: int = MAX_CONNECTIONS,
        metrics: Metrics = NO_METRICS,
        warns_of_misspelled: bool = True,
    ) -> None:
        """Without settings it uses `Settings.from_env()`: the environment, and a stack that `frameledger up` runs in
        this folder or a parent folder. Raises `SettingsError` for an invalid environment.

        `source` names the publisher in the frames' headers, as a URI reference. `connections` is the maximum number of
        connections to the database, besides the one that listens. `metrics` receives the metrics, for instance a
        `ProcessMetrics` over the registry that your program exposes. `warns_of_misspelled=False` disables the check for
        misspelled names, for frames that come from other programs.
        """
        self._settings = settings = Settings.from_env() if settings is None else settings
        self._source = source
        self._topic = TopicNames(settings.topic_prefix).frames
        self._producer = Producer(settings, name="frameledger-client")
        self._connections = Connections(settings, most=connections)
        self._notifications = Notifications(settings)
        self._out_of_band: OutOfBand | None = None
        self._publications = Publications(warns_of_misspelled=warns_of_misspelled)
        self._metrics = PublishMetrics(metrics)
        # Not in a task group: one would cancel the caller when listening fails.
        self._listening: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        """The event loop on which the client publishes and listens; None before the first use."""

        self._closed = False

    async def close(self) -> None:
        """Close all connections. Frames that are being published are still sent, for a few seconds at most. A second
        call does nothing; every other method then raises RuntimeError."""
        self._closed = True
        # The last one first, and all of them even if the caller is cancelled meanwhile.
        async with AsyncExitStack() as stack:
            if self._out_of_band is not None:
                stack.push_async_callback(self._out_of_band.close)
            stack.push_async_callback(self._connections.close)
            stack.push_async_callback(self._producer.__aexit__)
            listening, self._listening = self._listening, None
            if listening is not None:
                listening.cancel()
                await asyncio.wait([listening])

    async def publish(
        self,
        context_id: str,
        *frames: FrameInput,
        source: str | None = None,
        traceparent: str | None = None,
        expected_version: int | None = None,
        causation_id: UUID | str | None = None,
        wait: bool = False,
        within: float = WITHIN,
    ) -> tuple[PublishedFrame, ...]:
        """Publish frames of one conversation, in order. Returns the position of each on the log, once all in-sync
        replicas have it.

        A frame is a frame object, its JSON as a mapping, or its JSON as text; lists of these are accepted too. A frame
        without an id gets a random one, and one without `produced_at` the current time. `causation_id` is the id of the
        frame of this conversation that caused them; None if no frame did. With `wait` it returns once all frames are in
        the tables or rejected, and each then has its `version`, `outcome` and `reason`; it waits through an outage of
        the database. All of it may take `within` seconds.

        Publishing again after an error is safe with the same frame objects, with the `frames` of the error, or with
        frames of the same ids: a repeated frame counts once. A frame object is therefore one frame for ever, and
        publishing it again after a success warns (`RepeatedWarning`); to say the same again, create a new object.
        Mappings and texts are new frames each time, unless publishing that very object failed.

        With `expected_version` the one frame counts only if nobody has changed messages, tools or settings after that
        version (`expected_version` of the frame, rule RA5.expected): of several publishers that continue from one
        version one is accepted. With `wait` the others get `ContextChangedError`; without, their frames are stored as
        ignored (`context_changed`). 0 expects a conversation that has nothing yet. To try again, make a new frame.

        An unknown type or field is published unchanged. If it is one edit away from a known one, there is a
        `MisspelledWarning`; only the first hundred unknown names are checked.

        Raises before anything is published: TypeError for a value that is not a frame, ValueError for an invalid frame,
        context id or `causation_id`, or for a frame that cannot expect a version, `SettingsError` if no broker is set,
        or no database and `wait` needs one, and `BrokerError` if the broker is unreachable or has no such topic. Raises
        afterwards, always with the frames: `NotPublishedError`, which is `FramesUnacknowledgedError` or
        `FramesRefusedError`, `NotVisibleError`, and `ContextChangedError`.
        """
        self._check_open()
        deadline = self._check_loop().time() + within
        publication = self._publications.prepare(
            context_id,
            frames,
            source=source or self._source,
            expected_version=expected_version,
            causation_id=causation_id,
        )
        if wait:
            # Each takes some round trips, and neither needs the other.
            self._producer.begin(self._topic)
            await self._listen(within=min(within, LISTEN_SECONDS))
            # It may have been closed meanwhile.
            self._check_open()
        with self._publications.sending(publication), self._metrics.publishing():
            published = await self._publish(publication, within, traceparent)
            if wait:
                published = await until_stored(
                    self._connections,
                    self._notifications,
                    context_id,
                    published,
                    publication.frames,
                    deadline=deadline,
                )
        publication.check_expected(published)
        return published

    async def until_stored(
        self, context_id: str, published: Sequence[PublishedFrame], *, within: float = WITHIN
    ) -> tuple[PublishedFrame, ...]:
        """Wait for the result of `publish` without `wait`: returns the same frames once all are in the tables or
        rejected, each with its `version`, `outcome` and `reason`. May be called again.

        Raises `NotVisibleError` after `within` seconds, without the frames, and `SettingsError` if no database is set.
        """
        deadline = asyncio.get_running_loop().time() + within
        await self._listen(within=min(within, LISTEN_SECONDS))
        return await until_stored(
            self._connections, self._notifications, context_id, published, (), deadline=deadline
        )

    async def fork(
        self,
        context_id: str,
        new_context_id: str,
        *,
        version: int | None = None,
        run: bool = False,
        within: float = WITHIN,
    ) -> Fork:
        """Continue a conversation from a version, by default its newest one, as a new conversation. The original is
        only read.

        Returns once the fork is folded. With `run` the fork requests a run. Calls that were running are cancelled in
        the fork. A second call with the same arguments, from any process, repeats nothing; without a version, the
        arguments name another moment as soon as a frame has arrived.

        Raises `ForkRefusedError` if the new conversation exists and is not this fork, or if the context is larger than
        a frame may be, and everything that `context` and `publish` raise.
        """
        self._check_open()
        if not reading.may_exist(context_id):
            raise reading.NoSuchContextError(context_id)
        checked_context_id(new_context_id)
        version = None if version is None else reading.whole(version)
        moment = await self._connections.read(forking.moment, context_id, version)
        repeated = await self._connections.read(forking.check_free, new_context_id, moment.origin)
        opening = forking.opening(moment.origin, new_context_id, moment.snapshot())
        forking.check_size(opening, moment.origin)
        published = await self.publish(new_context_id, opening, wait=True, within=within)
        if published[0].outcome != "applied":
            raise forking.was_taken(new_context_id, published[0].reason)
        if behind := forking.behind(moment, new_context_id, run=run):
            published += await self.publish(new_context_id, *behind, wait=True, within=within)
        repeated = repeated and all(one.repeated for one in published)
        newest = max(one.version or 0 for one in published)
        return Fork(new_context_id, newest, moment.origin, repeated)

    async def erase(
        self,
        context_id: str,
        *,
        why: str,
        requested_by: str | None = None,
        within: float = WITHIN,
        on_log: Callable[[PublishedFrame], object] | None = None,
    ) -> Receipt:
        """Erase a conversation, even if Kafka still has older records of it, and return the receipt.

        It publishes an `LLMContextEraseFrame`, and waits until a projector has deleted the conversation; a rebuild from
        the log honours the record, too. A conversation that is not in the tables is also erased. A frame that is
        published later begins a new conversation with that id, unless the setting `erased_ids` refuses it. `why` and
        `requested_by` stay in the receipt. `on_log` is called once the record is on the log: from then on the
        conversation is erased as soon as a projector reads it, whatever happens to the caller.

        Raises `NotErasedError` and what `publish` raises. After `NotVisibleError` the conversation is erased as soon as
        a projector reads the record; nothing has to be published again.
        """
        frame = LLMContextEraseFrame(id=str(uuid4()), why=why, requested_by=requested_by)
        deadline = asyncio.get_running_loop().time() + within
        await self._listen(within=min(within, LISTEN_SECONDS))
        published = await self.publish(context_id, frame, within=within)
        if on_log is not None:
            on_log(published[0])
        (stored,) = await until_stored(
            self._connections, self._notifications, context_id, published, [frame], deadline=deadline
        )
        receipt = await self.receipt(context_id, stored.frame_id)
        if receipt is None:
            raise NotErasedError(context_id, stored)
        return receipt

    async def receipt(self, context_id: str, frame_id: str) -> Receipt | None:
        """Returns the receipt of the erasure that was published under this id; None if no projector has applied it yet.
        Raises `DatabaseError`, `SchemaError` and `SettingsError`, like `context`."""
        self._check_open()
        return await self._connections.read(erasures.receipt, context_id, frame_uuid(frame_id))

    async def context(self, context_id: str, version: int | None = None) -> StoredContext:
        """Returns the newest stored context of a conversation, or the one at a version, which counts its frames from 0.

        Raises `NoSuchContextError`, `NoSuchVersionError`, `DatabaseError` (`DatabaseUnavailableError` if a retry may
        help), `SchemaError` for a database of another release, and `SettingsError` if no database is set.
        """
        self._check_open()
        if not reading.may_exist(context_id):
            raise reading.NoSuchContextError(context_id)
        version = None if version is None else reading.whole(version)
        return await self._connections.read(reading.context, context_id, version)

    async def run_inference(
        self,
        context: str | LLMContext,
        max_tokens: int | None = None,
        system_instruction: str | None = None,
        *,
        version: int | None = None,
    ) -> str | None:
        """Send a context, or the stored one of that id, to a model. Returns its text, or None if there is none.

        This process sends the request to the provider in the settings; nothing is published. `max_tokens` and
        `system_instruction` replace those of service and context. Raises `ProviderError`, `NoSuchProviderError`,
        `MissingExtraError` if no extra with providers is installed, and for an id what `context` raises.
        """
        self._check_open()
        if isinstance(context, str):
            context = (await self.context(context, version)).context
            # It may have been closed meanwhile.
            self._check_open()
        if self._out_of_band is None:
            # Imported here: most clients use no model, and importing the providers takes a quarter of a second.
            from frameledger_services.providers.out_of_band import OutOfBand

            self._out_of_band = OutOfBand(self._settings)
        return await self._out_of_band.run_inference(context, max_tokens, system_instruction)

    async def frames(self, context_id: str, after_version: int = 0) -> AsyncGenerator[StoredFrame, None]:
        """Yields the stored frames of a conversation after a version, in order; none for a conversation that does not
        exist. Raises `DatabaseError`, `SchemaError` and `SettingsError`, like `context`."""
        after_version = reading.whole_after(after_version)
        while page := await self._frames(context_id, after_version):
            for frame in page:
                yield frame
            after_version = page[-1].version

    async def follow(self, context_id: str, after_version: int = 0) -> AsyncGenerator[StoredFrame, None]:
        """Yields the frames of a conversation after a version, in order, each once, as they are stored. It never ends.

        It waits for a conversation that does not exist yet, and through later outages of the database. It queries the
        database when a projector notifies progress in the conversation's partition, and every 5 seconds. Each frame has
        the outcome that it had when it was stored; a later change by `unpark` is not reported. Raises `DatabaseError`,
        `SchemaError` and `SettingsError` like `context`, if the first query fails, and `NoSuchContextError` for an id
        that no conversation can have.
        """
        if not reading.may_exist(context_id):
            raise reading.NoSuchContextError(context_id)
        after_version = reading.whole_after(after_version)
        await self._listen(within=LISTEN_SECONDS)
        partition = await self._connections.read(reading.partition_of, self._topic, context_id)
        while True:
            mark = self._notifications.mark(self._topic, partition)
            try:
                page = await self._frames(context_id, after_version)
            except DatabaseUnavailableError:
                await asyncio.sleep(RECONNECT_SECONDS)
                continue
            for frame in page:
                yield frame
                after_version = frame.version
                if frame.partition >= 0:  # imported frames are in none
                    partition = frame.partition
            if not page:
                await self._notifications.until_moved(self._topic, partition, mark)

    async def newest_version(self, context_id: str) -> int:
        """Returns the number of stored frames of a conversation; 0 for one that does not exist. Raises what `frames`
        raises."""
        self._check_open()
        if not reading.may_exist(context_id):
            return 0
        return await self._connections.read(reading.newest_version, context_id)

    async def _publish(
        self, publication: Publication, within: float, traceparent: str | None
    ) -> tuple[PublishedFrame, ...]:
        frames = publication.frames
        with sending(self._topic, publication.context_id, len(frames), traceparent) as span:
            try:
                records = publication.records_of(span.traceparent)
                places = await self._producer.publish(self._topic, records, within=within)
            except PublishError as error:
                left = [one for one, place in zip(frames, error.places, strict=True) if place is None]
                kind = FramesRefusedError if isinstance(error, RefusedError) else FramesUnacknowledgedError
                raise kind(str(error), left) from error
            if places:
                span.set(names.MESSAGING_DESTINATION_PARTITION_ID, str(places[0].partition))
                span.set(names.MESSAGING_KAFKA_OFFSET, places[0].offset)
        return tuple(outcomes.acknowledged(place, one) for place, one in zip(places, frames, strict=True))

    async def _frames(self, context_id: str, after_version: int) -> list[StoredFrame]:
        self._check_open()
        if not reading.may_exist(context_id):
            return []
        return await self._connections.read(
            reading.frames_after, context_id, after_version, limit=FRAMES_AT_ONCE
        )

    async def _listen(self, *, within: float) -> None:
        """Start to receive notifications. Returns once they are received, or cannot be for now; polling then replaces
        them. Raises `SettingsError` if no database is set."""
        self._check_open()
        self._check_loop()
        if self._listening is None or self._listening.done():
            # The task could not raise it to the caller.
            access.database_address(self._settings)
            self._listening = asyncio.create_task(self._notifications.listen())
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._notifications.until_started()

    def _check_loop(self) -> asyncio.AbstractEventLoop:
        """Returns the running event loop. Raises RuntimeError if it is another one than the first: work that runs there
        would never get an answer here."""
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise RuntimeError(
                "This client belongs to another event loop, for example that of an earlier asyncio.run(). Create a "
                "client in each loop, or a SyncClient, which has a loop of its own."
            )
        return loop

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("This client is closed.")
