"""A projector that gets its records from memory: the same batches on a real database, without a broker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from itertools import islice

from psycopg import AsyncConnection

from frameledger.frames import AnyFrame
from frameledger.partition import partition_for
from frameledger.record import Record
from frameledger_services import access
from frameledger_services.bench.road.stream import record_of
from frameledger_services.event_log.topics import TopicNames
from frameledger_services.projector.batches import Batches
from frameledger_services.projector.commits import Commits
from frameledger_services.projector.head_cache import HeadCache
from frameledger_services.projector.outbox_rows import effect_topics
from frameledger_services.projector.ownership import OwnedPartition, ProjectorTopics
from frameledger_services.settings import Settings
from frameledger_services.store import binary_copy, projections

PARTITIONS = 8
BATCH = 100

LOGGED_AT_MS = 1_772_600_000_000


class Direct:
    """All partitions of a topic that does not exist on a broker. Effects stay in the outbox."""

    def __init__(
        self, connection: AsyncConnection, topics: ProjectorTopics, owned: dict[int, OwnedPartition]
    ) -> None:
        self._batches = Batches(Commits(connection, topics, HeadCache()))
        self._topic = topics.frames
        self._owned = owned
        self._ends = {partition: one.next_offset for partition, one in owned.items()}

    def records(self, frames: Iterable[tuple[str, AnyFrame]]) -> list[Record]:
        """Returns the frames as records of the log, with the offsets that follow the earlier ones."""
        return [self._record(context_id, frame) for context_id, frame in frames]

    async def store(self, records: Iterable[Record], batch: int = BATCH) -> None:
        """Store records, this many per transaction."""
        rest = iter(records)
        while some := list(islice(rest, batch)):
            positions = {record.partition: record.offset + 1 for record in some}
            await self._batches.store([(one, None) for one in some], self._owned, positions)

    def _record(self, context_id: str, frame: AnyFrame) -> Record:
        record = record_of(context_id, frame)
        partition = partition_for(record.key, PARTITIONS)
        offset = self._ends[partition]
        self._ends[partition] = offset + 1
        return Record(self._topic, partition, offset, record.key, record.value, record.headers, LOGGED_AT_MS)


@asynccontextmanager
async def direct(settings: Settings) -> AsyncIterator[Direct]:
    """Yields a `Direct` in the database of these settings."""
    names = TopicNames(settings.topic_prefix)
    topics = ProjectorTopics(
        frames=names.frames,
        dead_letters=names.dead_letters,
        effects=effect_topics(names),
        partitions=PARTITIONS,
    )
    async with await AsyncConnection.connect(
        access.database_address(settings), autocommit=True
    ) as connection:
        binary_copy.prepare(connection)
        positions = [
            await projections.assign(connection, names.frames, partition, "bench")
            for partition in range(PARTITIONS)
        ]
        owned = {
            one.partition: OwnedPartition(one.partition, one.epoch, one.next_offset) for one in positions
        }
        yield Direct(connection, topics, owned)
