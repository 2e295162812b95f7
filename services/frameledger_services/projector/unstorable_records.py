"""Finds the records of a batch that cannot be stored, parks their conversations or makes them dead letters, and stores
all others.

| obstacle in a batch | consequence |
| --- | --- |
| an id that may be stored already | the batch is stored with the stored ids loaded, which reveals duplicates |
| a frame that makes the fold raise | its conversation is parked: it stores this frame and all later ones unfolded |
| a value that the database or the driver refuses | the batch is halved until its record is found; then as above |

A record that cannot be stored unfolded either, or has no conversation in its partition, becomes a dead letter. Each
part of a batch is a commit of its own. If the process dies between two parts, the partition's next owner reads the rest
again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from psycopg import errors

from frameledger.record import Record
from frameledger_services.projector.batch_fold import StoredIds
from frameledger_services.projector.commits import Commits
from frameledger_services.projector.decoded import DecodedRecord, Unstorable
from frameledger_services.projector.fold_errors import PossibleDuplicateError, UnfoldableError
from frameledger_services.projector.ownership import OwnedPartitions
from frameledger_services.projector.refused_values import OF_VALUES, is_of_the_values
from frameledger_services.store.outbox import OutboxRow


class UnstorableRecords:
    """Stores batches that may have records that cannot be stored."""

    def __init__(self, commits: Commits) -> None:
        self._commits = commits

    async def store(
        self,
        batch: Sequence[DecodedRecord],
        owned: OwnedPartitions,
        next_offsets: Mapping[int, int],
        stored_ids: StoredIds | None = None,
    ) -> list[OutboxRow]:
        """Store a batch as a whole if possible, otherwise in parts. Without `stored_ids` the fast path is tried first,
        which does not query for duplicates; a repeated id leads to the slow path."""
        try:
            return await self._commits.commit(batch, owned, next_offsets, stored_ids)
        except UnfoldableError as error:
            return await self._store_around(batch, owned, next_offsets, error.record, error)
        except Exception as error:
            if stored_ids is None and isinstance(error, errors.UniqueViolation | PossibleDuplicateError):
                return await self.store(batch, owned, next_offsets, await self._commits.stored_ids(batch))
            if not batch or not is_of_the_values(error):
                raise
            return await self._halve(batch, owned, next_offsets, error)

    async def park(self, decoded: DecodedRecord, owned: OwnedPartitions, why: Exception) -> list[OutboxRow]:
        """Park the conversation at this record. The record becomes a dead letter if it has no conversation in this
        partition, or cannot be stored even unfolded."""
        batch, reason = [decoded], str(why).strip() or type(why).__name__
        if any(self._commits.at_home(batch)):
            stored_ids = await self._commits.stored_ids(batch)
            next_offsets = _next_offsets_after(batch, owned)
            try:
                return await self._commits.commit(batch, owned, next_offsets, stored_ids, parked_for=reason)
            except Exception as error:
                if not isinstance(error, UnfoldableError) and not is_of_the_values(error):
                    raise
                reason = _reason(error)
        record, _ = decoded
        return await self.dead_letter(record, owned, reason)

    async def dead_letter(self, record: Record, owned: OwnedPartitions, why: str) -> list[OutboxRow]:
        """Keep a record as a dead letter, whatever its content; its conversation continues without it."""
        batch: list[DecodedRecord] = [(record, Unstorable("refused", why))]
        return await self._commits.commit(batch, owned, _next_offsets_after(batch, owned), None)

    async def _halve(
        self,
        batch: Sequence[DecodedRecord],
        owned: OwnedPartitions,
        next_offsets: Mapping[int, int],
        error: Exception,
    ) -> list[OutboxRow]:
        """Halve a batch with a value that cannot be stored until the record is found, and park the record's
        conversation."""
        if len(batch) == 1:
            return await self._store_around(batch, owned, next_offsets, batch[0][0], error)
        first, second = batch[: len(batch) // 2], batch[len(batch) // 2 :]
        outbox = await self.store(first, owned, _next_offsets_after(first, owned))
        return outbox + await self.store(second, owned, next_offsets)

    async def _store_around(
        self,
        batch: Sequence[DecodedRecord],
        owned: OwnedPartitions,
        next_offsets: Mapping[int, int],
        record: Record,
        error: Exception,
    ) -> list[OutboxRow]:
        """Store the records before this one, park its conversation, and store the rest."""
        index = next(index for index, (one, _) in enumerate(batch) if one is record)
        before, here, after = batch[:index], batch[index], batch[index + 1 :]
        outbox: list[OutboxRow] = []
        if before:
            outbox += await self.store(before, owned, _next_offsets_after(before, owned))
        outbox += await self.park(here, owned, error)
        return outbox + await self.store(after, owned, next_offsets)


def _next_offsets_after(batch: Sequence[DecodedRecord], owned: OwnedPartitions) -> dict[int, int]:
    """Returns the next offsets after these records."""
    return {record.partition: record.offset + 1 for record, _ in batch if record.partition in owned}


def _reason(error: Exception) -> str:
    if isinstance(error, errors.Error):
        return f"the database refuses it: {error.diag.message_primary or error}"
    if isinstance(error, OF_VALUES):
        return f"it cannot be written: {type(error).__name__}: {error}"
    return str(error)
