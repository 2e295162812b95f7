"""Frames and what is folded from them: messages, eras, settings, heads."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import UUID

from frameledger_services.store.tables.columns import (
    ID,
    JSON_TEXT,
    TIME,
    column,
    context_id,
    generation,
    metadata,
    optional,
)
from frameledger_services.store.valid_to import FOR_EVER

frames = Table(
    "frames",
    metadata,
    context_id("The conversation: the key of the record."),
    column("version", BigInteger, "Sequence number of the frame within its context, from 1, without gaps."),
    column(
        "frame_id",
        UUID,
        "The frame's id. An id that is not a UUID is stored as a uuid5 of it; a missing one as a "
        "uuid5 of the record's position on the log.",
    ),
    column(
        "logged_at",
        TIME,
        "The broker's time of the record; at least that of the preceding frame.",
    ),
    column("recorded_at", TIME, "When this row was written, by the database's clock.", "clock_timestamp()"),
    optional(
        "produced_at", TIME, "When the publisher created the frame; null if the frame has no valid time."
    ),
    column("offset", BigInteger, "The offset of the record in its partition."),
    column(
        "partition",
        Integer,
        "The partition of the record; -1 for an imported frame, which is on no log of this database.",
    ),
    column("type", Text, "The frame type."),
    column(
        "outcome", Text, "applied (also if the frame is only recorded), ignored, unknown (type), or parked."
    ),
    optional(
        "reason", Text, "Why the frame was ignored, one of a fixed set of codes; null for other outcomes."
    ),
    optional("run_id", ID, "The run that the frame names."),
    optional("tool_call_id", ID, "The call that the frame names."),
    optional("source", Text, "The publisher's name for itself (CloudEvents source)."),
    optional("trace_id", Text, "The W3C trace id: 32 hexadecimal digits."),
    column(
        "chain",
        LargeBinary,
        "The value of the hash chain up to and including this frame; see verify_chain().",
    ),
    column("payload", JSON_TEXT, "The value of the record, byte for byte."),
    generation(),
    optional(
        "causation_id",
        UUID,
        "The frame_id of the frame of this conversation that caused this one; null if a client "
        "published it on its own.",
    ),
    PrimaryKeyConstraint("context_id", "version", name="frames_pkey"),
    UniqueConstraint("context_id", "frame_id", name="frames_frame_id_key"),
    CheckConstraint("version >= 1", name="frames_version_check"),
    CheckConstraint(
        "outcome IN ('applied', 'ignored', 'unknown', 'parked')",
        name="frames_outcome_check",
    ),
    CheckConstraint("(outcome = 'ignored') = (reason IS NOT NULL)", name="frames_reason_check"),
    CheckConstraint("octet_length(chain) = 32", name="frames_chain_check"),
    comment="The archive of all frames. Every other table of a conversation can be computed from it again.",
)
Index(
    "frames_interruptions",
    frames.c.context_id,
    frames.c.version,
    postgresql_where=text("type IN ('InterruptionFrame', 'StartInterruptionFrame')"),
)
# The frames by which clients request answers.
Index(
    "frames_asking",
    frames.c.context_id,
    frames.c.version,
    postgresql_where=text(
        "outcome = 'applied' AND type IN ('LLMMessagesAppendFrame', 'LLMMessagesUpdateFrame', 'LLMRunFrame', "
        "'LLMContextFrame')"
    ),
)
# Those that the gateway published for a client of a compatible API.
Index(
    "frames_of_requests",
    frames.c.context_id,
    frames.c.version,
    postgresql_where=text(
        "outcome = 'applied' AND type IN ('LLMMessagesAppendFrame', 'LLMMessagesUpdateFrame', 'LLMRunFrame', "
        "'LLMContextFrame', 'FunctionCallResultFrame') AND (strpos(payload::text, '\"chat_completion\"') > 0 "
        "OR type = 'FunctionCallResultFrame' AND strpos(payload::text, '\"ag_ui\"') > 0)"
    ),
)
Index("frames_unknown", frames.c.logged_at, postgresql_where=text("outcome = 'unknown'"))
# Frames are inserted roughly in the order of their offsets, so a small block range index finds the tail of a partition.
Index(
    "frames_by_offset",
    frames.c.offset,
    postgresql_using="brin",
    postgresql_with={"autosummarize": "on"},
)
# And in the order of their times.
Index(
    "frames_by_time",
    frames.c.logged_at,
    postgresql_using="brin",
    postgresql_with={"autosummarize": "on"},
)

messages = Table(
    "messages",
    metadata,
    context_id(),
    column("era", Integer, "The history that the message belongs to; see eras."),
    column(
        "position", Integer, "Position in the history: assigned once, never reused or moved. There are gaps."
    ),
    column(
        "valid_from", BigInteger, "The first version of the context at which the message has this content."
    ),
    column(
        "valid_to",
        BigInteger,
        "The first version at which it no longer has this content; the largest bigint while it is current.",
        str(FOR_EVER),
    ),
    optional("role", Text, "The role: system, user, assistant, tool, developer ..."),
    optional("text", Text, "The message as text for people: its content, or the calls that it makes."),
    optional("run_id", ID, "The run that produced the message; null if none did."),
    column("message", JSON_TEXT, "The message as a model receives it."),
    optional(
        "said_at",
        TIME,
        "When the frame that wrote this row was logged; null in rows of an older release until "
        "fill_said_at() is called.",
    ),
    PrimaryKeyConstraint("context_id", "era", "position", "valid_from", name="messages_pkey"),
    CheckConstraint("valid_from >= 1 AND valid_from < valid_to", name="messages_validity_check"),
    comment="Every message, with one row for each content that it had. The context at version v is "
    "the rows of its era with valid_from <= v < valid_to.",
)
# The messages of a run, by the versions of its start and its end.
Index(
    "messages_by_version",
    messages.c.context_id,
    messages.c.valid_from,
    postgresql_where=text("role = 'assistant'"),
)
# Messages, too. A new row may reuse the space of an updated one, so a block range holds several intervals of time.
Index(
    "messages_by_time",
    messages.c.said_at,
    postgresql_using="brin",
    postgresql_ops={"said_at": "timestamptz_minmax_multi_ops"},
    postgresql_with={"autosummarize": "on"},
)

eras = Table(
    "eras",
    metadata,
    context_id(),
    column("valid_from", BigInteger, "The version of the frame that replaced the whole history."),
    column(
        "era",
        Integer,
        "The number of the history that starts at valid_from. The first history is 1 and has no row.",
    ),
    PrimaryKeyConstraint("context_id", "valid_from", name="eras_pkey"),
    CheckConstraint("era >= 2", name="eras_era_check"),
    comment="Each replacement of a context's whole history. An era lasts until the next one starts.",
)

context_settings = Table(
    "context_settings",
    metadata,
    context_id(),
    column(
        "name",
        ID,
        "tools, tool_choice, settings, prompt_caching, skip_tts, recording, ended, limits, or "
        "mirror (the program that keeps the history elsewhere).",
    ),
    column(
        "valid_from",
        BigInteger,
        "The first version with this value. It holds until the next row of the same name.",
    ),
    column("value", JSON_TEXT, "The value."),
    PrimaryKeyConstraint("context_id", "name", "valid_from", name="context_settings_pkey"),
    comment="The settings that a request contains beside the messages, and the state of the "
    "context's life. A name without a row has its default: no tools, no tool choice, no "
    "settings, false.",
)

contexts = Table(
    "contexts",
    metadata,
    context_id("The conversation: the key of its records on the log."),
    column("version", BigInteger, "The version of the newest stored frame."),
    column(
        "state_version",
        BigInteger,
        "The version that state belongs to. Later frames are folded again when the context is loaded.",
    ),
    column("run_version", BigInteger, "The version that the newest run read; 0 before the first run.", "0"),
    optional(
        "parked_version",
        BigInteger,
        "The first version that is stored but not folded; null if the conversation is not parked.",
    ),
    column("started_at", TIME, "When its first frame was logged."),
    column("last_at", TIME, "When its newest frame was logged."),
    optional("parked_at", TIME, "When the conversation was parked, by the database's clock."),
    column(
        "fold_version",
        Integer,
        "The version of the fold that computed state. An older release refuses to load it.",
    ),
    column("era", Integer, "The era of its current history.", "1"),
    column("message_count", Integer, "Number of current messages.", "0"),
    column("run_count", Integer, "Number of requested runs.", "0"),
    column("call_count", Integer, "Number of calls that were announced or started.", "0"),
    column("open_call_count", Integer, "Number of calls that are not settled.", "0"),
    column("interruption_count", Integer, "Number of interruptions.", "0"),
    column("unknown_count", Integer, "Number of frames of unknown type.", "0"),
    column(
        "duplicate_count", Integer, "Number of records that repeated a stored frame and were skipped.", "0"
    ),
    column(
        "recording",
        Boolean,
        "True if the conversation takes place elsewhere and is only recorded; nothing is run for it.",
        "false",
    ),
    column("ended", Boolean, "True if the conversation was ended and not reopened.", "false"),
    optional("open_run_id", ID, "The open run; null if none is open."),
    optional(
        "parked_error",
        Text,
        "The error of the fold or of the database because of which the conversation was parked.",
    ),
    column("chain", LargeBinary, "The value of the hash chain at version."),
    column(
        "state", JSON_TEXT, "The open part of the conversation (turn, runs, calls), as the fold stores it."
    ),
    optional(
        "turn_opened_version", BigInteger, "The version that opened the user's turn; null if none is open."
    ),
    optional(
        "turn_waits",
        Boolean,
        "True if the user stopped speaking and the turn waits for its final words; null if no turn is open.",
    ),
    optional(
        "bot_since_version",
        BigInteger,
        "The version at which the bot started to speak; null if it is not speaking.",
    ),
    column(
        "rebuilt",
        Integer,
        "Number of times that a rebuild replaced the rows. A projector that loaded the context "
        "before that cannot write it.",
        "0",
    ),
    optional(
        "folded_by",
        JSON_TEXT,
        "Fold versions by range: [[1, 2], [58, 3]] means fold 2 from version 1 and fold 3 from "
        "version 58. Null if fold_version holds for all versions.",
    ),
    optional(
        "origin",
        JSON_TEXT,
        "The conversation and version that this one was forked from: {context_id, version, "
        "chain}, the chain in hexadecimal. Null if it is not a fork.",
    ),
    column(
        "experiment",
        Boolean,
        "True for an experiment, such as a rerun. Lists of conversations omit it.",
        "false",
    ),
    PrimaryKeyConstraint("context_id", name="contexts_pkey"),
    CheckConstraint("state_version <= version", name="contexts_state_version_check"),
    CheckConstraint("octet_length(chain) = 32", name="contexts_chain_check"),
    CheckConstraint(
        "(parked_version IS NULL) = (parked_at IS NULL) AND (parked_version IS NULL) = (parked_error IS NULL)",
        name="contexts_parked_check",
    ),
    CheckConstraint("(turn_opened_version IS NULL) = (turn_waits IS NULL)", name="contexts_turn_check"),
    # Every batch updates the heads of its conversations. Free space on the page, and no index on a column that changes
    # with every frame, make these heap-only updates, which write no index.
    postgresql_with={"fillfactor": 80},
    comment="The current state of every conversation, one row each.",
)
Index(
    "contexts_forks",
    text("(origin ->> 'context_id')"),
    postgresql_where=contexts.c.origin.is_not(None),
    _table=contexts,
)
Index("contexts_experiments", contexts.c.started_at, postgresql_where=text("experiment"))
Index("contexts_started_at", contexts.c.started_at)
Index("contexts_parked", contexts.c.context_id, postgresql_where=contexts.c.parked_version.is_not(None))
Index(
    "contexts_speaking",
    contexts.c.context_id,
    postgresql_where=text("turn_opened_version IS NOT NULL OR bot_since_version IS NOT NULL"),
)
