"""Runs of models with their prices, and function calls."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Double,
    Index,
    Integer,
    Numeric,
    PrimaryKeyConstraint,
    Table,
    Text,
    text,
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

runs = Table(
    "runs",
    metadata,
    context_id(),
    column("run_id", ID, "The run: a uuid5 of the context and of requested_version."),
    column("requested_version", BigInteger, "The version of the frame that first requested the run."),
    optional(
        "opened_version", BigInteger, "The version of the context that the run reads; null before it opens."
    ),
    optional("closed_version", BigInteger, "The version of the frame that closed the run."),
    column("requested_at", TIME, "When the frame that requested the run was logged."),
    optional("opened_at", TIME, "When the run was opened."),
    optional("started_at", TIME, "When the start of the latest attempt was logged."),
    optional("first_text_at", TIME, "When the first text of the latest attempt was logged."),
    optional("closed_at", TIME, "When the run was closed."),
    optional("input_tokens", BigInteger, "Input tokens, as far as they are known; see usage_partial."),
    optional("output_tokens", BigInteger, "Output tokens, as far as they are known; see usage_partial."),
    optional(
        "cache_read_tokens",
        BigInteger,
        "Tokens read from the provider's cache, as far as they are known; see usage_partial.",
    ),
    optional(
        "cache_write_tokens",
        BigInteger,
        "Tokens written to the provider's cache, as far as they are known; see usage_partial.",
    ),
    optional(
        "reasoning_tokens", BigInteger, "Reasoning tokens, as far as they are known; see usage_partial."
    ),
    column(
        "attempt",
        Integer,
        "The number of the latest attempt; 0 before the first one, and for an answer that names no run.",
        "0",
    ),
    column("trigger", Text, "The type of the frame that first requested the run."),
    column(
        "status",
        Text,
        "requested, open, dropped (before it opened), noted (in a recording), or how it was "
        "closed: ended, failed, interrupted, replaced, context_ended.",
    ),
    optional("worker", Text, "The worker that answers, by the name that it gives itself."),
    optional("provider", Text, "The provider of the model."),
    optional("model", Text, "The model."),
    optional("finish_reason", Text, "stop, tool_calls, length, content_filter, or error."),
    optional("error", Text, "The message of the latest error."),
    optional("error_code", Text, "The code of the latest error."),
    optional("request_sha256", Text, "The SHA-256 of the request as the provider received it."),
    optional(
        "heard_version",
        BigInteger,
        "The version at which the user stopped speaking; null if the run does not answer a user's turn.",
    ),
    optional("started_version", BigInteger, "The version of the start of the latest attempt."),
    optional(
        "said",
        Text,
        "The generated text of an interrupted message, if the context keeps only the part that was heard.",
    ),
    column(
        "usage_partial",
        Boolean,
        "True if the token counts are only what was reported before an end that the run does not have, or that was an "
        "error. False also if nothing was reported: then they are null.",
        "false",
    ),
    optional("claim", Text, "The claim that the latest start names; see claims.token."),
    optional(
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
    context_id(),
    column(
        "requested_version",
        BigInteger,
        "The version of the frame that announced the call, or that started it if none announced it.",
    ),
    optional("started_version", BigInteger, "The version of the first start."),
    optional("settled_version", BigInteger, "The version of the frame that settled the call."),
    column("requested_at", TIME, "When the frame that announced the call was logged."),
    optional(
        "dispatched_at",
        TIME,
        "When the call became ready to start: it was committed, and no earlier call of its queue "
        "was running.",
    ),
    optional("started_at", TIME, "When the first start was logged."),
    optional("settled_at", TIME, "When the call was settled."),
    column("ordinal", Integer, "The index of the call among those of the same frame, from 0."),
    column(
        "attempt",
        Integer,
        "The number of the latest attempt; 0 before the call starts, and for a start that names none.",
        "0",
    ),
    column("progress_count", Integer, "Number of intermediate results.", "0"),
    optional("synchronous", Boolean, "True if an interruption cancels the call; null before it starts."),
    column(
        "tool_call_id", ID, "The id that the provider gave. It may be used again after this call is settled."
    ),
    column("function_name", Text, "The name of the function."),
    column(
        "status",
        Text,
        "announced, dispatched, running, waiting (for a person, or for the client that answers "
        "it), or how it ended: done, failed, ambiguous (it may or may not have happened), "
        "cancelled, forgotten.",
    ),
    optional("run_id", ID, "The run that made the call; null if none did."),
    optional("group_id", ID, "The id shared by calls that were announced together."),
    optional("worker", Text, "The worker that runs the call, by the name that it gives itself."),
    column("arguments", JSON_TEXT, "The arguments; a JSON string if they were sent as text."),
    optional("result", JSON_TEXT, "The final result; null if there is none."),
    optional(
        "dispatched_version",
        BigInteger,
        "The version at which the call became ready to start; its effect names this version.",
    ),
    optional(
        "interrupted_version",
        BigInteger,
        "The version of the interruption that cancels the call. Its worker still has to report the outcome.",
    ),
    optional(
        "resolved_version",
        BigInteger,
        "The version of the frame by which a person resolved an ambiguous call.",
    ),
    optional(
        "timeout_secs", Double, "Seconds that the call may take after it was dispatched, as its start says."
    ),
    optional(
        "safe_to_retry", Boolean, "True if the function may run twice for one call; null before it starts."
    ),
    optional(
        "waiting_for",
        Text,
        "What the call waits for: the person or system that its worker names, or `the client`.",
    ),
    optional(
        "waiting_deadline",
        TIME,
        "When the wait ends; null if it has no end, or none that is a valid time.",
    ),
    column("builtin", Boolean, "True for a built-in function, such as the one that cancels a call.", "false"),
    optional("claim", Text, "The claim that the latest start names; see claims.token."),
    optional(
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
# Those of one conversation, for an interruption and for a tool that cancels.
Index(
    "tool_calls_in_progress",
    tool_calls.c.context_id,
    postgresql_where=text("status IN ('running', 'waiting')"),
)
Index(
    "tool_calls_ambiguous",
    *(tool_calls.c.context_id, tool_calls.c.requested_version, tool_calls.c.ordinal),
    postgresql_where=text("status = 'ambiguous' AND resolved_version IS NULL"),
)

prices = Table(
    "prices",
    metadata,
    column("model", ID, "The model, named as in runs.model."),
    column(
        "provider",
        ID,
        "The provider, named as in runs.provider; empty for any provider. A price for a named "
        "provider takes precedence.",
        "''",
    ),
    column(
        "valid_from",
        TIME,
        "When the price takes effect. It holds until the next one of the same model and provider.",
        "'-infinity'",
    ),
    column("input", Numeric, "Price of a million input tokens."),
    column("output", Numeric, "Price of a million output tokens."),
    optional(
        "cache_read",
        Numeric,
        "Price of a million tokens read from the provider's cache; null: that of input.",
    ),
    optional(
        "cache_write",
        Numeric,
        "Price of a million tokens written to the provider's cache; null: that of input.",
    ),
    optional("reasoning", Numeric, "Price of a million reasoning tokens; null: that of output."),
    column("currency", Text, "The currency, such as EUR."),
    PrimaryKeyConstraint("model", "provider", "valid_from", name="prices_pkey"),
    CheckConstraint(
        "input >= 0 AND output >= 0 AND cache_read >= 0 AND cache_write >= 0 AND reasoning >= 0",
        name="prices_amounts_check",
    ),
    comment="The price of a million tokens of a model from valid_from on. The operator maintains "
    "this table; it is empty at first. facts_runs.cost is computed from it.",
)
