"""Recovery: when the log no longer matches the tables, continue in a new generation of the topic.

`examine` changes nothing. `begin_generation` seals the generation, which fences its projectors, and begins the next one
at the offset from which each partition can continue: one transaction, with a receipt for each partition. Frames that
the log lost are republished after that (`republish`); before, the copies would belong to a generation that is
abandoned.

If the process dies before that commit, nothing has changed. If it dies after it, projectors continue in the new
generation, and the receipts show the next recovery what is still to be republished.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from psycopg import errors

from frameledger.errors import FencedError
from frameledger_services import failpoints
from frameledger_services.database_types import Connection
from frameledger_services.event_log import broker
from frameledger_services.event_log.log_probe import open_probe
from frameledger_services.event_log.topics import TopicDescription, TopicNames
from frameledger_services.failpoints import Failpoint
from frameledger_services.projector import topic_identity
from frameledger_services.projector.log_check import LogChangedError, log_state, symptom
from frameledger_services.projector.takeover import LOCK_ATTEMPTS, LOCK_TIMEOUT_MS
from frameledger_services.recovery import republish
from frameledger_services.recovery.comparison import ChangedPartition, last_common_offsets
from frameledger_services.recovery.diagnosis import PartitionFinding, diagnose, spans
from frameledger_services.settings import Settings
from frameledger_services.store import lost_frames, projections, recovery, topics
from frameledger_services.store.projections import StoredPosition
from frameledger_services.store.recovery import NewRecoveryReceipt, RecoveryReceipt
from frameledger_services.store.topics import TopicChangedError

IDLE_TIMEOUT_MS = 10_000
"""If this process stalls while it holds all partitions, projectors continue after this time."""


class MovedError(FencedError):
    """Another process advanced a partition, or recovered, since it was examined. Nothing was changed.

    Remedy: Stop the projectors, and run `frameledger recover` again.
    """


@dataclass(frozen=True, slots=True)
class Examination:
    """The result of `examine`. `generation` is None for a topic that was never stored in this database."""

    topic: TopicDescription
    generation: int | None
    is_same_topic: bool | None
    findings: Sequence[PartitionFinding]
    to_republish: Mapping[int, int]
    """Number of stored frames to republish, by partition, including those that an earlier recovery did not finish."""

    @property
    def changed(self) -> list[PartitionFinding]:
        """The partitions that cannot be read further without a recovery."""
        return [one for one in self.findings if one.happened != "fine"]

    @property
    def needs_generation(self) -> bool:
        """Whether the next generation has to begin."""
        return self.generation is not None and (self.is_same_topic is False or bool(self.changed))

    @property
    def is_fine(self) -> bool:
        """Whether there is nothing to do."""
        return not self.needs_generation and not self.to_republish


async def examine(settings: Settings, connection: Connection) -> Examination:
    """Compare the log with the tables. Changes nothing.

    The connection is the caller's, in autocommit. Raises `TopicChangedError` for another number of partitions, which
    cannot be recovered, `BrokerError`, TimeoutError and psycopg's errors.
    """
    name = TopicNames(settings.topic_prefix).frames
    async with broker.connect(settings) as brokers:
        description = await brokers.topic(name)
    before = await topics.newest(connection, name)
    if before is None:
        return Examination(description, None, None, (), {})
    if before.partitions != description.partitions:
        raise TopicChangedError(topic_identity.other_partitions(before, description))
    is_same = topic_identity.is_same(before, description)
    stored = {one.partition: one for one in await projections.stored_positions(connection, name)}
    receipts = await recovery.receipts(connection, name)
    async with open_probe(settings, name) as log:
        looks = []
        for partition in range(description.partitions):
            position = stored.get(partition) or StoredPosition(partition, 0, None, None, None)
            looks.append((position, await log_state(log, position)))
        changed = [
            ChangedPartition(position, log_now, spans(_of(receipts, position.partition), before.generation))
            for position, log_now in looks
            if is_same is False or symptom(position, log_now) in ("shorter", "another_record")
        ]
        reached = await last_common_offsets(settings, connection, log, name, changed, is_same)
    findings = [
        diagnose(position, log_now, is_same_topic=is_same, common=reached.get(position.partition))
        for position, log_now in looks
    ]
    lost = republish.gaps_to_fill(receipts, before.generation, findings)
    return Examination(
        description, before.generation, is_same, findings, await lost_frames.count_lost(connection, lost)
    )


def _of(receipts: Sequence[RecoveryReceipt], partition: int) -> list[RecoveryReceipt]:
    return [one for one in receipts if one.partition == partition]


async def begin_generation(
    connection: Connection, examined: Examination, failpoint: Failpoint = failpoints.none
) -> int:
    """Seal the examined generation and begin the next one. Returns its number.

    In one transaction of its own. Raises `MovedError` if something changed since `examine`, and `LogChangedError` if a
    partition stays locked.
    """
    topic = examined.topic.name
    for _ in range(LOCK_ATTEMPTS):
        try:
            async with connection.transaction():
                await connection.execute(f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}")
                await connection.execute(f"SET LOCAL idle_in_transaction_session_timeout = {IDLE_TIMEOUT_MS}")
                await failpoint("before sealing")
                new_generation = await _begin(connection, examined)
                await failpoint("before commit")
        except errors.LockNotAvailable:
            # As in a takeover: a session that holds a row for so long is frozen.
            for partition in range(examined.topic.partitions):
                await projections.terminate_owner(connection, topic, partition)
        else:
            await failpoint("after commit")
            return new_generation
    raise LogChangedError(
        f"A partition of {topic} stays locked by a session that could not be ended; look for it in pg_stat_activity "
        "and end it with pg_terminate_backend"
    )


async def _begin(connection: Connection, examined: Examination) -> int:
    topic, generation = examined.topic, examined.generation
    assert generation is not None, "a topic that was never read has nothing to recover"
    sealed = {
        one.partition: one
        for one in await recovery.seal(connection, topic.name, generation, topic.partitions)
    }
    positions, new_receipts = [], []
    for finding in examined.findings:
        now = sealed.get(finding.stored.partition)
        goes_on = finding.happened == "fine" and examined.is_same_topic is not False
        if now is None or not (goes_on or now.next_offset == finding.stored.next_offset):
            raise MovedError(
                f"{topic.name}/{finding.stored.partition} was advanced or recovered since it was examined; nothing "
                "was changed. Run `frameledger recover` again."
            )
        begins_at = now.next_offset if goes_on else finding.begins_at
        positions.append(now if goes_on else StoredPosition(now.partition, begins_at, None, None, None))
        new_receipts.append(
            NewRecoveryReceipt(
                partition=now.partition,
                happened=finding.happened,
                stored_offset=now.next_offset,
                first_offset=finding.log.first,
                end_offset=finding.log.end,
                begins_at=begins_at,
                missing=finding.missing,
            )
        )
    await recovery.begin_topic(connection, topic.name, generation + 1, topic.partitions, topic.topic_id)
    await recovery.begin_partitions(connection, topic.name, generation + 1, positions)
    await recovery.write_receipts(connection, topic.name, generation + 1, new_receipts)
    return generation + 1
