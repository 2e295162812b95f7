"""The list of all metrics. The registry, the reference page, the dashboards and tests are made from it.

Names with a prefix of OpenTelemetry's conventions (`gen_ai_`, `http_server_`) have the meaning defined there; all
others start with `frameledger_`. No label holds the id of a conversation, run, call, worker or token: their number is
unbounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from frameledger.decode_error import REASONS
from frameledger.evolve.changes import CallEnd, RunEnd
from frameledger.frames import FRAME_TYPES
from frameledger_services.telemetry.metric_types import OTHER, Counter, Gauge, Histogram, Label, Metric

QUICK = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)
"""Buckets in seconds for operations of the database or the broker."""

PATIENT = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
"""Buckets in seconds for models, functions and people."""

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
    "Always 1. The labels are the running release.",
    "",
    (Label("version", open_to="settings"), Label("fold_version", open_to="settings")),
)

READY = Gauge(
    "frameledger_ready",
    "every service",
    "Result of each check of `/readyz`: `database` and `log` respond, the event `loop` runs, and the process is not "
    "`draining`.",
    "1 is healthy; 0: the named check fails.",
    (Label("check", ("loop", "database", "log", "draining")),),
)

SPANS = Counter(
    "frameledger_spans_total",
    "every service",
    "Recorded spans by outcome: `sent` to the collector, `refused` because it rejected them or is unreachable, "
    "`dropped` because the queue was full. 0 without an endpoint.",
    "`refused`, `dropped`: the collector is down or too slow; traces are incomplete.",
    (Label("outcome", ("sent", "refused", "dropped")),),
)

# The projector
PROJECTOR_FRAMES = Counter(
    "frameledger_projector_frames_total",
    "projector",
    "Stored frames by type and outcome.",
    "Traffic. Many `parked`: conversations need `frameledger unpark`.",
    (_TYPE, Label("outcome", _OUTCOMES)),
)
PROJECTOR_DUPLICATES = Counter(
    "frameledger_projector_duplicates_total",
    "projector",
    "Duplicate frames. They change nothing.",
    "A publisher repeats acknowledged frames.",
)
PROJECTOR_FORWARDED = Counter(
    "frameledger_projector_forwarded_total",
    "projector",
    "Records forwarded to the partition of their conversation.",
    "A publisher does not use Kafka's default partitioner.",
)
PROJECTOR_REJECTED = Counter(
    "frameledger_projector_rejected_total",
    "projector",
    "Records rejected because they are not valid frames, by error code: see `frameledger dlq list`.",
    "A publisher sends invalid records.",
    (Label("code", (*_CODES, OTHER)),),
)
PROJECTOR_FENCED = Counter(
    "frameledger_projector_fenced_total",
    "projector",
    "Batches dropped because another projector has taken over their partitions.",
    "Projectors rebalance often, or one was paused.",
)
PROJECTOR_UNKNOWN_TYPES = Counter(
    "frameledger_projector_unknown_types_total",
    "projector",
    "Frames of a type that this release does not know. They are stored.",
    "A publisher misspells a type or uses a newer release.",
)
PROJECTOR_BATCH_FRAMES = Histogram(
    "frameledger_projector_batch_frames",
    "projector",
    "Frames stored by one commit.",
    "A backlog: batches grow when frames arrive faster than they are stored.",
    unit="frames",
    buckets=(1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000),
)
PROJECTOR_BATCH_DURATION = Histogram(
    "frameledger_projector_batch_duration_seconds",
    "projector",
    "Duration of each stage of a batch. `write` of a small batch includes its commit; `commit` is that of a large "
    "batch; `announce` is the NOTIFY, which flushes.",
    "The slow stage: `load`, `write`, `commit` and `announce` depend on the database, `decode` and `fold` on the "
    "projector.",
    (Label("stage", STAGES),),
    "seconds",
    QUICK,
)
PROJECTOR_LAG_RECORDS = Gauge(
    "frameledger_projector_lag_records",
    "projector",
    "Records on the log at the last fetch that are not stored yet.",
    "The projector does not keep up: add projectors, at most one per partition.",
    (_TOPIC, _PARTITION),
    "records",
)
PROJECTOR_LAG_SECONDS = Gauge(
    "frameledger_projector_lag_seconds",
    "projector",
    "How long the partition has had records that are not stored yet.",
    "The projector does not keep up: add projectors, at most one per partition.",
    (_TOPIC, _PARTITION),
    "seconds",
)
PROJECTOR_VISIBLE = Histogram(
    "frameledger_projector_visible_seconds",
    "projector",
    "End-to-end latency: broker timestamp of a batch's oldest frame until its NOTIFY.",
    "Readers see new frames late.",
    unit="seconds",
    buckets=QUICK,
)
PROJECTOR_HEADS_CACHED = Gauge(
    "frameledger_projector_heads_cached", "projector", "Conversations whose state is cached."
)
PROJECTOR_HEAD_LOADS = Counter(
    "frameledger_projector_head_loads_total",
    "projector",
    "Conversation states read from the database.",
    "Close to the number of frames: the cache is too small for the active conversations.",
)
OUTBOX_SENT = Counter(
    "frameledger_outbox_sent_total",
    "projector",
    "Outbox rows acknowledged by the broker.",
    labels=(Label("kind", _KINDS),),
)
RUNS_REQUESTED = Counter(
    "frameledger_runs_requested_total",
    "projector",
    "Requested runs by the type of the frame that triggered them.",
    "Model traffic.",
    (Label("trigger", (*FRAME_TYPES, OTHER)),),
)
RUNS = Counter(
    "frameledger_runs_total",
    "projector",
    "Ended runs by status.",
    "`failed`: models or workers fail. `interrupted`: users interrupt answers.",
    (Label("status", (*get_args(RunEnd), "dropped", OTHER)),),
)
RUN_FIRST_TEXT = Histogram(
    "frameledger_run_first_text_seconds",
    "projector",
    "Time from the request of a run until its first text is on the log: the latency that users notice.",
    "The model is slow, or runs wait for workers.",
    (Label("model", open_to="names"),),
    "seconds",
    PATIENT,
)
CALLS = Counter(
    "frameledger_calls_total",
    "projector",
    "Ended function calls by status.",
    "`failed`: the function fails. `ambiguous`: a person has to settle the call (`frameledger calls list`).",
    (Label("function", open_to="names"), Label("status", (*get_args(CallEnd), OTHER))),
)

# The timekeeper
PROJECTION_LAG = Gauge(
    "frameledger_projection_lag_records",
    "timekeeper",
    "Records of all partitions that were on the log at the previous sweep and are not stored yet. Measured by the "
    "timekeeper, so it grows when no projector runs.",
    "Projectors are stopped or do not keep up.",
    unit="records",
)
OUTBOX_ROWS = Gauge(
    "frameledger_outbox_rows",
    "timekeeper",
    "Rows in the outbox, counted up to 100000.",
    "The broker is down, or a topic rejects records.",
    (Label("kind", _KINDS),),
)
OUTBOX_OLDEST = Gauge(
    "frameledger_outbox_oldest_seconds",
    "timekeeper",
    "Age of the oldest counted outbox row.",
    "The broker is down, or a topic rejects records.",
    unit="seconds",
)
CONTEXTS_PARKED = Gauge(
    "frameledger_contexts_parked",
    "timekeeper",
    "Parked conversations: frames are stored but not applied.",
    "Fix the cause, then `frameledger unpark`.",
)
CALLS_WAITING = Gauge(
    "frameledger_calls_waiting",
    "timekeeper",
    "Calls that wait for a person.",
    "People have to answer: `frameledger calls list`.",
)
CALLS_AMBIGUOUS = Gauge(
    "frameledger_calls_ambiguous",
    "timekeeper",
    "Ambiguous calls: it is unknown whether they happened.",
    "A person has to settle them: `frameledger calls list`.",
)
RUNS_OPEN = Gauge(
    "frameledger_runs_open",
    "timekeeper",
    "Runs that are requested and not ended.",
    "Too few workers, or slow models.",
)
TIMEKEEPER_SETTLED = Counter(
    "frameledger_timekeeper_settled_total",
    "timekeeper",
    "Runs, calls and turns closed by the timekeeper, by rule.",
    "Workers or speech services do not report back; the rule says which.",
    (Label("rule", (*RULES, OTHER)),),
)

# Workers
WORK_SLOTS = Gauge(
    "frameledger_work_slots",
    "worker",
    "Job slots of this worker by state.",
    "All `busy`: add workers or slots.",
    (_SERVICE, Label("state", ("busy", "free"))),
)
WORK_QUEUE = Histogram(
    "frameledger_work_queue_seconds",
    "worker",
    "Time from the effect on its topic until this worker claimed it.",
    "Add workers.",
    (_SERVICE,),
    "seconds",
    PATIENT,
)
WORK_CLAIMS = Counter(
    "frameledger_work_claims_total",
    "worker",
    "Claims: `new` from the topic, `takeover` from other workers.",
    "`takeover`: workers crash or are paused.",
    (_SERVICE, _WORK, Label("how", ("new", "takeover"))),
)
WORK_LEASES_LOST = Counter(
    "frameledger_work_leases_lost_total",
    "worker",
    "Leases lost because heartbeats did not arrive in time.",
    "The database is slow, or a handler blocks the event loop.",
    (_SERVICE,),
)

# Inference
INFERENCE_DURATION = Histogram(
    "gen_ai_client_inference_duration_seconds",
    "inference",
    "Duration of one attempt of a run, from the request to the end of the answer; `error_type` is empty on success.",
    "The provider is slow.",
    (*_OF_A_MODEL, _ERROR),
    "seconds",
    PATIENT,
)
INFERENCE_FIRST_CHUNK = Histogram(
    "gen_ai_client_inference_time_to_first_chunk_seconds",
    "inference",
    "Time from the request to the first chunk of the answer.",
    "The provider is slow to start.",
    _OF_A_MODEL,
    "seconds",
    PATIENT,
)
INPUT_TOKENS = Counter(
    "gen_ai_client_inference_usage_input_tokens_total",
    "inference",
    "Input tokens as counted by the provider.",
    "Cost.",
    _OF_A_MODEL,
    "tokens",
)
OUTPUT_TOKENS = Counter(
    "gen_ai_client_inference_usage_output_tokens_total",
    "inference",
    "Output tokens as counted by the provider.",
    "Cost.",
    _OF_A_MODEL,
    "tokens",
)
CACHE_READ_TOKENS = Counter(
    "gen_ai_client_inference_usage_cache_read_input_tokens_total",
    "inference",
    "Input tokens read from the provider's cache.",
    "Good.",
    _OF_A_MODEL,
    "tokens",
)
CACHE_WRITE_TOKENS = Counter(
    "gen_ai_client_inference_usage_cache_write_input_tokens_total",
    "inference",
    "Input tokens written to the provider's cache.",
    "Contexts change near their start.",
    _OF_A_MODEL,
    "tokens",
)
REASONING_TOKENS = Counter(
    "gen_ai_client_inference_usage_reasoning_output_tokens_total",
    "inference",
    "Reasoning tokens of answers.",
    "Cost.",
    _OF_A_MODEL,
    "tokens",
)

# Functions
TOOL_DURATION = Histogram(
    "gen_ai_execute_tool_duration_seconds",
    "functions",
    "Duration of one call, from its claim to its end. `error_type` is empty on success, otherwise how the call was "
    "settled: `failed`, `cancelled`, `timeout`, `ambiguous`.",
    "The function is slow; `timeout`: it hangs.",
    (_FUNCTION, Label("error_type", ("", "failed", "cancelled", "timeout", "ambiguous", OTHER))),
    "seconds",
    PATIENT,
)

# The client and the gateway
PUBLISH = Histogram(
    "frameledger_publish_seconds",
    "client",
    "Duration of one `publish`, until the broker acknowledged it; with `wait`, until it was stored.",
    "The broker is slow.",
    (Label("result", ("ok", "refused", "unacknowledged", "not_visible", "error")),),
    "seconds",
    QUICK,
)
HTTP_DURATION = Histogram(
    "http_server_request_duration_seconds",
    "gateway",
    "Duration of one request until its response ended; for a stream, until its client disconnected.",
    "The database or Kafka is slow.",
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
    "Open live streams.",
    "Near 2000: add gateways.",
)
GATEWAY_STREAM_FRAMES = Counter(
    "frameledger_gateway_stream_frames_total",
    "gateway",
    "Frames sent to live streams.",
)
GATEWAY_STREAMS_CLOSED = Counter(
    "frameledger_gateway_streams_closed_total",
    "gateway",
    "Closed live streams by reason.",
    "`slow`: clients do not read fast enough.",
    (Label("reason", ("ended", "left", "slow", "closing", OTHER)),),
)
GATEWAY_STREAM_BEHIND = Gauge(
    "frameledger_gateway_stream_behind_frames",
    "gateway",
    "Largest backlog of a live stream, in frames, at its latest read.",
    "Clients or the database are slow.",
    unit="frames",
)

METRICS: Mapping[str, Metric] = {one.name: one for one in list(globals().values()) if isinstance(one, Metric)}
"""All metrics by name."""
