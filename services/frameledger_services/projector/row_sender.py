"""Sends rows of the outbox with a producer: those of a topic together, or one by one if one of them is too large."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter

from frameledger.record import Outgoing
from frameledger_services import transient
from frameledger_services.database_types import Connection
from frameledger_services.event_log.producer import ACKNOWLEDGED_WITHIN, Producer
from frameledger_services.event_log.publish_errors import PublishError, TooLargeError
from frameledger_services.event_log.topics import home_partition
from frameledger_services.projector.destination import Send
from frameledger_services.projector.stalled import PartlySentError
from frameledger_services.settings import SettingsError
from frameledger_services.store import dead_letters, outbox
from frameledger_services.store.outbox import OutboxRow

WAIT_SECONDS = 8.0
"""How long a projector waits for acknowledgements. A partition that has just lost its leader delays the other rows of
its topic by this time, once. It is less than `sender.REQUEST_SECONDS`, after which the producer would be replaced."""

_to_topic = attrgetter("to_topic")


class RowSender:
    """A `Send` that uses a producer and waits `within` seconds. A row that is too large does not delay the others."""

    def __init__(self, producer: Producer, within: float = ACKNOWLEDGED_WITHIN) -> None:
        self._producer = producer
        self._within = within

    async def __call__(self, rows: Sequence[OutboxRow]) -> list[OutboxRow]:
        too_large: list[OutboxRow] = []
        for topic, some in groupby(sorted(rows, key=_to_topic), key=_to_topic):
            group = list(some)
            try:
                await self._publish(topic, group)
            except TooLargeError as error:
                await self._one_by_one(topic, _without_place(group, error), too_large)
            except PublishError as error:
                unsent = _without_place(group, error)
                raise PartlySentError(str(error), unsent, too_large, error.partitions) from error
        return too_large

    async def _one_by_one(self, topic: str, rows: Sequence[OutboxRow], too_large: list[OutboxRow]) -> None:
        """Publish rows of one topic. No row overtakes an unacknowledged one of its partition."""
        failure: transient.EventLogError | None = None
        partitions: int | None = None
        unsent: list[OutboxRow] = []
        stalled: set[int] = set()
        for row in rows:
            # If the topic refuses a row for another reason, for instance before its partitions are known, all of its
            # rows wait.
            if failure and (partitions is None or home_partition(row.key or b"", partitions) in stalled):
                unsent.append(row)
                continue
            try:
                await self._publish(topic, [row])
            except TooLargeError:
                too_large.append(row)
            except transient.EventLogError as error:
                failure = error
                partitions = error.partitions if isinstance(error, PublishError) else None
                unsent.append(row)
                if partitions is not None:
                    stalled.add(home_partition(row.key or b"", partitions))
        if failure:
            raise PartlySentError(str(failure), unsent, too_large, partitions) from failure

    async def _publish(self, topic: str, rows: Sequence[OutboxRow]) -> None:
        await self._producer.publish(topic, [_outgoing(row) for row in rows], within=self._within)


async def publish_committed(connection: Connection, rows: Sequence[OutboxRow], send: Send) -> str | None:
    """Publish and delete rows that a command wrote to the outbox; those that are too large for their topic become dead
    letters. Returns None, or the reason for a failure, after which the partition's next owner publishes them. If the
    process dies in between, that owner publishes them again, or keeps them as dead letters again, which changes
    nothing."""
    try:
        too_large = await send(rows)
    except (transient.EventLogError, SettingsError) as error:
        return str(error)
    if too_large:
        await dead_letters.keep_unsendable(connection, too_large)
    await outbox.delete(connection, [row.place for row in rows])
    return None


def _without_place(rows: Sequence[OutboxRow], error: PublishError) -> list[OutboxRow]:
    return [row for row, place in zip(rows, error.places, strict=True) if place is None]


def _outgoing(row: OutboxRow) -> Outgoing:
    # A dead letter may have no key or no value; `rejected_frames` records the difference.
    return Outgoing(row.key or b"", row.value or b"", row.headers)
