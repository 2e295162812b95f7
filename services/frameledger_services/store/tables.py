"""The declaration of all tables: columns, keys, indexes, and a comment on every column.

The migrations create the tables; a test compares both. Everything that belongs to a conversation is keyed by its
context first, so that the tables partition and distribute by context. Identifiers sort by their bytes (collation
`C`), so that no change of the system's locales can spoil an index.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Double,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Numeric,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSON, UUID
from sqlalchemy.types import TypeEngine

from frameledger_services.store.valid_to import FOR_EVER

metadata = MetaData()

_ID = Text(collation="C")
_JSON = JSON()
_TIME = DateTime(timezone=True)


def _column(
    name: str, kind: TypeEngine[Any] | type[TypeEngine[Any]], comment: str, default: str | None = None
) -> Column[Any]:
    """A column that always has a value."""
    return Column(
        name, kind, nullable=False, server_default=None if default is None else text(default), comment=comment
    )


def _optional(name: str, kind: TypeEngine[Any] | type[TypeEngine[Any]], comment: str) -> Column[Any]:
    """A column that may be null."""
    return Column(name, kind, nullable=True, comment=comment)


def _context_id(comment: str = "The conversation.") -> Column[Any]:
    return _column("context_id", _ID, comment)


def _generation() -> Column[Any]:
    return _column(
        "generation", Integer, "The generation of the topic that the offset belongs to; see topics.", "1"
    )


_HEADERS = 'The headers in order: [[name, value], ...]. A value is text, null, or {"base64": ...} if it is not UTF-8.'

frames = Table(
    "frames",
    metadata,
    _context_id("The conversation: the key of the record."),
    _column("version", BigInteger, "Sequence number of the frame within its context, from 1, without gaps."),
    _column(
        "frame_id",
        UUID,
        "The frame's id. An id that is not a UUID is stored as a uuid5 of it; a missing one as a "
        "uuid5 of the record's position on the log.",
    ),
    _column(
        "logged_at",
        _TIME,
        "The broker's time of the record; at least that of the preceding frame.",
    ),
    _column("recorded_at", _TIME, "When this row was written, by the database's clock.", "clock_timestamp()"),
    _optional(
        "produced_at", _TIME, "When the publisher created the frame; null if the frame has no valid time."
    ),
    _column("offset", BigInteger, "The offset of the record in its partition."),
    _column(
        "partition",
        Integer,
        "The partition of the record; -1 for an imported frame, which is on no log of this database.",
    ),
    _column("type", Text, "The frame type."),
    _column(
        "outcome", Text, "applied (also if the frame is only recorded), ignored, unknown (type), or parked."
    ),
    _optional(
        "reason", Text, "Why the frame was ignored, one of a fixed set of codes; null for other outcomes."
    ),
    _optional("run_id", _ID, "The run that the frame names."),
    _optional("tool_call_id", _ID, "The call that the frame names."),
    _optional("source", Text, "The publisher's name for itself (CloudEvents source)."),
    _optional("trace_id", Text, "The W3C trace id: 32 hexadecimal digits."),
    _column(
        "chain",
        LargeBinary,
        "The value of the hash chain up to and including this frame; see verify_chain().",
    ),
    _column("payload", _JSON, "The value of the record, byte for byte."),
    _generation(),
    _optional(
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
    _context_id(),
    _column("era", Integer, "The history that the message belongs to; see eras."),
    _column(
        "position", Integer, "Position in the history: assigned once, never reused or moved. There are gaps."
    ),
    _column(
        "valid_from", BigInteger, "The first version of the context at which the message has this content."
    ),
    _column(
        "valid_to",
        BigInteger,
        "The first version at which it no longer has this content; the largest bigint while it is current.",
        str(FOR_EVER),
    ),
    _optional("role", Text, "The role: system, user, assistant, tool, developer ..."),
    _optional("text", Text, "The message as text for people: its content, or the calls that it makes."),
    _optional("run_id", _ID, "The run that produced the message; null if none did."),
    _column("message", _JSON, "The message as a model receives it."),
    _optional(
        "said_at",
        _TIME,
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
    _context_id(),
    _column("valid_from", BigInteger, "The version of the frame that replaced the whole history."),
    _column(
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
    _context_id(),
    _column(
        "name",
        _ID,
        "tools, tool_choice, settings, prompt_caching, skip_tts, recording, ended, limits, or "
        "mirror (the program that keeps the history elsewhere).",
    ),
    _column(
        "valid_from",
        BigInteger,
        "The first version with this value. It holds until the next row of the same name.",
    ),
    _column("value", _JSON, "The value."),
    PrimaryKeyConstraint("context_id", "name", "valid_from", name="context_settings_pkey"),
    comment="The settings that a request contains beside the messages, and the state of the "
    "context's life. A name without a row has its default: no tools, no tool choice, no "
    "settings, false.",
)

contexts = Table(
    "contexts",
    metadata,
    _context_id("The conversation: the key of its records on the log."),
    _column("version", BigInteger, "The version of the newest stored frame."),
    _column(
        "state_version",
        BigInteger,
        "The version that state belongs to. Later frames are folded again when the context is loaded.",
    ),
    _column("run_version", BigInteger, "The version that the newest run read; 0 before the first run.", "0"),
    _optional(
        "parked_version",
        BigInteger,
        "The first version that is stored but not folded; null if the conversation is not parked.",
    ),
    _column("started_at", _TIME, "When its first frame was logged."),
    _column("last_at", _TIME, "When its newest frame was logged."),
    _optional("parked_at", _TIME, "When the conversation was parked, by the database's clock."),
    _column(
        "fold_version",
        Integer,
        "The version of the fold that computed state. An older release refuses to load it.",
    ),
    _column("era", Integer, "The era of its current history.", "1"),
    _column("message_count", Integer, "Number of current messages.", "0"),
    _column("run_count", Integer, "Number of requested runs.", "0"),
    _column("call_count", Integer, "Number of calls that were announced or started.", "0"),
    _column("open_call_count", Integer, "Number of calls that are not settled.", "0"),
    _column("interruption_count", Integer, "Number of interruptions.", "0"),
    _column("unknown_count", Integer, "Number of frames of unknown type.", "0"),
    _column(
        "duplicate_count", Integer, "Number of records that repeated a stored frame and were skipped.", "0"
    ),
    _column(
        "recording",
        Boolean,
        "True if the conversation takes place elsewhere and is only recorded; nothing is run for it.",
        "false",
    ),
    _column("ended", Boolean, "True if the conversation was ended and not reopened.", "false"),
    _optional("open_run_id", _ID, "The open run; null if none is open."),
    _optional(
        "parked_error",
        Text,
        "The error of the fold or of the database because of which the conversation was parked.",
    ),
    _column("chain", LargeBinary, "The value of the hash chain at version."),
    _column("state", _JSON, "The open part of the conversation (turn, runs, calls), as the fold stores it."),
    _optional(
        "turn_opened_version", BigInteger, "The version that opened the user's turn; null if none is open."
    ),
    _optional(
        "turn_waits",
        Boolean,
        "True if the user stopped speaking and the turn waits for its final words; null if no turn is open.",
    ),
    _optional(
        "bot_since_version",
        BigInteger,
        "The version at which the bot started to speak; null if it is not speaking.",
    ),
    _column(
        "rebuilt",
        Integer,
        "Number of times that a rebuild replaced the rows. A projector that loaded the context "
        "before that cannot write it.",
        "0",
    ),
    _optional(
        "folded_by",
        _JSON,
        "Fold versions by range: [[1, 2], [58, 3]] means fold 2 from version 1 and fold 3 from "
        "version 58. Null if fold_version holds for all versions.",
    ),
    _optional(
        "origin",
        _JSON,
        "The conversation and version that this one was forked from: {context_id, version, "
        "chain}, the chain in hexadecimal. Null if it is not a fork.",
    ),
    _column(
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

runs = Table(
    "runs",
    metadata,
    _context_id(),
    _column("run_id", _ID, "The run: a uuid5 of the context and of requested_version."),
    _column("requested_version", BigInteger, "The version of the frame that first requested the run."),
    _optional(
        "opened_version", BigInteger, "The version of the context that the run reads; null before it opens."
    ),
    _optional("closed_version", BigInteger, "The version of the frame that closed the run."),
    _column("requested_at", _TIME, "When the frame that requested the run was logged."),
    _optional("opened_at", _TIME, "When the run was opened."),
    _optional("started_at", _TIME, "When the start of the latest attempt was logged."),
    _optional("first_text_at", _TIME, "When the first text of the latest attempt was logged."),
    _optional("closed_at", _TIME, "When the run was closed."),
    _optional("input_tokens", BigInteger, "Input tokens, as far as they are known; see usage_partial."),
    _optional("output_tokens", BigInteger, "Output tokens, as far as they are known; see usage_partial."),
    _optional(
        "cache_read_tokens",
        BigInteger,
        "Tokens read from the provider's cache, as far as they are known; see usage_partial.",
    ),
    _optional(
        "cache_write_tokens",
        BigInteger,
        "Tokens written to the provider's cache, as far as they are known; see usage_partial.",
    ),
    _optional(
        "reasoning_tokens", BigInteger, "Reasoning tokens, as far as they are known; see usage_partial."
    ),
    _column(
        "attempt",
        Integer,
        "The number of the latest attempt; 0 before the first one, and for an answer that names no run.",
        "0",
    ),
    _column("trigger", Text, "The type of the frame that first requested the run."),
    _column(
        "status",
        Text,
        "requested, open, dropped (before it opened), noted (in a recording), or how it was "
        "closed: ended, failed, interrupted, replaced, context_ended.",
    ),
    _optional("worker", Text, "The worker that answers, by the name that it gives itself."),
    _optional("provider", Text, "The provider of the model."),
    _optional("model", Text, "The model."),
    _optional("finish_reason", Text, "stop, tool_calls, length, content_filter, or error."),
    _optional("error", Text, "The message of the latest error."),
    _optional("error_code", Text, "The code of the latest error."),
    _optional("request_sha256", Text, "The SHA-256 of the request as the provider received it."),
    _optional(
        "heard_version",
        BigInteger,
        "The version at which the user stopped speaking; null if the run does not answer a user's turn.",
    ),
    _optional("started_version", BigInteger, "The version of the start of the latest attempt."),
    _optional(
        "said",
        Text,
        "The generated text of an interrupted message, if the context keeps only the part that was heard.",
    ),
    _column(
        "usage_partial",
        Boolean,
        "True if the token counts are incomplete: the run has no end that reports them, or ended "
        "with an error.",
        "false",
    ),
    _optional("claim", Text, "The claim that the latest start names; see claims.token."),
    _optional(
        "is_copy",
        Boolean,
        "True if `frameledger replay` republished the answer; null otherwise, and in rows of an "
        "older release.",
    ),
    PrimaryKeyConstraint("context_id", "run_id", name="runs_pkey"),
    CheckConstraint(
        "status IN ('requested', 'open', 'dropped', 'noted', 'ended', 'failed', 'interrupted', 'replaced', "
        "'context_ended')",
        name="runs_status_check",
    ),
    postgresql_with={"fillfactor": 90},
    comment="Every inference, computed from frames only.",
)
# The oldest first: the timekeeper reads only what is overdue.
Index("runs_open", runs.c.opened_at, postgresql_where=text("status = 'open'"))
# The run that a frame requested, and the runs since a version: the frames of a conversation are in order of time.
Index("runs_by_version", runs.c.context_id, runs.c.requested_version)
Index("runs_requested_at", runs.c.requested_at)
Index(
    "runs_refused",
    runs.c.closed_at,
    postgresql_where=text("error_code IN ('context_refused', 'unmappable')"),
)

tool_calls = Table(
    "tool_calls",
    metadata,
    _context_id(),
    _column(
        "requested_version",
        BigInteger,
        "The version of the frame that announced the call, or that started it if none announced it.",
    ),
    _optional("started_version", BigInteger, "The version of the first start."),
    _optional("settled_version", BigInteger, "The version of the frame that settled the call."),
    _column("requested_at", _TIME, "When the frame that announced the call was logged."),
    _optional(
        "dispatched_at",
        _TIME,
        "When the call became ready to start: it was committed, and no earlier call of its queue "
        "was running.",
    ),
    _optional("started_at", _TIME, "When the first start was logged."),
    _optional("settled_at", _TIME, "When the call was settled."),
    _column("ordinal", Integer, "The index of the call among those of the same frame, from 0."),
    _column(
        "attempt",
        Integer,
        "The number of the latest attempt; 0 before the call starts, and for a start that names none.",
        "0",
    ),
    _column("progress_count", Integer, "Number of intermediate results.", "0"),
    _optional("synchronous", Boolean, "True if an interruption cancels the call; null before it starts."),
    _column(
        "tool_call_id", _ID, "The id that the provider gave. It may be used again after this call is settled."
    ),
    _column("function_name", Text, "The name of the function."),
    _column(
        "status",
        Text,
        "announced, dispatched, running, waiting (for a person, or for the client that answers "
        "it), or how it ended: done, failed, ambiguous (it may or may not have happened), "
        "cancelled, forgotten.",
    ),
    _optional("run_id", _ID, "The run that made the call; null if none did."),
    _optional("group_id", _ID, "The id shared by calls that were announced together."),
    _optional("worker", Text, "The worker that runs the call, by the name that it gives itself."),
    _column("arguments", _JSON, "The arguments; a JSON string if they were sent as text."),
    _optional("result", _JSON, "The final result; null if there is none."),
    _optional(
        "dispatched_version",
        BigInteger,
        "The version at which the call became ready to start; its effect names this version.",
    ),
    _optional(
        "interrupted_version",
        BigInteger,
        "The version of the interruption that cancels the call. Its worker still has to report the outcome.",
    ),
    _optional(
        "resolved_version",
        BigInteger,
        "The version of the frame by which a person resolved an ambiguous call.",
    ),
    _optional(
        "timeout_secs", Double, "Seconds that the call may take after it was dispatched, as its start says."
    ),
    _optional(
        "safe_to_retry", Boolean, "True if the function may run twice for one call; null before it starts."
    ),
    _optional(
        "waiting_for",
        Text,
        "What the call waits for: the person or system that its worker names, or `the client`.",
    ),
    _optional(
        "waiting_deadline",
        _TIME,
        "When the wait ends; null if it has no end, or none that is a valid time.",
    ),
    _column(
        "builtin", Boolean, "True for a built-in function, such as the one that cancels a call.", "false"
    ),
    _optional("claim", Text, "The claim that the latest start names; see claims.token."),
    _optional(
        "idempotency_key",
        UUID(),
        "The key that every attempt gives its handler, to pass to systems that must act only "
        "once; null in rows of an older release.",
    ),
    PrimaryKeyConstraint("context_id", "requested_version", "ordinal", name="tool_calls_pkey"),
    CheckConstraint(
        "status IN ('announced', 'dispatched', 'running', 'waiting', 'done', 'failed', 'ambiguous', 'cancelled', "
        "'forgotten')",
        name="tool_calls_status_check",
    ),
    postgresql_with={"fillfactor": 90},
    comment="Every function call, computed from frames only.",
)
# The oldest first, as for runs.
Index(
    "tool_calls_unsettled",
    tool_calls.c.requested_at,
    postgresql_where=text("status IN ('announced', 'dispatched', 'running')"),
)
Index("tool_calls_requested_at", tool_calls.c.requested_at)
# The calls whose messages a context shows, and not those of earlier eras.
Index(
    "tool_calls_by_start",
    tool_calls.c.context_id,
    tool_calls.c.started_version,
    postgresql_where=tool_calls.c.started_version.is_not(None),
)
Index("tool_calls_waiting", tool_calls.c.waiting_deadline, postgresql_where=text("status = 'waiting'"))
Index(
    "tool_calls_ambiguous",
    *(tool_calls.c.context_id, tool_calls.c.requested_version, tool_calls.c.ordinal),
    postgresql_where=text("status = 'ambiguous' AND resolved_version IS NULL"),
)

workers = Table(
    "workers",
    metadata,
    _column("worker_id", _ID, "One session of one process. A restarted process is a new worker."),
    _column("started_at", _TIME, "When the worker registered, by the database's clock.", "clock_timestamp()"),
    _column(
        "connected_at",
        _TIME,
        "When its current connection started. It declares other workers dead only after a whole lease.",
        "clock_timestamp()",
    ),
    _column(
        "heartbeat_at", _TIME, "Time of its last heartbeat, by the database's clock.", "clock_timestamp()"
    ),
    _optional(
        "stopped_at",
        _TIME,
        "When the worker deregistered, or its last heartbeat if it died; null while it may be alive.",
    ),
    _column("lease_secs", Double, "Seconds after its last heartbeat at which it counts as dead."),
    _column("slots", Integer, "Number of jobs that it runs concurrently."),
    _column("pid", Integer, "The process id on that host."),
    _column(
        "serves_all",
        Boolean,
        "True if it serves every function, or every model, that no live worker lists.",
        "false",
    ),
    _column("service", _ID, "The service that it belongs to. Workers of one service share their work."),
    _column("kind", Text, "inference, functions, or timekeeper."),
    _column("host", Text, "The host that it runs on."),
    _column("serves", ARRAY(Text), "The functions or models that it serves, by name.", "'{}'"),
    _column(
        "offers",
        _JSON,
        "The functions with their schemas and options, or the options of an inference service's requests.",
    ),
    PrimaryKeyConstraint("worker_id", name="workers_pkey"),
    CheckConstraint("kind IN ('inference', 'functions', 'timekeeper')", name="workers_kind_check"),
    CheckConstraint("lease_secs > 0", name="workers_lease_secs_check"),
    # Few rows, each updated twice a second.
    postgresql_with={
        "fillfactor": 20,
        "autovacuum_vacuum_scale_factor": 0,
        "autovacuum_vacuum_threshold": 500,
    },
    comment="Every session of every worker. A worker is alive while stopped_at is null and "
    "heartbeat_at is younger than its lease.",
)
# No index on heartbeat_at, which changes with every heartbeat: this index leaves few rows to read.
Index("workers_present", workers.c.worker_id, postgresql_where=text("stopped_at IS NULL"))

claims = Table(
    "claims",
    metadata,
    _column("effect_id", _ID, "The effect. Only one worker can hold it: a second claim is refused."),
    _column("version", BigInteger, "The version of the context that the effect names."),
    _optional("requested_version", BigInteger, "For a call: the version of the frame that announced it."),
    _column(
        "claimed_at",
        _TIME,
        "When the effect was first claimed, by the database's clock.",
        "clock_timestamp()",
    ),
    _column("taken_at", _TIME, "When the latest attempt was claimed.", "clock_timestamp()"),
    _optional(
        "released_at",
        _TIME,
        "When the worker released it for another worker; null after it is claimed again.",
    ),
    _optional("finished_at", _TIME, "When the work was finished; null until then."),
    _optional("ordinal", Integer, "For a call: its index among the calls of that frame."),
    _column(
        "attempt",
        Integer,
        "The number of the latest attempt, higher than every folded one; attempt numbers come "
        "from here only. A release before anything was published subtracts one, so that it may "
        "be 0.",
        "1",
    ),
    _column("kind", Text, "run or call."),
    _context_id(),
    _optional("run_id", _ID, "For a run: its id."),
    _optional("tool_call_id", _ID, "For a call: its id."),
    _column("service", _ID, "The service of the worker that holds the claim."),
    _column("worker_id", _ID, "The worker that holds the claim."),
    _optional("finish", Text, "done, over (the run or call had already ended), or given_up."),
    _column(
        "token",
        _ID,
        "A random value of the attempt, which the worker's frames name (`claim`). It "
        "distinguishes two workers that got the same attempt number from a database that lost "
        "its latest commits.",
        '"left"((gen_random_uuid())::text, 8)',
    ),
    PrimaryKeyConstraint("effect_id", name="claims_pkey"),
    CheckConstraint(
        "CASE kind "
        "WHEN 'run' THEN run_id IS NOT NULL AND requested_version IS NULL AND tool_call_id IS NULL "
        "WHEN 'call' THEN requested_version IS NOT NULL AND ordinal IS NOT NULL AND tool_call_id IS NOT NULL "
        "ELSE false END",
        name="claims_kind_check",
    ),
    CheckConstraint("attempt >= 0", name="claims_attempt_check"),
    CheckConstraint("finish IN ('done', 'over', 'given_up')", name="claims_finish_check"),
    CheckConstraint("(finish IS NULL) = (finished_at IS NULL)", name="claims_finished_check"),
    postgresql_with={"fillfactor": 80},
    comment="Which worker runs which effect, with one row for each claimed effect. Rows are kept for "
    "thirty days.",
)
Index("claims_unfinished", claims.c.worker_id, postgresql_where=text("finished_at IS NULL"))
Index(
    "claims_released",
    claims.c.taken_at,
    postgresql_where=text("finished_at IS NULL AND released_at IS NOT NULL"),
)
Index("claims_claimed_at", claims.c.claimed_at)
Index("claims_of_context", claims.c.context_id, claims.c.version)

outbox = Table(
    "outbox",
    metadata,
    _column("topic", _ID, "The topic of the record that caused the row."),
    _column("partition", Integer, "The partition of that record."),
    _column("offset", BigInteger, "The offset of that record."),
    _column("ordinal", Integer, "The index among the rows that the record caused, from 0."),
    _column("recorded_at", _TIME, "When this row was written, by the database's clock.", "clock_timestamp()"),
    _column("kind", Text, "effect, dead_letter, or forward."),
    _column("to_topic", Text, "The topic to publish to."),
    _optional("context_id", _ID, "The conversation; null for a dead letter whose key names none."),
    _optional("key", LargeBinary, "The key to publish."),
    _optional("value", LargeBinary, "The value to publish."),
    _column("headers", _JSON, _HEADERS),
    _generation(),
    PrimaryKeyConstraint("topic", "partition", "offset", "ordinal", "generation", name="outbox_pkey"),
    CheckConstraint("kind IN ('effect', 'dead_letter', 'forward')", name="outbox_kind_check"),
    # Every row is deleted shortly after it was written.
    postgresql_with={"autovacuum_vacuum_scale_factor": 0, "autovacuum_vacuum_threshold": 5000},
    comment="Records that are not published yet: effects, dead letters, forwarded records.",
)

topics = Table(
    "topics",
    metadata,
    _column("topic", _ID, "The topic's name."),
    _column(
        "generation",
        Integer,
        "Offsets are comparable within one generation. `frameledger recover` starts the next one.",
        "1",
    ),
    _column("partitions", Integer, "Number of partitions. Services stop if the broker has another number."),
    _optional(
        "topic_id",
        UUID,
        "The broker's id of the topic. A different one means that the topic was deleted and created again.",
    ),
    _column(
        "recorded_at", _TIME, "When the topic was first seen, by the database's clock.", "clock_timestamp()"
    ),
    PrimaryKeyConstraint("topic", "generation", name="topics_pkey"),
    comment="The topics that this database is filled from.",
)

projections = Table(
    "projections",
    metadata,
    _column("projection", _ID, "The name of the projection."),
    _column("topic", _ID, "The name of the topic."),
    _column("generation", Integer, "The topic's generation.", "1"),
    _column("partition", Integer, "The partition."),
    _column(
        "epoch",
        BigInteger,
        "Incremented when the partition gets another owner, which fences the previous one.",
        "0",
    ),
    _column("next_offset", BigInteger, "The next offset to read.", "0"),
    _optional(
        "last_offset", BigInteger, "The offset of the last record that was read; null before the first one."
    ),
    _optional("last_logged_at", _TIME, "When that record was logged."),
    _optional("end_offset", BigInteger, "The end of the partition when the owner last checked."),
    _optional(
        "owner_started_at",
        _TIME,
        "When the owner's database session started; a later session may have the same pid.",
    ),
    _column(
        "updated_at", _TIME, "When this row was last written, by the database's clock.", "clock_timestamp()"
    ),
    _optional("owner_pid", Integer, "The process id of the owner's database session."),
    _optional("owner", Text, "The process that reads the partition."),
    _optional("last_hash", LargeBinary, "The SHA-256 of that record's key, value and time."),
    _optional(
        "sealed_at",
        _TIME,
        "When `frameledger recover` started the next generation; null in the current one. A "
        "sealed row has no owner.",
    ),
    _optional(
        "effects_held_until",
        BigInteger,
        "The end of the partition when the owner took it over. Until it is reached no effects "
        "are published and no work is claimed; -1 until the owner has read the end. Null after "
        "the owner caught up.",
    ),
    _optional(
        "server_started_at",
        _TIME,
        "When PostgreSQL had last started or restarted after a crash, as of the time at which "
        "the owner took the partition over.",
    ),
    _optional(
        "attempt",
        _ID,
        "What the owner started to process at next_offset: batch, or record (the next one "
        "alone). Null before that, and after a regular end.",
    ),
    _column(
        "crashes",
        Integer,
        "Number of owners that crashed while they processed records from next_offset on.",
        "0",
    ),
    _column("crashes_alone", Integer, "Number of those that were processing the next record alone.", "0"),
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
    _column("topic", _ID, "The topic."),
    _column("generation", Integer, "The generation that was started."),
    _column("partition", Integer, "The partition."),
    _column(
        "recovered_at",
        _TIME,
        "When the partition was recovered, by the database's clock.",
        "clock_timestamp()",
    ),
    _column(
        "happened",
        Text,
        "What had happened to the partition: fine (nothing), lost_tail, expired (records expired "
        "before they were stored), another_log.",
    ),
    _column("stored_offset", BigInteger, "The next_offset of the previous generation."),
    _column("first_offset", BigInteger, "The first offset of the partition at that time."),
    _column("end_offset", BigInteger, "The end of the partition at that time."),
    _column("begins_at", BigInteger, "The first offset of the new generation."),
    _column("missing", BigInteger, "Number of offsets that expired before they were stored."),
    _optional("put_back_at", _TIME, "When all lost records had been republished; null until then."),
    _optional("put_back", BigInteger, "Number of republished frames."),
    _optional(
        "put_back_through", BigInteger, "The highest offset of a republished frame; null if there is none."
    ),
    _column("recovered_by", Text, "The database user of the session.", "SESSION_USER"),
    PrimaryKeyConstraint("topic", "generation", "partition", name="recoveries_pkey"),
    CheckConstraint(
        "happened IN ('fine', 'lost_tail', 'expired', 'another_log')", name="recoveries_happened_check"
    ),
    comment="The receipts of `frameledger recover`: what had happened to each partition, and where "
    "its new generation starts.",
)

rebuilds = Table(
    "rebuilds",
    metadata,
    Column("number", BigInteger, Identity(always=True), nullable=False, comment="The number of the rebuild."),
    _column(
        "selection", _ID, "The selected conversations: all, or unknown (those with frames of unknown type)."
    ),
    _column(
        "source",
        _ID,
        "Where the frames were read: frames (the table), or kafka (the log, from which missing "
        "rows were restored).",
    ),
    _column("applied", Boolean, "True if rows were replaced; false if they were only compared."),
    _column("fold_version", Integer, "The version of the fold."),
    _column("started_at", _TIME, "When the rebuild started, by the database's clock.", "clock_timestamp()"),
    _column("started_by", Text, "The database user of the session that started it.", "SESSION_USER"),
    _column("updated_at", _TIME, "When this row was last written.", "clock_timestamp()"),
    _optional("ended_at", _TIME, "When the rebuild was complete; null until then."),
    _optional(
        "reached",
        _ID,
        "The last conversation that is done; they are processed in the order of their ids. Null "
        "before the first one.",
    ),
    _column("read_count", BigInteger, "Number of conversations that were folded again.", "0"),
    _column("differ_count", BigInteger, "Number of those whose tables differed.", "0"),
    _column(
        "failed_count",
        BigInteger,
        "Number of those that cannot be folded, or belong to a newer release.",
        "0",
    ),
    _column("rebuilt_count", BigInteger, "Number of those whose rows were replaced.", "0"),
    PrimaryKeyConstraint("number", name="rebuilds_pkey"),
    CheckConstraint("selection IN ('all', 'unknown')", name="rebuilds_selection_check"),
    CheckConstraint("source IN ('frames', 'kafka')", name="rebuilds_source_check"),
    comment="Every `frameledger rebuild` of more than one conversation, and its progress. An "
    "interrupted one continues from there.",
)

prices = Table(
    "prices",
    metadata,
    _column("model", _ID, "The model, named as in runs.model."),
    _column(
        "provider",
        _ID,
        "The provider, named as in runs.provider; empty for any provider. A price for a named "
        "provider takes precedence.",
        "''",
    ),
    _column(
        "valid_from",
        _TIME,
        "When the price takes effect. It holds until the next one of the same model and provider.",
        "'-infinity'",
    ),
    _column("input", Numeric, "Price of a million input tokens."),
    _column("output", Numeric, "Price of a million output tokens."),
    _optional(
        "cache_read",
        Numeric,
        "Price of a million tokens read from the provider's cache; null: that of input.",
    ),
    _optional(
        "cache_write",
        Numeric,
        "Price of a million tokens written to the provider's cache; null: that of input.",
    ),
    _optional("reasoning", Numeric, "Price of a million reasoning tokens; null: that of output."),
    _column("currency", Text, "The currency, such as EUR."),
    PrimaryKeyConstraint("model", "provider", "valid_from", name="prices_pkey"),
    CheckConstraint(
        "input >= 0 AND output >= 0 AND cache_read >= 0 AND cache_write >= 0 AND reasoning >= 0",
        name="prices_amounts_check",
    ),
    comment="The price of a million tokens of a model from valid_from on. The operator maintains "
    "this table; it is empty at first. facts_runs.cost is computed from it.",
)

rejected_frames = Table(
    "rejected_frames",
    metadata,
    _column("topic", _ID, "The topic of the record."),
    _column("partition", Integer, "Its partition."),
    _column("offset", BigInteger, "Its offset."),
    _optional("logged_at", _TIME, "When the broker received the record."),
    _column("recorded_at", _TIME, "When this row was written, by the database's clock.", "clock_timestamp()"),
    _optional(
        "retried_at",
        _TIME,
        "When the record was last republished by `frameledger dlq retry`; null if it never was.",
    ),
    _column("code", Text, "The error code."),
    _column("error", Text, "The error message."),
    _optional("context_id", _ID, "The conversation; null if the key names none."),
    _optional("key", LargeBinary, "The key as received."),
    _optional("value", LargeBinary, "The value as received."),
    _column("headers", _JSON, _HEADERS),
    _generation(),
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

outcome_changes = Table(
    "outcome_changes",
    metadata,
    _context_id(),
    _column("version", BigInteger, "The version of the frame."),
    _column(
        "changed_at", _TIME, "When the outcome was changed, by the database's clock.", "clock_timestamp()"
    ),
    _column("old_outcome", Text, "The previous outcome."),
    _optional("old_reason", Text, "The previous reason."),
    _column("new_outcome", Text, "The new outcome."),
    _optional("new_reason", Text, "The new reason."),
    _column("changed_by", Text, "The database user of the session.", "SESSION_USER"),
    _column("why", Text, "Why it was changed, as given by the user."),
    PrimaryKeyConstraint("context_id", "version", "changed_at", name="outcome_changes_pkey"),
    comment="Every change of a frame's outcome after it was stored; written by settle_outcome().",
)

erasures = Table(
    "erasures",
    metadata,
    _context_id("The erased conversation."),
    _column("erased_at", _TIME, "The start of the transaction that erased it.", "transaction_timestamp()"),
    _column(
        "version",
        BigInteger,
        "The version of the frame that erased the conversation, or that of its last frame if "
        "erase() deleted it without one. The next conversation with this id continues from this "
        "version.",
    ),
    _column("frame_count", BigInteger, "Number of deleted frames."),
    _column(
        "erased_by",
        Text,
        "The database user that deleted the frames: a projector's, or the caller of erase().",
        "SESSION_USER",
    ),
    _column("why", Text, "The reason that was given."),
    _column("chain", LargeBinary, "The value of the hash chain at version."),
    _optional(
        "frame_id",
        UUID,
        "The frame on the log that erased the conversation; null if erase() deleted it without "
        "one. Such a deletion does not outlast a rebuild from the log.",
    ),
    _optional("requested_by", Text, "Who requested the erasure, as that frame says."),
    _optional("logged_at", _TIME, "When the broker received that frame."),
    _optional("partition", Integer, "The partition of that frame."),
    _optional("generation", Integer, "The generation of the topic that the frame's offset belongs to."),
    _optional("offset", BigInteger, "The offset of that frame."),
    _optional("source", Text, "The publisher of that frame, by the name that it gives itself."),
    _optional("trace_id", Text, "The trace id of that frame."),
    _optional("payload", _JSON, "The value of that frame, byte for byte."),
    _optional(
        "places",
        _JSON,
        "Where the records of the deleted frames are on the log, which keeps them for its "
        "retention time: a list of {partition, generation, first_offset, last_offset, records}.",
    ),
    _column(
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
    _context_id(),
    _column("version", BigInteger, "The version up to which its rows were verified."),
    _column("verified_at", _TIME, "When it was verified, by the database's clock.", "clock_timestamp()"),
    _column("fold_version", Integer, "The version of the fold that was used."),
    _column("verified_by", Text, "The database user of the session.", "SESSION_USER"),
    _column("chain", LargeBinary, "The value of the hash chain at that version."),
    _column("head", _JSON, "The counters at that version."),
    _column("state", _JSON, "The state at that version, from which the next verification continues."),
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
