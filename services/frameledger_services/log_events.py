"""The list of all log events: level, meaning and remedy.

`tests/unit/test_log_events.py` compares this list with the code. Events about a run or a call have its id and the id of
its conversation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple


class Event(NamedTuple):
    """One kind of event."""

    level: Literal["info", "warning", "error"]
    meaning: str
    remedy: str = ""
    """What to do; empty if nothing."""


_WAIT = "It recovers by itself. If it persists: `frameledger doctor`."

_ALLOW = "If the message names a missing permission, allow the service to write to the topic of frames."

EVENTS: Mapping[str, Event] = {
    "service.retrying": Event(
        "warning", "The broker or the database failed. The service restarts after a pause.", _WAIT
    ),
    "ops.started": Event("info", "This process serves `/metrics`, `/livez` and `/readyz` at `address`."),
    "process.did_not_end": Event(
        "warning",
        "The service stopped, but tasks or threads of this process still run (`left`), such as a handler that ignores "
        "its cancellation. The process ends without them.",
        "Let handlers end when they are cancelled.",
    ),
    "up.record_not_written": Event(
        "error", "`up` cannot write its state to the data directory. It retries.", "Check the disk."
    ),
    # The log
    "feed.broker_away": Event(
        "warning", "A broker does not respond. The request is repeated until it does.", _WAIT
    ),
    "feed.process_stood_still": Event(
        "warning", "This process was paused. It checks that the topic was not recreated meanwhile."
    ),
    "kafka.throttled": Event(
        "warning",
        "A quota was exceeded: the broker delays this client, by `seconds` at first. Logged once a minute.",
        "If that is too slow, raise the quotas of the user or client: Kafka's `kafka-configs --describe`.",
    ),
    # The projector
    "projector.fenced": Event(
        "warning", "Another projector has taken over these partitions. Unfinished batches are dropped."
    ),
    "projector.partition_away": Event(
        "warning",
        "This partition does not respond. Reading it is retried; the other partitions are still read.",
        "Check the partition's leader, for example with Kafka's `kafka-topics --describe`.",
    ),
    "projector.newer_fold": Event(
        "error",
        "A newer release folded this conversation. Its partition waits for a projector of that release.",
        "Upgrade this process.",
    ),
    "projector.not_rebuilt": Event(
        "warning",
        "A conversation that an older release folded cannot be rebuilt. It continues from its stored state.",
        "`frameledger rebuild --context` shows the differences.",
    ),
    "projector.name_taken": Event(
        "warning",
        "Another projector with this instance id is connected.",
        "Give each projector its own `FRAMELEDGER_PROJECTOR_INSTANCE_ID`.",
    ),
    "projector.isolated": Event(
        "warning",
        "Projectors crashed at this offset. Records are processed one by one; the one that causes a crash is parked.",
        "Find the crash in the log of the process manager; after the fix, `frameledger unpark`.",
    ),
    "projector.outbox_held_back": Event(
        "warning",
        "A topic, or some of its partitions, rejects records. Its rows stay in the outbox and are sent later.",
        _WAIT,
    ),
    "projector.too_large_to_publish": Event(
        "error",
        "A record is larger than its topic allows. It is kept as a dead letter.",
        "`frameledger dlq list`.",
    ),
    "projector.unreadable_headers": Event(
        "error",
        "Somebody changed the headers of a row of the outbox, which cannot be read any more. The row stays in the "
        "outbox; all others are published. `of` is its partition, generation, offset and ordinal.",
        "Correct `headers` of that row, or delete it; the next start of a projector publishes it.",
    ),
    "projector.announcement_failed": Event(
        "warning",
        "PostgreSQL rejected a NOTIFY. Clients see new frames later.",
        "See `reason` in the event.",
    ),
    # Workers
    "worker.started": Event(
        "info", "A worker is registered and accepts work: `serves` names its functions, or its models."
    ),
    "worker.draining": Event("info", "The worker is stopping: it accepts no new work and finishes its jobs."),
    "worker.stopped": Event("info", "The worker stopped cleanly. No claims are left."),
    "worker.lease_lost": Event(
        "warning",
        "The worker's heartbeats did not arrive within its lease. Its jobs are stopped and taken over by others.",
    ),
    "worker.heartbeat_failed": Event("warning", "A heartbeat did not arrive.", _WAIT),
    "worker.event_loop_blocked": Event(
        "error",
        "The event loop was blocked for too long. The worker releases its lease.",
        "Find the blocking handler and move long computations to a thread.",
    ),
    "worker.reconnected": Event("info", "The database connection is restored."),
    "worker.retrying_database": Event(
        "warning", "The database is unavailable. The statement is retried.", _WAIT
    ),
    "worker.retrying_broker": Event(
        "warning", "The broker is unavailable. Reading effects is retried.", _WAIT
    ),
    "worker.offsets_not_committed": Event(
        "info", "Kafka rejected an offset commit. The next one includes these offsets."
    ),
    "worker.job_released": Event(
        "warning", "A job failed because of the broker or the database. Another worker retries it."
    ),
    "worker.jobs_cancelled": Event("warning", "Jobs are cancelled; see `reason`."),
    "worker.unknown_claims_released": Event(
        "info", "Claims of this worker that its process does not know are released."
    ),
    "worker.unanswered_claims_released": Event(
        "info", "Claims whose confirmation was lost with a connection are released."
    ),
    "worker.unreadable_effect": Event(
        "warning",
        "A record of an effects topic is not a valid effect. It is skipped.",
        "Find the program that writes to this topic.",
    ),
    "worker.unreadable_cancellation": Event(
        "warning",
        "A record of the cancellations topic is not a valid cancellation. It is skipped.",
        "Find the program that writes to this topic.",
    ),
    "worker.cancellations_by_heartbeat_only": Event(
        "warning",
        "The cancellations topic cannot be read. Cancellations arrive later, with heartbeats.",
        _WAIT,
    ),
    # Runs
    "run.taken_over": Event("info", "This worker takes over a run that another worker released or lost."),
    "run.retried": Event("info", "The provider failed temporarily. The request is retried."),
    "run.answer_broke_off": Event(
        "warning", "The stream of an answer was interrupted. Another attempt starts."
    ),
    "run.given_up": Event(
        "warning", "The last attempt failed. An ErrorFrame is published.", "See `frameledger show`."
    ),
    "run.failed": Event(
        "warning", "The provider rejected the request or failed permanently. An ErrorFrame is published."
    ),
    "run.provider_failed": Event(
        "error", "The provider raised an unexpected error. The run failed.", "Fix the plug-in."
    ),
    "run.adapter_failed": Event(
        "error", "The provider's adapter raised an error for this context.", "Fix the plug-in."
    ),
    "run.stream_not_closed": Event("warning", "A provider's stream could not be closed after its answer."),
    "run.frames_not_published": Event("warning", "Publishing frames of this run is retried.", _WAIT),
    "run.frames_refused": Event(
        "error", "The broker permanently rejects frames of this run. Publishing them is retried.", _ALLOW
    ),
    "run.nothing_to_answer": Event("warning", "The context of this run does not exist. The run is finished."),
    "run.not_answered": Event("warning", "The context cannot be read or is parked. The run is released."),
    # Calls
    "call.taken_over": Event("info", "This worker takes over a call that another worker released or lost."),
    "call.failed": Event(
        "error", "A handler raised an error. The call has an error result.", "Fix the handler."
    ),
    "call.failed_without_lease": Event(
        "error", "A handler raised an error after its worker had lost the call."
    ),
    "call.handler_failed_late": Event(
        "error", "A handler raised an error after its call was settled.", "Fix the handler."
    ),
    "call.handler_goes_on": Event("warning", "A handler is still running although its call is settled."),
    "call.handler_does_not_stop": Event(
        "warning",
        "A handler does not react to its cancellation. The call is ambiguous.",
        "Settle the call (`frameledger calls list`) and make the handler stop when it is cancelled.",
    ),
    "call.settled_without_result": Event(
        "warning", "A call was settled by a deadline, a cancellation or a lost worker."
    ),
    "call.not_startable": Event(
        "error", "The start of a call cannot be encoded as a frame. The call is cancelled."
    ),
    "call.arguments_unreadable": Event(
        "error", "The arguments of a call cannot be parsed. The call has an error result."
    ),
    "call.frame_refused": Event("error", "The broker permanently rejects a frame of this call.", _ALLOW),
    "call.frame_not_published": Event("warning", "Publishing a frame of this call is retried.", _WAIT),
    "call.status_unreadable": Event("warning", "Reading the status of calls is retried.", _WAIT),
    "call.announcement_unreadable": Event("warning", "Reading the calls of an answer is retried.", _WAIT),
    "call.context_updated_skipped": Event(
        "warning", "A result was not stored in time. `on_context_updated` is not called."
    ),
    "call.context_updated_failed": Event(
        "error", "`on_context_updated` raised an error.", "Fix the callback."
    ),
    "functions.name_not_portable": Event(
        "warning",
        "OpenAI and others refuse the name of a registered function, and each request that offers it.",
        "Use at most 64 of the characters A to Z, a to z, 0 to 9, `_` and `-`.",
    ),
    "functions.tools_not_folded": Event("warning", "A published tool list is not stored yet."),
    "functions.tools_not_followed": Event("warning", "Reading tool lists is retried.", _WAIT),
    # Providers
    "provider.two_system_instructions": Event(
        "warning",
        "Service and context both have a system instruction. The model receives both.",
        "Set one of them.",
    ),
    "provider.connection_failed": Event(
        "warning", "A WebSocket connection to a provider failed. It is retried."
    ),
    "provider.hook_failed": Event(
        "error", "An event handler of a provider raised an error.", "Fix the handler."
    ),
    # The timekeeper
    "timekeeper.started": Event("info", "The timekeeper checks for exceeded timeouts."),
    "timekeeper.settled": Event(
        "info", "A run, call or turn exceeded a timeout and was closed by a frame; see `rule`."
    ),
    "timekeeper.settlement_refused": Event("error", "A closing frame cannot be encoded.", "Report it."),
    "timekeeper.judged_dead": Event(
        "warning", "The timekeeper's heartbeats did not arrive. It registers again as a new worker."
    ),
    "timekeeper.retrying_broker": Event(
        "warning", "The broker is unavailable. Publishing closing frames is retried.", _WAIT
    ),
    "timekeeper.partition_away": Event(
        "warning",
        "This partition does not respond, or its log ends before its stored offset. Its timeouts are not enforced "
        "meanwhile; those of the other partitions are.",
        "Check the partition's leader, for example with Kafka's `kafka-topics --describe`; `frameledger recover` shows "
        "whether records are missing.",
    ),
    "timekeeper.root_published": Event(
        "info", "A root over all conversations was published to the topic `roots`."
    ),
    "timekeeper.root_failed": Event(
        "warning",
        "A root could not be computed or published. It is retried.",
        "See `reason`. If the topic does not exist: `frameledger topics --create`.",
    ),
    "timekeeper.not_counted": Event(
        "warning", "Open work cannot be counted. Its metrics keep their values.", _WAIT
    ),
    "timekeeper.rule_timed_out": Event(
        "warning",
        "The query of one rule exceeded its timeout. It is retried.",
        "If it persists, look for a transaction that was left open.",
    ),
    "timekeeper.not_purged": Event(
        "warning",
        "Old claims and workers could not be deleted in time. The deletion is retried after a minute.",
        "If it persists, look for a transaction that was left open.",
    ),
    # Traces
    "telemetry.not_installed": Event(
        "warning",
        "Traces are configured, but OpenTelemetry is not installed: none are recorded.",
        "`pip install 'frameledger[otel]'`.",
    ),
    "telemetry.protocol_not_spoken": Event(
        "warning",
        "The configured protocol is not OTLP over HTTP: no traces are recorded.",
        "Set `OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf` and the collector's HTTP port, usually 4318.",
    ),
    "telemetry.not_exported": Event(
        "warning",
        "The collector rejects spans or is unreachable; `reason` is OpenTelemetry's message. They are lost; nothing "
        "else is affected.",
        "Check that a collector responds at `OTEL_EXPORTER_OTLP_ENDPOINT`, a URL such as `http://127.0.0.1:4318`; for "
        "401 and 403, the key in `OTEL_EXPORTER_OTLP_HEADERS`.",
    ),
    "telemetry.exports_again": Event(
        "info", "The collector accepts spans again; `lost` spans were not exported."
    ),
    "telemetry.spans_lost": Event(
        "warning", "This process stops, and `lost` of its spans were not exported."
    ),
    # The gateway
    "gateway.started": Event("info", "The gateway listens at `address`."),
    "gateway.draining": Event(
        "info", "The gateway is stopping: it accepts no new requests and finishes open ones."
    ),
    "gateway.stopped": Event("info", "The gateway stopped cleanly."),
    "gateway.read": Event(
        "info",
        "A client read a conversation: `token`, `context_id`, `path`, the requested `part`, the returned `version`, "
        "`trace_id`.",
    ),
    "gateway.tokens_unreadable": Event(
        "warning",
        "The tokens file cannot be read. All tokens are rejected.",
        "Fix the file that `reason` names; it is read again when it changes.",
    ),
    "gateway.database_away": Event(
        "warning",
        "`requests` failed with `database-away` since the last such event; logged at most every 5 s.",
        _WAIT,
    ),
    "gateway.log_away": Event(
        "warning",
        "`requests` failed with `log-away` since the last such event; logged at most every 5 s.",
        _WAIT,
    ),
    "gateway.not_interrupted": Event(
        "warning",
        "A client of a compatible API disconnected, and the interruption of its answer cannot be published.",
        _WAIT,
    ),
    "gateway.presence_unshared": Event(
        "warning",
        "The gateway cannot tell other gateways which AG-UI runs have a client (PostgreSQL). A client that returns to "
        "another gateway now may find its run interrupted.",
        _WAIT,
    ),
    "gateway.not_listening": Event(
        "warning",
        "Notifications of projectors are not received. Streams poll every second.",
        _WAIT,
    ),
    "gateway.streams_retrying": Event(
        "warning", "The database is unavailable for streams. Reading is retried.", _WAIT
    ),
    "gateway.unknown_interrupt": Event(
        "warning",
        "A front end answered an interrupt that is not open in its conversation. The run continued without the "
        "answer.",
        "If it happens often, check what the front end sends.",
    ),
    "gateway.request_failed": Event("error", "A request failed with `internal-error`.", "Report it."),
}
