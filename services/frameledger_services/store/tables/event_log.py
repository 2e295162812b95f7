"""The tables of the log: projected positions, the outbox, rejected records, recoveries."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import UUID

from frameledger_services.store.tables.columns import (
    HEADERS,
    ID,
    JSON_TEXT,
    TIME,
    column,
    generation,
    metadata,
    optional,
)

outbox = Table(
    "outbox",
    metadata,
    column("topic", ID, "The topic of the record that caused the row."),
    column("partition", Integer, "The partition of that record."),
    column("offset", BigInteger, "The offset of that record."),
    column("ordinal", Integer, "The index among the rows that the record caused, from 0."),
    column("recorded_at", TIME, "When this row was written, by the database's clock.", "clock_timestamp()"),
    column("kind", Text, "effect, dead_letter, or forward."),
    column("to_topic", Text, "The topic to publish to."),
    optional("context_id", ID, "The conversation; null for a dead letter whose key names none."),
    optional("key", LargeBinary, "The key to publish."),
    optional("value", LargeBinary, "The value to publish."),
    column("headers", JSON_TEXT, HEADERS),
    generation(),
    PrimaryKeyConstraint("topic", "partition", "offset", "ordinal", "generation", name="outbox_pkey"),
    CheckConstraint("kind IN ('effect', 'dead_letter', 'forward')", name="outbox_kind_check"),
    # Every row is deleted shortly after it was written.
    postgresql_with={"autovacuum_vacuum_scale_factor": 0, "autovacuum_vacuum_threshold": 5000},
    comment="Records that are not published yet: effects, dead letters, forwarded records.",
)

topics = Table(
    "topics",
    metadata,
    column("topic", ID, "The topic's name."),
    column(
        "generation",
        Integer,
        "Offsets are comparable within one generation. `frameledger recover` starts the next one.",
        "1",
    ),
    column("partitions", Integer, "Number of partitions. Services stop if the broker has another number."),
    optional(
        "topic_id",
        UUID,
        "The broker's id of the topic. A different one means that the topic was deleted and created again.",
    ),
    column(
        "recorded_at", TIME, "When the topic was first seen, by the database's clock.", "clock_timestamp()"
    ),
    PrimaryKeyConstraint("topic", "generation", name="topics_pkey"),
    comment="The topics that this database is filled from.",
)

projections = Table(
    "projections",
    metadata,
    column("projection", ID, "The name of the projection."),
    column("topic", ID, "The name of the topic."),
    column("generation", Integer, "The topic's generation.", "1"),
    column("partition", Integer, "The partition."),
    column(
        "epoch",
        BigInteger,
        "Incremented when the partition gets another owner, which fences the previous one.",
        "0",
    ),
    column("next_offset", BigInteger, "The next offset to read.", "0"),
    optional(
        "last_offset", BigInteger, "The offset of the last record that was read; null before the first one."
    ),
    optional("last_logged_at", TIME, "When that record was logged."),
    optional("end_offset", BigInteger, "The end of the partition when the owner last checked."),
    optional(
        "owner_started_at",
        TIME,
        "When the owner's database session started; a later session may have the same pid.",
    ),
    column(
        "updated_at", TIME, "When this row was last written, by the database's clock.", "clock_timestamp()"
    ),
    optional("owner_pid", Integer, "The process id of the owner's database session."),
    optional("owner", Text, "The process that reads the partition."),
    optional("last_hash", LargeBinary, "The SHA-256 of that record's key, value and time."),
    optional(
        "sealed_at",
        TIME,
        "When `frameledger recover` started the next generation; null in the current one. A "
        "sealed row has no owner.",
    ),
    optional(
        "effects_held_until",
        BigInteger,
        "The end of the partition when the owner took it over. Until it is reached no effects "
        "are published and no work is claimed; -1 until the owner has read the end. Null after "
        "the owner caught up.",
    ),
    optional(
        "server_started_at",
        TIME,
        "When PostgreSQL had last started or restarted after a crash, as of the time at which "
        "the owner took the partition over.",
    ),
    optional(
        "attempt",
        ID,
        "What the owner started to process at next_offset: batch, or record (the next one "
        "alone). Null before that, and after a regular end.",
    ),
    column(
        "crashes",
        Integer,
        "Number of owners that crashed while they processed records from next_offset on.",
        "0",
    ),
    column("crashes_alone", Integer, "Number of those that were processing the next record alone.", "0"),
    CheckConstraint("attempt IN ('batch', 'record')", name="projections_attempt_check"),
    PrimaryKeyConstraint("projection", "topic", "generation", "partition", name="projections_pkey"),
    # Few rows, each updated with every batch.
    postgresql_with={
        "fillfactor": 20,
        "autovacuum_vacuum_scale_factor": 0,
        "autovacuum_vacuum_threshold": 500,
    },
    comment="The progress and the owner of each partition, written in the transaction of each batch.",
)
Index(
    "projections_held",
    projections.c.partition,
    postgresql_where=text("effects_held_until IS NOT NULL AND sealed_at IS NULL"),
)

recoveries = Table(
    "recoveries",
    metadata,
    column("topic", ID, "The topic."),
    column("generation", Integer, "The generation that was started."),
    column("partition", Integer, "The partition."),
    column(
        "recovered_at",
        TIME,
        "When the partition was recovered, by the database's clock.",
        "clock_timestamp()",
    ),
    column(
        "happened",
        Text,
        "What had happened to the partition: fine (nothing), lost_tail, expired (records expired "
        "before they were stored), another_log.",
    ),
    column("stored_offset", BigInteger, "The next_offset of the previous generation."),
    column("first_offset", BigInteger, "The first offset of the partition at that time."),
    column("end_offset", BigInteger, "The end of the partition at that time."),
    column("begins_at", BigInteger, "The first offset of the new generation."),
    column("missing", BigInteger, "Number of offsets that expired before they were stored."),
    optional("put_back_at", TIME, "When all lost records had been republished; null until then."),
    optional("put_back", BigInteger, "Number of republished frames."),
    optional(
        "put_back_through", BigInteger, "The highest offset of a republished frame; null if there is none."
    ),
    column("recovered_by", Text, "The database user of the session.", "SESSION_USER"),
    PrimaryKeyConstraint("topic", "generation", "partition", name="recoveries_pkey"),
    CheckConstraint(
        "happened IN ('fine', 'lost_tail', 'expired', 'another_log')", name="recoveries_happened_check"
    ),
    comment="The receipts of `frameledger recover`: what had happened to each partition, and where "
    "its new generation starts.",
)

rejected_frames = Table(
    "rejected_frames",
    metadata,
    column("topic", ID, "The topic of the record."),
    column("partition", Integer, "Its partition."),
    column("offset", BigInteger, "Its offset."),
    optional("logged_at", TIME, "When the broker received the record."),
    column("recorded_at", TIME, "When this row was written, by the database's clock.", "clock_timestamp()"),
    optional(
        "retried_at",
        TIME,
        "When the record was last republished by `frameledger dlq retry`; null if it never was.",
    ),
    column("code", Text, "The error code."),
    column("error", Text, "The error message."),
    optional("context_id", ID, "The conversation; null if the key names none."),
    optional("key", LargeBinary, "The key as received."),
    optional("value", LargeBinary, "The value as received."),
    column("headers", JSON_TEXT, HEADERS),
    generation(),
    PrimaryKeyConstraint("topic", "partition", "offset", "generation", name="rejected_frames_pkey"),
    comment="Dead letters: records that are not valid frames, or that the database refused, kept as "
    "received. They changed nothing.",
)
# `delete_conversation` deletes those of a conversation inside the projector's transaction.
Index(
    "rejected_frames_of_context",
    rejected_frames.c.context_id,
    postgresql_where=rejected_frames.c.context_id.is_not(None),
)
Index(
    "rejected_frames_left",
    rejected_frames.c.recorded_at,
    postgresql_where=rejected_frames.c.retried_at.is_(None),
)
