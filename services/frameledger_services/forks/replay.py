"""Replays: the frames of a conversation in their order, and copies of them published with their timing.

Publishing has two steps. If the process dies between or within them, the replay can be started again: it starts over,
and frames that were published before count once, because all ids are derived.

1. The opening is published: a context frame with the context before the first played frame. It makes the conversation a
   recording, and names the program that kept the history at that time, if any. If the topic is our own frames topic,
   the next step waits until the recording is in the tables.
2. The copies are published in order, each when it is due.

A process that dies after step 1 leaves a shorter recording. Since records of one key keep their order, no copy can be
folded before the opening. Nor is one folded without it: each copy has the time at which the opening was logged, so the
projector skips copies that arrive after an erasure of the new conversation (RA5.lives).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from frameledger import derived
from frameledger.decode_error import DecodeError
from frameledger.errors import RefusedError
from frameledger.frames import AnyFrame, ContextSnapshot, LLMContextFrame, LLMMirrorFrame
from frameledger.headers import milliseconds, originally_logged
from frameledger.ids import ContextId
from frameledger.record import Outgoing, decode, outgoing
from frameledger.values import replace
from frameledger_services.client import Client, forking
from frameledger_services.client.forking import ForkPoint
from frameledger_services.event_log.producer import Producer
from frameledger_services.event_log.topics import TopicNames
from frameledger_services.forks.copies import Copies
from frameledger_services.forks.pace import ReplayPace, time_of
from frameledger_services.forks.places import PlacedCopies
from frameledger_services.store import replays
from frameledger_services.store.connections import Connections
from frameledger_services.store.replays import RecordedFrame

SOURCE = "frameledger/replay"
PAGE = 500
MAX_BATCH = 200
MAX_BATCH_BYTES = 4 * 1024 * 1024
"""Limits of a batch of copies that are due at the same time. The copy that reaches the second limit is the last one."""


class ReplayRefusedError(RefusedError):
    """Copies are not published to that conversation. The message says why; nothing was published.

    Remedy: Name the topic of frames, of this installation or of another one, and an id that is free there.
    """


async def recorded_frames(
    connections: Connections, context_id: str, first: int, last: int
) -> AsyncIterator[RecordedFrame]:
    """Yields the frames of a conversation from one version to another, in order. Memory grows neither with their number
    nor with their total size."""
    after = first - 1
    while page := await connections.read(replays.frames, context_id, after, last, PAGE):
        for frame in page:
            yield frame
        after = page[-1].version


class Replayer:
    """Publishes copies of conversations to a topic."""

    def __init__(
        self, client: Client, connections: Connections, producer: Producer, names: TopicNames
    ) -> None:
        self._client = client
        self._connections = connections
        self._producer = producer
        self._names = names

    async def publish(
        self,
        copies: Copies,
        topic: str,
        first: int,
        last: int,
        pace: ReplayPace,
        tell: Callable[[int], None],
    ) -> tuple[int, int]:
        """Publish copies of the frames of a conversation from one version to another. Calls `tell` with the last copied
        version. Returns the numbers of copied and of omitted frames.

        Raises `ForkRefusedError` and `ReplayRefusedError` before anything is published, and what publishing raises.
        """
        if topic in (self._names.inference, self._names.function_calls, self._names.cancellations):
            raise ReplayRefusedError(
                f"{topic} is a topic of effects, which workers execute. Name a topic of frames."
            )
        placed, opened_ms = await self._open(copies, topic, first)
        copied = left_out = 0
        due: list[Outgoing] = []
        due_bytes = 0
        async for recorded in recorded_frames(self._connections, copies.context_id, first, last):
            seconds, _ = pace.wait_for(time_of(recorded))
            if due and (seconds > 0 or len(due) >= MAX_BATCH or due_bytes >= MAX_BATCH_BYTES):
                await self._producer.publish(topic, due)
                due, due_bytes = [], 0
                tell(recorded.version - 1)
            await pace.wait(seconds)
            records = _copy(copies, placed, recorded, opened_ms)
            if records:
                copied += 1
                due += records
                due_bytes += sum(len(record.value) for record in records)
            else:
                left_out += 1
        await self._producer.publish(topic, due)
        return copied, left_out

    async def _open(self, copies: Copies, topic: str, first: int) -> tuple[PlacedCopies, int]:
        """Publish the opening that makes the new conversation a recording, and wait until it is one, unless the topic
        is another installation's. Returns the time at which it was logged, in milliseconds since 1970."""
        moment = await self._connections.read(forking.moment, copies.context_id, first - 1)
        opening = _opening(copies, first, moment)
        placed = PlacedCopies(copies, opening, first, moment.stored.positions)
        if topic != self._names.frames:
            records = [outgoing(one, ContextId(copies.copy), source=SOURCE) for one in opening]
            first_logged_ms, *_ = await self._producer.logged_ms(topic, records)
            return placed, first_logged_ms
        await self._connections.read(forking.check_free, copies.copy, moment.origin)
        first_frame, *_ = await self._client.publish(copies.copy, *opening, wait=True)
        if (version := first_frame.version) is None:
            why = "" if first_frame.reason is None else f" ({first_frame.reason})"
            raise ReplayRefusedError(
                f"{copies.copy!r} was not opened: its first frame was {first_frame.outcome}{why}. Choose another id."
            )
        opened = await self._connections.read(replays.opened, copies.copy, version)
        if opened is None:
            raise ReplayRefusedError(f"{copies.copy!r} was erased right after it was created.")
        if not copies.live and not opened.is_recording:
            raise ReplayRefusedError(
                f"{copies.copy!r} is not a recording, since another publisher began it: models and functions would act "
                "on copies there. Choose another id."
            )
        return placed, milliseconds(opened.logged_at)


def _opening(copies: Copies, first: int, moment: ForkPoint) -> list[AnyFrame]:
    """Returns the first frames of a copy. Raises `ForkRefusedError`."""

    def derived_id(kind: str) -> str:
        return derived.copy_id(kind, copies.context_id, str(first), copies.copy)

    stored = moment.stored
    begins = LLMContextFrame(
        id=derived_id("replay opening"),
        context=ContextSnapshot(**stored.context.to_wire()),
        react=copies.live,
        forked_from=moment.origin,
    )
    forking.check_size(begins, moment.origin)
    frames: list[AnyFrame] = [begins]
    if stored.mirror is not None:
        frames.append(LLMMirrorFrame(id=derived_id("replay mirror"), mirror=stored.mirror, react=copies.live))
    return frames


def _copy(copies: Copies, placed: PlacedCopies, recorded: RecordedFrame, opened_ms: int) -> list[Outgoing]:
    try:
        frames = placed.of(recorded, decode(recorded.payload))
    except DecodeError:
        # An older release accepted it.
        return []
    records = [
        outgoing(one, ContextId(copies.copy), source=SOURCE, causation_id=copies.cause(recorded, one))
        for one in frames
    ]
    since = originally_logged(opened_ms)
    return [replace(one, headers=(*one.headers, since)) for one in records]
