"""Batches: folds and stores records, each exactly once (`commits`).

A record that cannot be stored is not an error: `unstorable_records` parks its conversation, or makes it a dead letter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from frameledger.record import Record
from frameledger_services.projector.batch_span import batch_span
from frameledger_services.projector.commits import Commits
from frameledger_services.projector.decoded import FetchedRecord, decode_record
from frameledger_services.projector.ownership import OwnedPartitions
from frameledger_services.projector.unstorable_records import UnstorableRecords
from frameledger_services.projector.watchdog import TimeLimit
from frameledger_services.store.outbox import OutboxRow


class Batches:
    """Folds and stores batches, each in one commit, or in several if a record cannot be stored."""

    def __init__(self, commits: Commits) -> None:
        self._commits = commits
        self._unstorable = UnstorableRecords(commits)

    async def store(
        self,
        records: Iterable[FetchedRecord],
        owned: OwnedPartitions,
        next_offsets: Mapping[int, int],
    ) -> list[OutboxRow]:
        """Store the records up to these next offsets of partitions, and advance the partitions to them.

        Returns the rows of the outbox. Raises `ProjectorFencedError` if a partition was lost, and psycopg's errors if
        the database cannot be reached. After an error nothing was stored, and the caller reads the records again. A
        frame that can never be folded or stored parks its conversation, which is not an error.
        """
        with TimeLimit():
            batch = [
                decode_record(record) if logged is None else (record, logged) for record, logged in records
            ]
        topics = self._commits.topics
        with batch_span(topics.frames, topics.group, batch) as self._commits.span:
            stored = await self._unstorable.store(batch, owned, next_offsets)
        return self._commits.rows_of_rebuilds() + stored

    async def park(self, record: Record, owned: OwnedPartitions, why: Exception) -> list[OutboxRow]:
        """Store a record without folding it, and park its conversation from there on. A record that is not a frame of a
        conversation in its own partition becomes a dead letter."""
        with TimeLimit():
            decoded = decode_record(record)
        return await self._unstorable.park(decoded, owned, why)

    async def dead_letter(self, record: Record, owned: OwnedPartitions, why: str) -> list[OutboxRow]:
        """Keep a record as a dead letter, without decoding it; its conversation continues without it."""
        return await self._unstorable.dead_letter(record, owned, why)
