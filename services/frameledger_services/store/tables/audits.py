"""The tables of audits: changed outcomes, erasures, rebuilds, verifications."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    Table,
    Text,
)
from sqlalchemy.dialects.postgresql import UUID

from frameledger_services.store.tables.columns import (
    ID,
    JSON_TEXT,
    TIME,
    column,
    context_id,
    metadata,
    optional,
)

rebuilds = Table(
    "rebuilds",
    metadata,
    Column("number", BigInteger, Identity(always=True), nullable=False, comment="The number of the rebuild."),
    column(
        "selection", ID, "The selected conversations: all, or unknown (those with frames of unknown type)."
    ),
    column(
        "source",
        ID,
        "Where the frames were read: frames (the table), or kafka (the log, from which missing "
        "rows were restored).",
    ),
    column("applied", Boolean, "True if rows were replaced; false if they were only compared."),
    column("fold_version", Integer, "The version of the fold."),
    column("started_at", TIME, "When the rebuild started, by the database's clock.", "clock_timestamp()"),
    column("started_by", Text, "The database user of the session that started it.", "SESSION_USER"),
    column("updated_at", TIME, "When this row was last written.", "clock_timestamp()"),
    optional("ended_at", TIME, "When the rebuild was complete; null until then."),
    optional(
        "reached",
        ID,
        "The last conversation that is done; they are processed in the order of their ids. Null "
        "before the first one.",
    ),
    column("read_count", BigInteger, "Number of conversations that were folded again.", "0"),
    column("differ_count", BigInteger, "Number of those whose tables differed.", "0"),
    column(
        "failed_count",
        BigInteger,
        "Number of those that cannot be folded, or belong to a newer release.",
        "0",
    ),
    column("rebuilt_count", BigInteger, "Number of those whose rows were replaced.", "0"),
    PrimaryKeyConstraint("number", name="rebuilds_pkey"),
    CheckConstraint("selection IN ('all', 'unknown')", name="rebuilds_selection_check"),
    CheckConstraint("source IN ('frames', 'kafka')", name="rebuilds_source_check"),
    comment="Every `frameledger rebuild` of more than one conversation, and its progress. An "
    "interrupted one continues from there.",
)

outcome_changes = Table(
    "outcome_changes",
    metadata,
    context_id(),
    column("version", BigInteger, "The version of the frame."),
    column("changed_at", TIME, "When the outcome was changed, by the database's clock.", "clock_timestamp()"),
    column("old_outcome", Text, "The previous outcome."),
    optional("old_reason", Text, "The previous reason."),
    column("new_outcome", Text, "The new outcome."),
    optional("new_reason", Text, "The new reason."),
    column("changed_by", Text, "The database user of the session.", "SESSION_USER"),
    column("why", Text, "Why it was changed, as given by the user."),
    PrimaryKeyConstraint("context_id", "version", "changed_at", name="outcome_changes_pkey"),
    comment="Every change of a frame's outcome after it was stored; written by settle_outcome().",
)

erasures = Table(
    "erasures",
    metadata,
    context_id("The erased conversation."),
    column("erased_at", TIME, "The start of the transaction that erased it.", "transaction_timestamp()"),
    column(
        "version",
        BigInteger,
        "The version of the frame that erased the conversation, or that of its last frame if "
        "erase() deleted it without one. The next conversation with this id continues from this "
        "version.",
    ),
    column("frame_count", BigInteger, "Number of deleted frames."),
    column(
        "erased_by",
        Text,
        "The database user that deleted the frames: a projector's, or the caller of erase().",
        "SESSION_USER",
    ),
    column("why", Text, "The reason that was given."),
    column("chain", LargeBinary, "The value of the hash chain at version."),
    optional(
        "frame_id",
        UUID,
        "The frame on the log that erased the conversation; null if erase() deleted it without "
        "one. Such a deletion does not outlast a rebuild from the log.",
    ),
    optional("requested_by", Text, "Who requested the erasure, as that frame says."),
    optional("logged_at", TIME, "When the broker received that frame."),
    optional("partition", Integer, "The partition of that frame."),
    optional("generation", Integer, "The generation of the topic that the frame's offset belongs to."),
    optional("offset", BigInteger, "The offset of that frame."),
    optional("source", Text, "The publisher of that frame, by the name that it gives itself."),
    optional("trace_id", Text, "The trace id of that frame."),
    optional("payload", JSON_TEXT, "The value of that frame, byte for byte."),
    optional(
        "places",
        JSON_TEXT,
        "Where the records of the deleted frames are on the log, which keeps them for its "
        "retention time: a list of {partition, generation, first_offset, last_offset, records}.",
    ),
    column(
        "late_count",
        BigInteger,
        "Number of frames that arrived later for a run, a call or a turn of the erased "
        "conversation. They were skipped.",
        "0",
    ),
    PrimaryKeyConstraint("context_id", "erased_at", "version", name="erasures_pkey"),
    comment="The receipts of erasures: all that is kept of an erased conversation.",
)
Index(
    "erasures_frame_id",
    erasures.c.context_id,
    erasures.c.frame_id,
    unique=True,
    postgresql_where=erasures.c.frame_id.is_not(None),
)

verified = Table(
    "verified",
    metadata,
    context_id(),
    column("version", BigInteger, "The version up to which its rows were verified."),
    column("verified_at", TIME, "When it was verified, by the database's clock.", "clock_timestamp()"),
    column("fold_version", Integer, "The version of the fold that was used."),
    column("verified_by", Text, "The database user of the session.", "SESSION_USER"),
    column("chain", LargeBinary, "The value of the hash chain at that version."),
    column("head", JSON_TEXT, "The counters at that version."),
    column("state", JSON_TEXT, "The state at that version, from which the next verification continues."),
    PrimaryKeyConstraint("context_id", name="verified_pkey"),
    # Deleted together with the conversation.
    ForeignKeyConstraint(
        ["context_id"], ["contexts.context_id"], name="verified_context_id_fkey", ondelete="CASCADE"
    ),
    CheckConstraint("version >= 1", name="verified_version_check"),
    CheckConstraint("octet_length(chain) = 32", name="verified_chain_check"),
    comment="The version up to which each conversation was verified without a difference, so that "
    "`frameledger verify` need not read it again. It is no proof: a user who can write the "
    "tables can write this one.",
)
