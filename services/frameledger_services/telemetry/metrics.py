"""Every metric that the services have: the one list, of which registry, reference page, dashboards and tests are made.

A name with a prefix of OpenTelemetry's conventions (`gen_ai_`, `http_server_`) means what these say; all others begin
with `frameledger_`. No label names a conversation, a run, a call, a worker or a token: their number has no bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from frameledger.decode_error import REASONS
from frameledger.evolve.changes import CallEnd, RunEnd
from frameledger.frames import FRAME_TYPES

OTHER = "other"
"""Stands for every value that is not on a label's list, or came after `MOST_NAMES` others."""

MOST_NAMES = 50
"""Values of an open label in one process: a conversation can name any model, and a model any function."""

Unit = Literal["", "seconds", "frames", "records", "tokens"]
Of = Literal[
    "projector", "timekeeper", "worker", "inference", "functions", "gateway", "client", "every service"
]


@dataclass(frozen=True, slots=True)
class Label:
    """A label, and the values that it can have: those listed, or as many as `open_to` says."""

    name: str
    values: tuple[str, ...] = ()
    open_to: Literal["", "names", "settings"] = ""
    """`names`: `MOST_NAMES` values, then `other`. `settings`: whatever the operator named, such as topics."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. `high` says what a high value means, for whoever reads it at night."""

    name: str
    of: Of
    meaning: str
    high: str = ""
    labels: tuple[Label, ...] = ()
    unit: Unit = ""


class Counter(Metric):
    """It grows by what happened; its name ends in `_total`."""

    __slots__ = ()


class Gauge(Metric):
    """It is what it is now."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Histogram(Metric):
    """Observations, counted by their size."""

    buckets: tuple[float, ...] = ()


QUICK = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)
"""Seconds of what one database or broker does."""

PATIENT = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
"""Seconds of what waits for models, functions and people."""

_TYPE = Label("type", (*FRAME_TYPES, OTHER))
_OUTCOMES = ("applied", "ignored", "unknown", "parked")
_CODES = (*REASONS, "refused", "id_reused", "context_erased")
_KINDS = ("effect", "dead_letter", "forward")
_TOPIC = Label("topic", open_to="settings")
_PARTITION = Label("partition", open_to="settings")
_SERVICE = Label("service", open_to="settings")
_WORK = Label("kind", ("run", "call"))
_FUNCTION = Label("gen_ai_tool_name", open_to="names")
_ERROR = Label("error_type", open_to="names")
_OF_A_MODEL = (
    Label("gen_ai_provider_name", open_to="names"),
    Label("gen_ai_request_model", open_to="names"),
    Label("gen_ai_response_model", open_to="names"),
)

STAGES = ("decode", "load", "fold", "write", "commit", "announce")
RULES = (
    "run_unclaimed",
    "run_silent",
    "call_overdue",
    "call_abandoned",
    "call_lost",
    "waiting_overdue",
    "call_left",
    "user_stop",
    "final_words",
    "bot_stop",
    "call_taken_over",
    "call_start",
    "call_not_available",
    "call_not_started",
)

BUILD_INFO = Gauge(
    "frameledger_build_info",
    "every service",
    "Always 1; its labels say which release runs.",
    "",
    (Label("version", open_to="settings"), Label("fold_version", open_to="settings")),
)

READY = Gauge(
    "frameledger_ready",
    "every service",
    "1 if the check succeeds, as `/readyz` says it: `database` and `log` answer, the `loop` runs, and it is not "
    "`draining`.",
    "Good. 0: what is named is away.",
    (Label("check", ("loop", "database", "log", "draining")),),
)

SPANS = Counter(
    "frameledger_spans_total",
    "every service",
    "Spans that were recorded and left the process, or did not: `refused` by the collector or because it is away, "
    "`dropped` since too many waited for it. 0 without an endpoint.",
    "Of what is not `sent`: the collector is away, or too slow for so many; traces have holes.",
    (Label("outcome", ("sent", "refused", "dropped")),),
)

# The projector
PROJECTOR_FRAMES = Counter(
    "frameledger_projector_frames_total",
    "projector",
    "Frames that were stored, by what became of each.",
    "Traffic. Many `parked`: conversations that wait for `frameledger unpark`.",
    (_TYPE, Label("outcome", _OUTCOMES)),
)
PROJECTOR_DUPLICATES = Counter(
    "frameledger_projector_duplicates_total",
    "projector",
    "Frames that came again, and changed nothing.",
    "A publisher repeats what was acknowledged.",
)
PROJECTOR_FORWARDED = Counter(
    "frameledger_projector_forwarded_total",
    "projector",
    "Records that were forwarded to the partition of their conversation.",
    "A publisher has another partitioner than Kafka's.",
)
PROJECTOR_REJECTED = Counter(
    "frameledger_projector_rejected_total",
    "projector",
    "Records that are no frames, by what is wrong with them: `frameledger dlq list`.",
    "A publisher is broken.",
    (Label("code", (*_CODES, OTHER)),),
)
PROJECTOR_FENCED = Counter(
    "frameledger_projector_fenced_total",
    "projector",
    "Batches that were dropped, since another projector owns their partitions by now.",
    "Projectors take partitions from one another, or one stood still.",
)
PROJECTOR_UNKNOWN_TYPES = Counter(
    "frameledger_projector_unknown_types_total",
    "projector",
    "Frames of a type that this release does not know; they are kept.",
    "A publisher misspells a type, or is of a newer release.",
)
PROJECTOR_BATCH_FRAMES = Histogram(
    "frameledger_projector_batch_frames",
    "projector",
    "Frames that one commit stored.",
    "A backlog: batches are large when there is more to read than time.",
    unit="frames",
    buckets=(1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000),
)
PROJECTOR_BATCH_DURATION = Histogram(
    "frameledger_projector_batch_duration_seconds",
    "projector",
    "Time of each stage of a batch. `write` is the one statement of a small batch, with its commit; `commit` that of a "
    "large one; `announce` the notification, which flushes.",
    "The stage that is slow: `load`, `write`, `commit` and `announce` are the database's, `decode` and `fold` ours.",
    (Label("stage", STAGES),),
    "seconds",
    QUICK,
)
PROJECTOR_LAG_RECORDS = Gauge(
    "frameledger_projector_lag_records",
    "projector",
    "Records on the log, as of the last fetch, that are not stored.",
    "It does not keep up: add projectors, up to one for each partition.",
    (_TOPIC, _PARTITION),
    "records",
)
PROJECTOR_LAG_SECONDS = Gauge(
    "frameledger_projector_lag_seconds",
    "projector",
    "For how long the partition has had records that are not stored.",
    "As for the records.",
    (_TOPIC, _PARTITION),
    "seconds",
)
PROJECTOR_VISIBLE = Histogram(
    "frameledger_projector_visible_seconds",
    "projector",
    "From the log's time of the oldest frame of a notification until everybody was told: the promise of the road.",
    "Readers wait.",
    unit="seconds",
    buckets=QUICK,
)
PROJECTOR_HEADS_CACHED = Gauge(
    "frameledger_projector_heads_cached", "projector", "Conversations whose state is in memory."
)
PROJECTOR_HEAD_LOADS = Counter(
    "frameledger_projector_head_loads_total",
    "projector",
    "Conversations whose state was read from the database.",
    "As many as frames: the cache is too small for what is going on.",
)
OUTBOX_SENT = Counter(
    "frameledger_outbox_sent_total",
    "projector",
    "Rows of the outbox that the broker acknowledged.",
    labels=(Label("kind", _KINDS),),
)
RUNS_REQUESTED = Counter(
    "frameledger_runs_requested_total",
    "projector",
    "Runs that conversations asked for, by the type of the frame that did.",
    "Traffic of the models.",
    (Label("trigger", (*FRAME_TYPES, OTHER)),),
)
RUNS = Counter(
    "frameledger_runs_total",
    "projector",
    "Runs that came to an end.",
    "`failed`: models or workers fail. `interrupted`: users cut in.",
    (Label("status", (*get_args(RunEnd), "dropped", OTHER)),),
)
RUN_FIRST_TEXT = Histogram(
    "frameledger_run_first_text_seconds",
    "projector",
    "From the request of a run until its first words were on the log: what the user feels.",
    "The model is slow, or runs wait for workers.",
    (Label("model", open_to="names"),),
    "seconds",
    PATIENT,
)
CALLS = Counter(
    "frameledger_calls_total",
    "projector",
    "Calls of functions that came to an end.",
    "`failed`: the function. `ambiguous`: a person has to say what happened.",
    (Label("function", open_to="names"), Label("status", (*get_args(CallEnd), OTHER))),
)

# The timekeeper
PROJECTION_LAG = Gauge(
    "frameledger_projection_lag_records",
    "timekeeper",
    "Records of all partitions that were on the log at the sweep before and are not stored yet. It is seen from beside "
    "the projectors: it grows when none runs.",
    "Projectors stopped, or do not keep up.",
    unit="records",
)
OUTBOX_ROWS = Gauge(
    "frameledger_outbox_rows",
    "timekeeper",
    "Rows that wait in the outbox; no more than 100000 are counted.",
    "The broker is away, or a topic takes no records.",
    (Label("kind", _KINDS),),
)
OUTBOX_OLDEST = Gauge(
    "frameledger_outbox_oldest_seconds",
    "timekeeper",
    "Age of the oldest row of the outbox, of those that are counted.",
    "As for its rows.",
    unit="seconds",
)
CONTEXTS_PARKED = Gauge(
    "frameledger_contexts_parked",
    "timekeeper",
    "Conversations whose frames are stored and not folded.",
    "A person is needed: `frameledger unpark`.",
)
CALLS_WAITING = Gauge(
    "frameledger_calls_waiting",
    "timekeeper",
    "Calls that wait for a person's answer.",
    "People are needed.",
)
CALLS_AMBIGUOUS = Gauge(
    "frameledger_calls_ambiguous",
    "timekeeper",
    "Calls of which nobody knows whether they happened, until a person says so.",
    "A person is needed: `frameledger calls list`.",
)
RUNS_OPEN = Gauge(
    "frameledger_runs_open",
    "timekeeper",
    "Runs that were asked for and have no end.",
    "Workers are missing, or models are slow.",
)
TIMEKEEPER_SETTLED = Counter(
    "frameledger_timekeeper_settled_total",
    "timekeeper",
    "What was overdue and was settled by a frame, by the rule that said so.",
    "Something is silent that should speak: the rule says what.",
    (Label("rule", (*RULES, OTHER)),),
)

# Workers
WORK_SLOTS = Gauge(
    "frameledger_work_slots",
    "worker",
    "Slots of this worker.",
    "`busy` as many as there are: add workers, or slots.",
    (_SERVICE, Label("state", ("busy", "free"))),
)
WORK_QUEUE = Histogram(
    "frameledger_work_queue_seconds",
    "worker",
    "From the effect on its topic until this worker claimed it.",
    "Add workers.",
    (_SERVICE,),
    "seconds",
    PATIENT,
)
WORK_CLAIMS = Counter(
    "frameledger_work_claims_total",
    "worker",
    "Work that was claimed: `new` off its topic, `takeover` what others left.",
    "`takeover`: workers die, or stand still.",
    (_SERVICE, _WORK, Label("how", ("new", "takeover"))),
)
WORK_LEASES_LOST = Counter(
    "frameledger_work_leases_lost_total",
    "worker",
    "Leases that ended without the worker's will: its heartbeats did not arrive.",
    "The database is slow, or something blocks the event loop.",
    (_SERVICE,),
)

# Inference
INFERENCE_DURATION = Histogram(
    "gen_ai_client_inference_duration_seconds",
    "inference",
    "One attempt of a run, from the request to the end of the answer; `error_type` is empty if it succeeded.",
    "The provider is slow.",
    (*_OF_A_MODEL, _ERROR),
    "seconds",
    PATIENT,
)
INFERENCE_FIRST_CHUNK = Histogram(
    "gen_ai_client_inference_time_to_first_chunk_seconds",
    "inference",
    "From the request to the first piece of the answer.",
    "The provider is slow to begin.",
    _OF_A_MODEL,
    "seconds",
    PATIENT,
)
INPUT_TOKENS = Counter(
    "gen_ai_client_inference_usage_input_tokens_total",
    "inference",
    "Tokens of requests, as the provider counts them.",
    "Cost.",
    _OF_A_MODEL,
    "tokens",
)
OUTPUT_TOKENS = Counter(
    "gen_ai_client_inference_usage_output_tokens_total",
    "inference",
    "Tokens of answers.",
    "Cost.",
    _OF_A_MODEL,
    "tokens",
)
CACHE_READ_TOKENS = Counter(
    "gen_ai_client_inference_usage_cache_read_input_tokens_total",
    "inference",
    "Tokens of requests that the provider had in its cache.",
    "Good.",
    _OF_A_MODEL,
    "tokens",
)
CACHE_WRITE_TOKENS = Counter(
    "gen_ai_client_inference_usage_cache_write_input_tokens_total",
    "inference",
    "Tokens of requests that the provider put into its cache.",
    "Contexts change at their beginning.",
    _OF_A_MODEL,
    "tokens",
)
REASONING_TOKENS = Counter(
    "gen_ai_client_inference_usage_reasoning_output_tokens_total",
    "inference",
    "Tokens of answers that were thoughts.",
    "Cost.",
    _OF_A_MODEL,
    "tokens",
)

# Functions
TOOL_DURATION = Histogram(
    "gen_ai_execute_tool_duration_seconds",
    "functions",
    "One call in this process, from its claim to its end; `error_type` is empty if it is done, and otherwise how it "
    "was settled: `failed`, `cancelled`, `timeout`, `ambiguous`.",
    "The function is slow; `timeout`: it hangs.",
    (_FUNCTION, Label("error_type", ("", "failed", "cancelled", "timeout", "ambiguous", OTHER))),
    "seconds",
    PATIENT,
)

# The client and the gateway
PUBLISH = Histogram(
    "frameledger_publish_seconds",
    "client",
    "One `publish`, until the broker acknowledged it; with `wait` until it was stored.",
    "The broker is slow.",
    (Label("result", ("ok", "refused", "unacknowledged", "not_visible", "error")),),
    "seconds",
    QUICK,
)
HTTP_DURATION = Histogram(
    "http_server_request_duration_seconds",
    "gateway",
    "One request, until its answer ended; a stream's, until its client left.",
    "Database or log are slow.",
    (
        Label("http_route", open_to="settings"),
        Label("http_request_method", ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", OTHER)),
        Label("http_response_status_code", open_to="names"),
    ),
    "seconds",
    PATIENT,
)
GATEWAY_STREAMS = Gauge(
    "frameledger_gateway_streams",
    "gateway",
    "Live streams that are open.",
    "Near 2000: add gateways.",
)
GATEWAY_STREAM_FRAMES = Counter(
    "frameledger_gateway_stream_frames_total",
    "gateway",
    "Frames that live streams were given.",
)
GATEWAY_STREAMS_CLOSED = Counter(
    "frameledger_gateway_streams_closed_total",
    "gateway",
    "Live streams that ended.",
    "`slow`: clients do not read what they are sent.",
    (Label("reason", ("ended", "left", "slow", "closing", OTHER)),),
)
GATEWAY_STREAM_BEHIND = Gauge(
    "frameledger_gateway_stream_behind_frames",
    "gateway",
    "Frames by which the stream that is furthest behind its conversation was when it was last given some.",
    "Clients are slow, or the database is.",
    unit="frames",
)

METRICS: Mapping[str, Metric] = {one.name: one for one in list(globals().values()) if isinstance(one, Metric)}
"""All of them, by name."""
