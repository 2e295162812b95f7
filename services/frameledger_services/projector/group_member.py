"""A projector as a member of its consumer group: takes partitions over, stores their records, and gives them up.

The group only assigns partitions. The position of each is in PostgreSQL and advances in the transaction of each batch.
The group's consumer fetches nothing: `Feed` reads a partition once it is taken over (`takeover`), so no record is read
before the position is known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from random import random
from typing import Any

from frameledger.record import LoggedFrame
from frameledger_services import database, logs, supervision
from frameledger_services.event_log import broker
from frameledger_services.event_log.consumer import ConsumerRebalanceListener, TopicPartition
from frameledger_services.event_log.feed import Feed
from frameledger_services.event_log.topics import home_partition, missing
from frameledger_services.projector import held_effects, instance_id, takeover, topic_identity
from frameledger_services.projector.batches import Batches
from frameledger_services.projector.commits import Commits
from frameledger_services.projector.crashes import Isolation
from frameledger_services.projector.decoded import FetchedRecord
from frameledger_services.projector.log_check import LogReader
from frameledger_services.projector.metrics import ProjectorMetrics
from frameledger_services.projector.notifier import Notifier
from frameledger_services.projector.outbox_rows import readable_key
from frameledger_services.projector.ownership import OwnedPartition, ProjectorFencedError
from frameledger_services.projector.pending_takeovers import (
    ALONE_ANSWER_SECONDS,
    ANSWER_SECONDS,
    PendingTakeovers,
)
from frameledger_services.projector.prefetch import Prefetch, RecordChunk
from frameledger_services.projector.relay import Relay
from frameledger_services.projector.stored_heads import NewerHeadError
from frameledger_services.store import outbox
from frameledger_services.store.topics import TopicChangedError

MAX_RECORDS = 2_000
"""Maximum number of records that one read of the prefetch buffer returns, and so of a batch. A head is written once per
batch for all of its frames: with half as many records, a frame of a backlog took a sixth longer."""

BACKLOG_BATCH = 8
"""A batch of more records is a backlog, from publishers that do not wait for each frame."""

MAX_BATCH_BYTES = 8 * 1024 * 1024
"""A batch ends with the record that makes it larger than this. A single record may have any size."""

QUIET_MS = 500
"""How long one poll of the group lasts."""

SESSION_CHECK_SECONDS = 2.0
"""The interval at which the database session is checked. Otherwise only the next frame would reveal a restart of the
database, and nobody would own its partition until this projector is back in its group."""

MAX_FENCED_BACKOFF = 0.5
"""Upper bound in seconds of the random back-off after fencing, so that the new owner makes progress."""

_log = logs.get_logger("projector")


class GroupMember(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka is untyped, so it is Any
    """Owns the partitions that the group assigns, stores their records, and gives up those that it revokes."""

    def __init__(
        self,
        client: Any,
        feed: Feed,
        commits: Commits,
        relay: Relay,
        notifier: Notifier,
        log: LogReader,
        instance: instance_id.Instance,
        metrics: ProjectorMetrics | None = None,
    ) -> None:
        self._metrics = metrics = metrics or ProjectorMetrics()
        self._client = client
        self._feed = feed
        self._connection = commits.connection
        self._relay = relay
        self._notifier = notifier
        self._log = log
        self._topics = commits.topics
        self._cache = commits.cache
        self._batches = Batches(commits)
        self._instance = instance
        self._isolation = Isolation(self._connection, self._topics.frames, self._batches)
        self._owned: dict[int, OwnedPartition] = {}
        self._prefetch = Prefetch(self._owned, self._isolation.may_decode, metrics)
        metrics.watch(self._topics.frames, self._owned, self._cache.__len__)
        self._pending = PendingTakeovers()
        self._revocations = 0
        self._was_fenced = False
        self._batch_lock = asyncio.Lock()
        self._session_checked_at = 0.0

    async def run(self, stopping: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as tasks:
            beside = [
                tasks.create_task(self._feed.run(self._prefetch.receive, self._revalidate)),
                tasks.create_task(self._poll_group()),
            ]
            while not stopping.is_set():
                if self._was_fenced:
                    # Otherwise two projectors that both believe they own a partition would fence each other in step,
                    # for ever.
                    await supervision.pause(stopping, random() * MAX_FENCED_BACKOFF)
                    self._was_fenced = False
                await self._take_over_assigned()
                if self._pending.due():
                    continue  # assigned in the meantime; `until_ready` would clear the wake-up
                await self._prefetch.until_ready()
                async with self._batch_lock:
                    await self._store(self._prefetch.read(MAX_RECORDS))
                    await self._check_session()
            for task in beside:
                task.cancel()

    async def _poll_group(self) -> None:
        """Stay a member of the group: a consumer sends heartbeats, and learns of rebalances, while it is polled. A poll
        returns no records, since all partitions are paused and the feed reads them."""
        while True:
            await self._client.getmany(timeout_ms=QUIET_MS)
            if not self._client.partitions_for_topic(self._topics.frames):
                # The topic was deleted, so nothing is assigned, and no fetch would notice that it was recreated.
                # aiokafka itself refreshes its metadata only every five minutes.
                self._client._client.force_metadata_update()
            self._prefetch.wake()

    async def _check_session(self) -> None:
        """Raise psycopg's error if the session has ended."""
        now = asyncio.get_running_loop().time()
        if now >= self._session_checked_at + SESSION_CHECK_SECONDS:
            await database.ping(self._connection)
            self._session_checked_at = now

    async def _revalidate(self, offsets: Mapping[int, int]) -> None:
        """Revalidate partitions after an outage of their broker: another takeover checks their log."""
        async with self._batch_lock:
            self._take_over_again(offsets)
        self._prefetch.wake()

    async def on_partitions_revoked(self, revoked: Any) -> None:
        """Called by the consumer before other members get the partitions. Waits until the current batch is stored, or
        the current takeover is finished."""
        async with self._batch_lock:
            self._revocations += 1
            for place in revoked:
                self._drop(place.partition)
            self._cache.clear()

    async def on_partitions_assigned(self, assigned: Any) -> None:
        if assigned:
            self._client.pause(*assigned)
            for place in assigned:
                # Without a position the consumer would request one from the coordinator.
                self._client.seek(place, 0)
        self._pending.replace(place.partition for place in assigned)
        self._prefetch.wake()

    async def _take_over_assigned(self) -> None:
        """Take over the partitions that are due. A partition without a leader, or whose leader does not answer, is
        tried again later and delays no other. If none answers, the broker is down; the error is raised."""
        if not (due := self._pending.due()):
            return
        failures: list[Exception] = []
        with self._pending.postponed_if_away(due, failures):
            reachable = await self._reachable(due)
            await self._check_topic(reachable[0])
            await instance_id.check(self._connection, self._topics.frames, self._instance)
            for partition in reachable:
                with self._pending.postponed_if_away([partition], failures):
                    await self._take_over(partition)
        if failures and not self._owned:
            raise failures[-1]

    async def _reachable(self, due: Sequence[int]) -> Sequence[int]:
        """Returns the partitions whose logs answer. If none does, raises the reason. All are queried concurrently, so
        that the partitions of an unreachable broker are not waited for one after the other."""
        began = asyncio.get_running_loop().time()
        patience = ANSWER_SECONDS if self._owned else ALONE_ANSWER_SECONDS
        ends = await self._log.ends(due, began + patience)
        self._pending.postpone([one for one in due if one not in ends], began, "its leader does not answer")
        return [one for one in due if one in ends]

    async def _take_over(self, partition: int) -> None:
        # A revocation waits for this. A takeover after the revocation would fence the partition's next owner, which
        # would notice only with its next batch.
        async with self._batch_lock:
            if partition not in self._pending:
                return
            revocations = self._revocations
            assigned = await takeover.assign(
                self._connection, self._topics.frames, partition, self._instance.owner
            )
        taken_over = await takeover.check_log(self._connection, self._log, self._topics.frames, assigned)
        if revocations != self._revocations:
            return  # even if it is assigned again, another projector may have owned it in between
        self._pending.discard(partition)
        self._owned[partition] = taken_over.owned
        self._isolation.take(taken_over.owned, taken_over.crashes)
        self._feed.follow(partition, taken_over.owned.next_offset)
        self._relay.enqueue_pages(await outbox.left_behind(self._connection, self._topics.frames, partition))
        try:
            # The former owner may have caught up, and died before it released the effects.
            await self._release_effects([partition])
        except ProjectorFencedError:
            self._recover_from_fence({partition})

    async def _store(self, chunk: RecordChunk) -> None:
        # A partition that was fetched again only for a marker may already be stored up to there.
        ends = {one: end for one, end in chunk.next_offsets.items() if end > self._owned[one].next_offset}
        for batch, next_offsets in _batches(chunk.records, ends, self._isolation.is_isolated):
            try:
                self._relay.enqueue(await self._isolation.store(batch, self._owned, next_offsets))
                await self._release_effects(next_offsets)
            except ProjectorFencedError as fenced:
                _log.warning("projector.fenced", partitions=sorted(fenced.partitions))
                # All partitions: the records of the batches that were not stored are no longer in the buffer.
                self._recover_from_fence(set(ends))
                return
            except NewerHeadError as newer:
                self._leave_to_newer_release(newer, set(ends))
                return
            # Records of one partition are in order, so the first is about the oldest.
            self._notifier.notify(
                next_offsets,
                set(_conversations(batch)),
                backlog=len(batch) > BACKLOG_BATCH or self._prefetch.has_chunks,
                logged_ms=batch[0][0].timestamp_ms if batch else None,
            )
        self._isolation.end(ends)

    async def _check_topic(self, partition: int) -> None:
        """Raise `TopicChangedError` if the topic was deleted and recreated: a new topic may have a record that equals
        the last stored one, and `takeover` compares no more than that."""
        description = await self._feed.topic(partition)
        if description is None:
            raise broker.BrokerError(missing(self._topics.frames))
        problem = await topic_identity.difference(self._connection, description)
        if problem is not None:
            raise TopicChangedError(problem)

    async def _release_effects(self, partitions: Iterable[int]) -> None:
        for partition in partitions:
            if (owned := self._owned.get(partition)) is not None and owned.held_until is not None:
                self._relay.enqueue_pages(await held_effects.release(self._connection, self._topics, owned))

    def _recover_from_fence(self, moved: set[int]) -> None:
        """After a fence nothing in memory can be trusted: take over again the partitions that are still assigned."""
        self._was_fenced = True
        self._metrics.fenced.inc()
        self._take_over_again(moved)

    def _leave_to_newer_release(self, newer: NewerHeadError, read: set[int]) -> None:
        """Stop storing this conversation's partition until the group assigns it again, so that no frame is skipped and
        no conversation is folded by two releases in turn."""
        partition = home_partition(newer.context_id.encode(), self._topics.partitions)
        _log.error(
            "projector.newer_fold",
            partition=partition,
            context_id=newer.context_id,
            fold_version=newer.fold_version,
        )
        # The records of the batches that were not stored are no longer in the buffer.
        self._take_over_again(read - {partition})
        self._drop(partition)

    def _take_over_again(self, partitions: Iterable[int]) -> None:
        """Schedule another takeover of those of these partitions that are still owned, and clear the cache.

        The new epoch hides that this projector was fenced, so nothing in memory may outlive the old one.
        """
        self._cache.clear()
        for partition in partitions:
            # The caller may have awaited something, and the partition may have been revoked since: aiokafka counts it
            # as assigned until the group has assigned all partitions anew.
            if partition not in self._owned:
                continue
            self._drop(partition)
            if TopicPartition(self._topics.frames, partition) in self._client.assignment():
                self._pending.add(partition)

    def _drop(self, partition: int) -> None:
        self._owned.pop(partition, None)
        self._feed.leave(partition)
        self._prefetch.drop(partition)
        self._pending.discard(partition)
        self._isolation.forget(partition)


def _conversations(batch: Sequence[FetchedRecord]) -> Iterator[str]:
    """Yields the conversations that a batch may have changed. A record that is decoded later names its conversation by
    its key."""
    for record, logged in batch:
        if isinstance(logged, LoggedFrame):
            yield logged.context_id
        elif logged is None and (context_id := readable_key(record)) is not None:
            yield context_id


def _batches(
    records: Sequence[FetchedRecord], ends: dict[int, int], is_isolated: Callable[[int], bool]
) -> Iterator[tuple[Sequence[FetchedRecord], dict[int, int]]]:
    """Yields batches of bounded size, each with the next offsets of its partitions; the last has all of `ends`.

    A record of an isolated partition is a batch of its own.
    """
    chunk: list[FetchedRecord] = []
    size = 0
    for fetched in records:
        record = fetched[0]
        alone = is_isolated(record.partition)
        if chunk and (alone or is_isolated(chunk[-1][0].partition) or size >= MAX_BATCH_BYTES):
            yield chunk, {before.partition: before.offset + 1 for before, _ in chunk}
            chunk, size = [], 0
        chunk.append(fetched)
        size += len(record.value or b"")
    if ends:
        yield chunk, ends
