"""The tables, described once: what each holds, its keys, and what a person should know about every column.

The migrations make them, and a test holds the two equal. Everything that belongs to a conversation is keyed by its
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

FOR_EVER = 2**63 - 1
"""`valid_to` of a message that is still valid: `valid_from <= v AND v < valid_to` needs no case of its own."""

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


_HEADERS = 'The headers, in order: [[name, value], ...]; a value is text, null, or {"base64": ...} if it is no UTF-8.'

frames = Table(
    "frames",
    metadata,
    _context_id("The conversation: the key of the record."),
    _column("version", BigInteger, "Sequence number of the frame within its context, from 1, without gaps."),
    _column(
        "frame_id", UUID, "The frame's id; a uuid5 of an id that is no uuid, or of its place on the log."
    ),
    _column(
        "logged_at",
        _TIME,
        "The broker's time of the record, but never before that of the frame that precedes it.",
    ),
    _column("recorded_at", _TIME, "When this row was written, by the database's clock.", "clock_timestamp()"),
    _optional("produced_at", _TIME, "When its publisher made it, if that was written as a time."),
    _column("offset", BigInteger, "The offset of the record in its partition."),
    _column(
        "partition",
        Integer,
        "The partition of the record that was folded; -1 if it was imported, and lies on no log of this database.",
    ),
    _column("type", Text, "The name of the frame."),
    _column("outcome", Text, "applied (also if only recorded), ignored, unknown, or parked."),
    _optional("reason", Text, "Why it was ignored, from a closed list of words."),
    _optional("run_id", _ID, "The run that it names."),
    _optional("tool_call_id", _ID, "The call that it names."),
    _optional("source", Text, "The publisher, as it names itself (CloudEvents source)."),
    _optional("trace_id", Text, "The trace it belongs to: 32 hexadecimal digits (W3C)."),
    _column(
        "chain", LargeBinary, "The link of the hash chain up to and including this frame; see verify_chain()."
    ),
    _column("payload", _JSON, "The value of the record, byte for byte."),
    _generation(),
    _optional(
        "causation_id",
        UUID,
        "The frame_id of the frame of this conversation that caused it; null for what a client says by itself.",
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
    comment="The log, queryable and complete: an archive from which everything else can be folded again.",
)
Index(
    "frames_interruptions",
    frames.c.context_id,
    frames.c.version,
    postgresql_where=text("type IN ('InterruptionFrame', 'StartInterruptionFrame')"),
)
Index("frames_unknown", frames.c.logged_at, postgresql_where=text("outcome = 'unknown'"))
# Frames are added about in the order of their offsets, so a small index by blocks finds the tail of a partition.
Index(
    "frames_by_offset",
    frames.c.offset,
    postgresql_using="brin",
    postgresql_with={"autosummarize": "on"},
)
# So does one for their times.
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
    _column("era", Integer, "The history that it belongs to; see eras."),
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
    _optional("text", Text, "What a person reads of it: its text, or the calls that it makes."),
    _optional("run_id", _ID, "The run that said it, if one did."),
    _column("message", _JSON, "The message as a model gets it."),
    _optional(
        "said_at",
        _TIME,
        "When the frame that wrote it was logged; null in rows that an older release wrote, until fill_said_at() was "
        "called.",
    ),
    PrimaryKeyConstraint("context_id", "era", "position", "valid_from", name="messages_pkey"),
    CheckConstraint("valid_from >= 1 AND valid_from < valid_to", name="messages_validity_check"),
    comment="Every message, one row for each time that it read differently. "
    "The context at version v is its era's rows with valid_from <= v < valid_to.",
)
# What a run said: by the versions of its start and its end.
Index(
    "messages_by_version",
    messages.c.context_id,
    messages.c.valid_from,
    postgresql_where=text("role = 'assistant'"),
)
# Messages, too; a newer one may get the place of one that was changed, so that a range of blocks has several intervals.
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
    _column("valid_from", BigInteger, "The version that replaced the whole history."),
    _column("era", Integer, "The number of the history that began; the first one is 1 and has no row here."),
    PrimaryKeyConstraint("context_id", "valid_from", name="eras_pkey"),
    CheckConstraint("era >= 2", name="eras_era_check"),
    comment="When the whole history of a context was replaced. An era lasts until the next one begins.",
)

context_settings = Table(
    "context_settings",
    metadata,
    _context_id(),
    _column(
        "name",
        _ID,
        "tools, tool_choice, settings, prompt_caching, skip_tts, recording, ended, limits, or mirror (who keeps "
        "the history elsewhere).",
    ),
    _column(
        "valid_from",
        BigInteger,
        "The first version with this value; it holds until the next row of that name.",
    ),
    _column("value", _JSON, "The value."),
    PrimaryKeyConstraint("context_id", "name", "valid_from", name="context_settings_pkey"),
    comment="What a request takes along beside the messages, and the life of the context. "
    "A name without a row has its default: no tools, no choice, no settings, false.",
)

contexts = Table(
    "contexts",
    metadata,
    _context_id("The conversation: the key of its records on the log."),
    _column("version", BigInteger, "The number of its frames that are stored."),
    _column(
        "state_version",
        BigInteger,
        "The version that state is of; the frames after it are folded again when the context is loaded.",
    ),
    _column("run_version", BigInteger, "The version that its newest run read; 0 before the first run.", "0"),
    _optional("parked_version", BigInteger, "Since which version its frames are stored unfolded."),
    _column("started_at", _TIME, "When its first frame was logged."),
    _column("last_at", _TIME, "When its newest frame was logged."),
    _optional("parked_at", _TIME, "When it was parked, by the database's clock."),
    _column(
        "fold_version", Integer, "The version of the fold that made the state; an older release refuses it."
    ),
    _column("era", Integer, "The era of its current history.", "1"),
    _column("message_count", Integer, "Number of current messages.", "0"),
    _column("run_count", Integer, "Number of runs that were requested.", "0"),
    _column("call_count", Integer, "Number of calls that were announced or started.", "0"),
    _column("open_call_count", Integer, "Number of calls that are not settled.", "0"),
    _column("interruption_count", Integer, "Number of interruptions.", "0"),
    _column("unknown_count", Integer, "Number of frames of unknown type.", "0"),
    _column(
        "duplicate_count", Integer, "Number of records that repeated a stored frame and were left out.", "0"
    ),
    _column(
        "recording",
        Boolean,
        "It mirrors a conversation that happens elsewhere; nothing is run for it.",
        "false",
    ),
    _column("ended", Boolean, "It was ended and not reopened since.", "false"),
    _optional("open_run_id", _ID, "The run that is open."),
    _optional("parked_error", Text, "What the fold or the database said when it was parked."),
    _column("chain", LargeBinary, "The head of its hash chain, at version."),
    _column("state", _JSON, "The open part of the conversation (turn, runs, calls), as the fold stores it."),
    _optional(
        "turn_opened_version", BigInteger, "The version that opened the user's turn; null if none is open."
    ),
    _optional(
        "turn_waits",
        Boolean,
        "That turn was stopped and waits for its final words; null if no turn is open.",
    ),
    _optional(
        "bot_since_version", BigInteger, "The version since which the bot speaks; null if it does not."
    ),
    _column(
        "rebuilt",
        Integer,
        "How often its rows were replaced by a new fold of its frames. A projector that loaded it before is refused.",
        "0",
    ),
    _optional(
        "folded_by",
        _JSON,
        "Fold versions by range: [[1, 2], [58, 3]] is fold 2 from version 1 and fold 3 from version 58. Null: all "
        "of it by fold_version.",
    ),
    _optional(
        "origin",
        _JSON,
        "The moment that it was forked from: {context_id, version, chain}, the chain in hexadecimal; null if it was "
        "not.",
    ),
    _column(
        "experiment",
        Boolean,
        "It is an experiment, such as a rerun; lists of conversations leave it out.",
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
    # A head is written with every batch that touches it. Room on its page, and no index on what changes with every
    # frame, keep the new row there and every index as it is.
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
    _column("requested_version", BigInteger, "The version of the frame that asked for it first."),
    _optional(
        "opened_version", BigInteger, "The version of the context that it reads; null before it opens."
    ),
    _optional("closed_version", BigInteger, "The version of the frame that closed it."),
    _column("requested_at", _TIME, "When the frame that asked was logged."),
    _optional("opened_at", _TIME, "When it was opened."),
    _optional("started_at", _TIME, "When the start of its latest attempt was logged."),
    _optional("first_text_at", _TIME, "When the first text of its latest attempt was logged."),
    _optional("closed_at", _TIME, "When it was closed."),
    _optional("input_tokens", BigInteger, "As its end reports it, or what is known; see usage_partial."),
    _optional("output_tokens", BigInteger, "As its end reports it, or what is known; see usage_partial."),
    _optional("cache_read_tokens", BigInteger, "As its end reports it, or what is known; see usage_partial."),
    _optional(
        "cache_write_tokens", BigInteger, "As its end reports it, or what is known; see usage_partial."
    ),
    _optional("reasoning_tokens", BigInteger, "As its end reports it, or what is known; see usage_partial."),
    _column(
        "attempt",
        Integer,
        "Its latest attempt; 0 before the first, and for an answer that names no run.",
        "0",
    ),
    _column("trigger", Text, "The type of the frame that asked for it first."),
    _column(
        "status",
        Text,
        "requested, open, dropped before it opened, noted (a recording), or how it was closed: "
        "ended, failed, interrupted, replaced, context_ended.",
    ),
    _optional("worker", Text, "The worker that answers, as it names itself."),
    _optional("provider", Text, "Whose model."),
    _optional("model", Text, "Which model."),
    _optional("finish_reason", Text, "stop, tool_calls, length, content_filter, or error."),
    _optional("error", Text, "The message of the latest error of it."),
    _optional("error_code", Text, "The code of that error."),
    _optional("request_sha256", Text, "The hash of the request as the provider got it."),
    _optional(
        "heard_version",
        BigInteger,
        "The version at which the user stopped speaking, if it answers a turn of the user.",
    ),
    _optional("started_version", BigInteger, "The version of the start of its latest attempt."),
    _optional(
        "said",
        Text,
        "What it was saying when it was interrupted, where the context keeps only what was heard of that.",
    ),
    _column(
        "usage_partial",
        Boolean,
        "Its tokens are what was known before an end that it never had, or that was an error.",
        "false",
    ),
    _optional("claim", Text, "The claim that its latest start names: `token` in `claims`."),
    _optional(
        "is_copy",
        Boolean,
        "Its answer was not given here, but published again by `frameledger replay`; else null. Of rows that an older "
        "release wrote it is not known.",
    ),
    PrimaryKeyConstraint("context_id", "run_id", name="runs_pkey"),
    CheckConstraint(
        "status IN ('requested', 'open', 'dropped', 'noted', 'ended', 'failed', 'interrupted', 'replaced', "
        "'context_ended')",
        name="runs_status_check",
    ),
    postgresql_with={"fillfactor": 90},
    comment="Every inference, folded from frames alone.",
)
# The oldest first, so that whoever looks for what is overdue reads nothing else.
Index("runs_open", runs.c.opened_at, postgresql_where=text("status = 'open'"))
# The run that a frame asked for, and those since a version: a conversation's frames have their times in order.
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
        "requested_version", BigInteger, "The version of the frame that announced it, or else started it."
    ),
    _optional("started_version", BigInteger, "The version of its first start."),
    _optional("settled_version", BigInteger, "The version of the frame that settled it."),
    _column("requested_at", _TIME, "When the frame that announced it was logged."),
    _optional("dispatched_at", _TIME, "When it was committed and its turn."),
    _optional("started_at", _TIME, "When its first start was logged."),
    _optional("settled_at", _TIME, "When it was settled."),
    _column("ordinal", Integer, "Its place among the calls of that frame, from 0."),
    _column(
        "attempt", Integer, "Its latest attempt; 0 before it starts, and for a start that names none.", "0"
    ),
    _column("progress_count", Integer, "Number of intermediate results.", "0"),
    _optional("synchronous", Boolean, "An interruption cancels it; null before it starts."),
    _column(
        "tool_call_id", _ID, "The id that its provider gave; it may come again once this call is settled."
    ),
    _column("function_name", Text, "The function."),
    _column(
        "status",
        Text,
        "announced, dispatched, running, waiting (for a person), or how it ended: done, failed, ambiguous (it may or "
        "may not have happened), cancelled, forgotten.",
    ),
    _optional("run_id", _ID, "The run that made it."),
    _optional("group_id", _ID, "What it was announced together with."),
    _optional("worker", Text, "The worker that runs it, as it names itself."),
    _column("arguments", _JSON, "The arguments; a string if they came as text."),
    _optional("result", _JSON, "Its final result; null for none."),
    _optional(
        "dispatched_version",
        BigInteger,
        "The version at which it was committed and its turn; its effect names it.",
    ),
    _optional(
        "interrupted_version",
        BigInteger,
        "The version of the interruption that cancels it; its worker still has to say what became of it.",
    ),
    _optional(
        "resolved_version",
        BigInteger,
        "The version at which a person said what became of an ambiguous call.",
    ),
    _optional(
        "timeout_secs", Double, "The seconds that it may take since it was dispatched, as its start says."
    ),
    _optional("safe_to_retry", Boolean, "Running it twice does no harm; null before it starts."),
    _optional("waiting_for", Text, "Whom or what it waits for, as its worker says."),
    _optional(
        "waiting_deadline",
        _TIME,
        "Until when it waits; null for no end, or for one that cannot be read as a time.",
    ),
    _column("builtin", Boolean, "It is one of our own tools, such as the one that cancels a call.", "false"),
    _optional("claim", Text, "The claim that its latest start names: `token` in `claims`."),
    _optional(
        "idempotency_key",
        UUID(),
        "The key that every attempt of it gives to its handler, to send along to whoever must do it once; null in "
        "rows that an older release wrote.",
    ),
    PrimaryKeyConstraint("context_id", "requested_version", "ordinal", name="tool_calls_pkey"),
    CheckConstraint(
        "status IN ('announced', 'dispatched', 'running', 'waiting', 'done', 'failed', 'ambiguous', 'cancelled', "
        "'forgotten')",
        name="tool_calls_status_check",
    ),
    postgresql_with={"fillfactor": 90},
    comment="Every call of a function, folded from frames alone.",
)
# The oldest first, as above.
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
    _column("worker_id", _ID, "One session of one process: after a restart it is another worker."),
    _column("started_at", _TIME, "When it registered, by the database's clock.", "clock_timestamp()"),
    _column(
        "connected_at",
        _TIME,
        "Since when it has been connected; it judges other workers only after a whole lease.",
        "clock_timestamp()",
    ),
    _column(
        "heartbeat_at", _TIME, "Time of its last heartbeat, by the database's clock.", "clock_timestamp()"
    ),
    _optional(
        "stopped_at",
        _TIME,
        "When it left; of one that died long ago, when it was last heard of. Null while it may be alive.",
    ),
    _column("lease_secs", Double, "Seconds after its last heartbeat at which it counts as dead."),
    _column("slots", Integer, "Number of jobs that it runs at once."),
    _column("pid", Integer, "Its process on that host."),
    _column(
        "serves_all", Boolean, "It serves whatever no live worker lists: any function, or any model.", "false"
    ),
    _column("service", _ID, "The service that it belongs to: what shares its work has the same name."),
    _column("kind", Text, "inference, functions, or timekeeper."),
    _column("host", Text, "Where it runs."),
    _column("serves", ARRAY(Text), "The functions or models that it serves, by name.", "'{}'"),
    _column(
        "offers",
        _JSON,
        "The functions with their schemas and options, or how an inference service makes its requests.",
    ),
    PrimaryKeyConstraint("worker_id", name="workers_pkey"),
    CheckConstraint("kind IN ('inference', 'functions', 'timekeeper')", name="workers_kind_check"),
    CheckConstraint("lease_secs > 0", name="workers_lease_secs_check"),
    # Few rows, each written twice a second.
    postgresql_with={
        "fillfactor": 20,
        "autovacuum_vacuum_scale_factor": 0,
        "autovacuum_vacuum_threshold": 500,
    },
    comment="Every session of every worker. It is alive while stopped_at is null and heartbeat_at younger than "
    "its lease.",
)
# No index on heartbeat_at: it changes all the time, and this one leaves few rows to look at.
Index("workers_present", workers.c.worker_id, postgresql_where=text("stopped_at IS NULL"))

claims = Table(
    "claims",
    metadata,
    _column("effect_id", _ID, "The effect. One worker has it: a second one's claim is refused."),
    _column("version", BigInteger, "The version of the context that the effect names."),
    _optional("requested_version", BigInteger, "Of a call: the version of the frame that announced it."),
    _column("claimed_at", _TIME, "When it was first claimed, by the database's clock.", "clock_timestamp()"),
    _column("taken_at", _TIME, "When its latest attempt was claimed.", "clock_timestamp()"),
    _optional(
        "released_at", _TIME, "When its worker gave it back for another one to take; null once it is taken."
    ),
    _optional("finished_at", _TIME, "When nothing was left to do."),
    _optional("ordinal", Integer, "Of a call: its place among the calls of that frame."),
    _column(
        "attempt",
        Integer,
        "Its latest attempt, from 1 and above every attempt that is folded: the only source of attempt "
        "numbers. Giving a claim back before anything was published takes one off, so it may be 0.",
        "1",
    ),
    _column("kind", Text, "run or call."),
    _context_id(),
    _optional("run_id", _ID, "Of a run: its id."),
    _optional("tool_call_id", _ID, "Of a call: its id."),
    _column("service", _ID, "The service of the worker that has it."),
    _column("worker_id", _ID, "The worker that has it."),
    _optional("finish", Text, "done, over (what it was for had ended), or given_up."),
    _column(
        "token",
        _ID,
        "Random, drawn for each attempt and named by the worker's frames (`claim`). It tells two workers "
        "apart that got the same attempt number, from a database that lost its latest commits.",
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
    comment="Which worker runs which effect: one row for each effect that was claimed. Kept for thirty days.",
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
    _column("topic", _ID, "The topic of the record that caused it."),
    _column("partition", Integer, "The partition of that record."),
    _column("offset", BigInteger, "The offset of that record."),
    _column("ordinal", Integer, "Its index among the rows that the record caused, from 0."),
    _column("recorded_at", _TIME, "When this row was written, by the database's clock.", "clock_timestamp()"),
    _column("kind", Text, "effect, dead_letter, or forward."),
    _column("to_topic", Text, "The topic that it is published to."),
    _optional("context_id", _ID, "The conversation; null for a dead letter whose key names none."),
    _optional("key", LargeBinary, "The key that it is published with."),
    _optional("value", LargeBinary, "The value that it is published with."),
    _column("headers", _JSON, _HEADERS),
    _generation(),
    PrimaryKeyConstraint("topic", "partition", "offset", "ordinal", "generation", name="outbox_pkey"),
    CheckConstraint("kind IN ('effect', 'dead_letter', 'forward')", name="outbox_kind_check"),
    # Every row is deleted a moment after it was written.
    postgresql_with={"autovacuum_vacuum_scale_factor": 0, "autovacuum_vacuum_threshold": 5000},
    comment="What is still to be published: effects, dead letters, forwarded records.",
)

topics = Table(
    "topics",
    metadata,
    _column("topic", _ID, "The topic's name."),
    _column(
        "generation",
        Integer,
        "Offsets are comparable within one generation; recover begins the next one.",
        "1",
    ),
    _column("partitions", Integer, "Number of partitions; services stop if the broker has another."),
    _optional(
        "topic_id", UUID, "The broker's own id of it; another one means that it was deleted and made again."
    ),
    _column("recorded_at", _TIME, "When it was first seen, by the database's clock.", "clock_timestamp()"),
    PrimaryKeyConstraint("topic", "generation", name="topics_pkey"),
    comment="The topics that this database was filled from.",
)

projections = Table(
    "projections",
    metadata,
    _column("projection", _ID, "The name of the projection."),
    _column("topic", _ID, "The topic that it reads."),
    _column("generation", Integer, "The topic's generation.", "1"),
    _column("partition", Integer, "The partition."),
    _column(
        "epoch",
        BigInteger,
        "Raised whenever the partition changes hands, which fences the owner before.",
        "0",
    ),
    _column("next_offset", BigInteger, "The offset to be read next.", "0"),
    _optional(
        "last_offset", BigInteger, "The offset of the last record that was read; null before the first."
    ),
    _optional("last_logged_at", _TIME, "When that record was logged."),
    _optional("end_offset", BigInteger, "The end of the partition when the owner last looked."),
    _optional("owner_started_at", _TIME, "When the owner's session began; a later session may have its pid."),
    _column(
        "updated_at", _TIME, "When this row was last written, by the database's clock.", "clock_timestamp()"
    ),
    _optional("owner_pid", Integer, "The database's process that serves the owner."),
    _optional("owner", Text, "The process that reads it now."),
    _optional("last_hash", LargeBinary, "sha256 of that record's key, value and time."),
    _optional(
        "sealed_at",
        _TIME,
        "When recover began the next generation; null in the one that is read. Nobody owns it now.",
    ),
    _optional(
        "effects_held_until",
        BigInteger,
        "End of the partition when it was taken over. Until it is reached no effects are published, and no "
        "work is claimed; -1 until the new owner has read the end. Null once it has caught up.",
    ),
    _optional(
        "server_started_at",
        _TIME,
        "Since when PostgreSQL had run without a restart or crash, when the owner took the partition over.",
    ),
    _optional(
        "attempt",
        _ID,
        "What the owner began at next_offset: a batch, or the next record alone. Null before that, and after "
        "an orderly end.",
    ),
    _column("crashes", Integer, "Number of owners that crashed over what they began at next_offset.", "0"),
    _column("crashes_alone", Integer, "Number of those that had begun the next record alone.", "0"),
    CheckConstraint("attempt IN ('batch', 'record')", name="projections_attempt_check"),
    PrimaryKeyConstraint("projection", "topic", "generation", "partition", name="projections_pkey"),
    # Few rows, each written with every batch.
    postgresql_with={
        "fillfactor": 20,
        "autovacuum_vacuum_scale_factor": 0,
        "autovacuum_vacuum_threshold": 500,
    },
    comment="How far each partition was read, and its owner; written in the transaction of each batch.",
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
    _column("generation", Integer, "The generation that was begun."),
    _column("partition", Integer, "The partition."),
    _column("recovered_at", _TIME, "When that was, by the database's clock.", "clock_timestamp()"),
    _column(
        "happened",
        Text,
        "What was wrong with the partition: fine (nothing), lost_tail, expired (before it was stored), "
        "another_log.",
    ),
    _column("stored_offset", BigInteger, "next_offset of the generation before."),
    _column("first_offset", BigInteger, "The first offset that the partition had."),
    _column("end_offset", BigInteger, "The end of the partition."),
    _column("begins_at", BigInteger, "The first offset of the new generation."),
    _column("missing", BigInteger, "Number of offsets that expired before they were stored."),
    _optional("put_back_at", _TIME, "When all was on the log again that it had lost; null until then."),
    _optional("put_back", BigInteger, "How many frames were put back."),
    _optional(
        "put_back_through", BigInteger, "The highest offset that one of them has; null if none was put back."
    ),
    _column("recovered_by", Text, "The database user of the session.", "SESSION_USER"),
    PrimaryKeyConstraint("topic", "generation", "partition", name="recoveries_pkey"),
    CheckConstraint(
        "happened IN ('fine', 'lost_tail', 'expired', 'another_log')", name="recoveries_happened_check"
    ),
    comment="The receipts of recover: what was wrong with each partition, and where its new generation begins.",
)

rebuilds = Table(
    "rebuilds",
    metadata,
    Column("number", BigInteger, Identity(always=True), nullable=False, comment="Its number."),
    _column("selection", _ID, "Which conversations: all, or those with frames of unknown type."),
    _column(
        "source",
        _ID,
        "Where frames came from: frames, the table; or kafka, the log, from which missing rows were restored.",
    ),
    _column("applied", Boolean, "Whether rows were replaced, or only compared."),
    _column("fold_version", Integer, "The fold."),
    _column("started_at", _TIME, "When it began, by the database's clock.", "clock_timestamp()"),
    _column("started_by", Text, "The database user of the session that began it.", "SESSION_USER"),
    _column("updated_at", _TIME, "When this row was written last.", "clock_timestamp()"),
    _optional("ended_at", _TIME, "When it was through; null until then."),
    _optional(
        "reached",
        _ID,
        "The conversation up to which all are done, in the order of their ids; null before the first.",
    ),
    _column("read_count", BigInteger, "Number of conversations that were folded again.", "0"),
    _column("differ_count", BigInteger, "Number of those whose tables differed.", "0"),
    _column(
        "failed_count",
        BigInteger,
        "Number of those that cannot be folded again, or belong to a newer release.",
        "0",
    ),
    _column("rebuilt_count", BigInteger, "Number of those whose rows were replaced.", "0"),
    PrimaryKeyConstraint("number", name="rebuilds_pkey"),
    CheckConstraint("selection IN ('all', 'unknown')", name="rebuilds_selection_check"),
    CheckConstraint("source IN ('frames', 'kafka')", name="rebuilds_source_check"),
    comment="Every `frameledger rebuild` of many conversations, and how far it is: one that was interrupted goes on "
    "from there.",
)

prices = Table(
    "prices",
    metadata,
    _column("model", _ID, "The model, named as in runs.model."),
    _column(
        "provider",
        _ID,
        "The provider, named as in runs.provider; empty for any. One that is named counts before the one for any.",
        "''",
    ),
    _column("valid_from", _TIME, "Since when; until the next one of that model and provider.", "'-infinity'"),
    _column("input", Numeric, "Of tokens read."),
    _column("output", Numeric, "Of tokens written."),
    _optional("cache_read", Numeric, "Of tokens read from the provider's cache; null: as input."),
    _optional("cache_write", Numeric, "Of tokens written to the provider's cache; null: as input."),
    _optional("reasoning", Numeric, "Of tokens of thoughts; null: as output."),
    _column("currency", Text, "The currency, such as EUR."),
    PrimaryKeyConstraint("model", "provider", "valid_from", name="prices_pkey"),
    CheckConstraint(
        "input >= 0 AND output >= 0 AND cache_read >= 0 AND cache_write >= 0 AND reasoning >= 0",
        name="prices_amounts_check",
    ),
    comment="What a million tokens of a model cost since when, as you say: nothing is in it before that. "
    "facts_runs.cost follows from it.",
)

rejected_frames = Table(
    "rejected_frames",
    metadata,
    _column("topic", _ID, "The topic of the record."),
    _column("partition", Integer, "Its partition."),
    _column("offset", BigInteger, "Its offset."),
    _optional("logged_at", _TIME, "When the broker took it."),
    _column("recorded_at", _TIME, "When this row was written, by the database's clock.", "clock_timestamp()"),
    _optional("retried_at", _TIME, "When a person published it again."),
    _column("code", Text, "What is wrong, as a word."),
    _column("error", Text, "What is wrong, in a sentence."),
    _optional("context_id", _ID, "The conversation, if the key names one."),
    _optional("key", LargeBinary, "The key as received."),
    _optional("value", LargeBinary, "The value as received."),
    _column("headers", _JSON, _HEADERS),
    _generation(),
    PrimaryKeyConstraint("topic", "partition", "offset", "generation", name="rejected_frames_pkey"),
    comment="Dead letters: records that are no frame, or that the database refused, kept as received. They change"
    " nothing.",
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
    _column("changed_at", _TIME, "When, by the database's clock.", "clock_timestamp()"),
    _column("old_outcome", Text, "The outcome before."),
    _optional("old_reason", Text, "And why."),
    _column("new_outcome", Text, "The outcome since."),
    _optional("new_reason", Text, "And why."),
    _column("changed_by", Text, "The database user of the session.", "SESSION_USER"),
    _column("why", Text, "The reason that was given."),
    PrimaryKeyConstraint("context_id", "version", "changed_at", name="outcome_changes_pkey"),
    comment="Every change of a frame's outcome after it was stored; written by settle_outcome().",
)

erasures = Table(
    "erasures",
    metadata,
    _context_id("The conversation that is gone."),
    _column("erased_at", _TIME, "The start of the transaction that erased it.", "transaction_timestamp()"),
    _column(
        "version",
        BigInteger,
        "The version of the frame that erased it, from which the next life of its id goes on; of one that erase() "
        "deleted without a frame, that of its last frame.",
    ),
    _column("frame_count", BigInteger, "How many frames were deleted."),
    _column(
        "erased_by",
        Text,
        "The database user that deleted them: a projector's, or whoever called erase().",
        "SESSION_USER",
    ),
    _column("why", Text, "The reason that was given."),
    _column("chain", LargeBinary, "The head of its hash chain, at version."),
    _optional(
        "frame_id",
        UUID,
        "The frame on the log that erased it; null if erase() did without one, which does not outlast a rebuild.",
    ),
    _optional("requested_by", Text, "Who asked for it, as that frame says."),
    _optional("logged_at", _TIME, "When the broker took that frame."),
    _optional("partition", Integer, "The partition of that frame."),
    _optional("generation", Integer, "The generation of the topic that its offset belongs to."),
    _optional("offset", BigInteger, "Its offset."),
    _optional("source", Text, "Its publisher, as it names itself."),
    _optional("trace_id", Text, "The trace that it belongs to."),
    _optional("payload", _JSON, "The value of that frame, byte for byte."),
    _optional(
        "places",
        _JSON,
        "Where the records of the deleted frames lay on the log, which keeps them for its retention: a list of "
        "{partition, generation, first_offset, last_offset, records}.",
    ),
    _column(
        "late_count",
        BigInteger,
        "Number of frames that came later for a run, a call or a turn of what was erased. They were left out.",
        "0",
    ),
    PrimaryKeyConstraint("context_id", "erased_at", "version", name="erasures_pkey"),
    comment="The receipts: what is left of a conversation that was erased.",
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
    _column("verified_at", _TIME, "When that was, by the database's clock.", "clock_timestamp()"),
    _column("fold_version", Integer, "The version of the fold that its frames were folded by."),
    _column("verified_by", Text, "The database user of the session.", "SESSION_USER"),
    _column("chain", LargeBinary, "The link of its hash chain at that version."),
    _column("head", _JSON, "The counters at that version."),
    _column("state", _JSON, "The state at that version, from which the fold goes on."),
    PrimaryKeyConstraint("context_id", name="verified_pkey"),
    # What is remembered of a conversation goes with it.
    ForeignKeyConstraint(
        ["context_id"], ["contexts.context_id"], name="verified_context_id_fkey", ondelete="CASCADE"
    ),
    CheckConstraint("version >= 1", name="verified_version_check"),
    CheckConstraint("octet_length(chain) = 32", name="verified_chain_check"),
    comment="Up to which version each conversation was verified, without a difference, so that `frameledger verify` "
    "need not read it again. It is no proof: whoever can write the tables can write this one.",
)
