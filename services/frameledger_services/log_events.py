"""Every event that the services log: its level, what it says, and what to do about it.

`tests/unit/test_log_events.py` holds this list and the code together. Events about a run or a call name its
conversation and its id.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple


class Event(NamedTuple):
    """One kind of event."""

    level: Literal["info", "warning", "error"]
    meaning: str
    remedy: str = ""
    """Nothing to do if empty."""


_WAIT = "It goes on by itself. If it stays so: `frameledger doctor`."

EVENTS: Mapping[str, Event] = {
    "service.retrying": Event(
        "warning", "Broker or database failed; the service begins again after a pause.", _WAIT
    ),
    "ops.started": Event("info", "`/metrics`, `/livez` and `/readyz` of this process are at `address`."),
    "up.record_not_written": Event(
        "error", "`up` cannot note in its data directory what it runs, and tries again.", "Look at the disk."
    ),
    # The log
    "feed.broker_away": Event("warning", "A broker does not answer; it is asked until it does.", _WAIT),
    "feed.process_stood_still": Event(
        "warning", "This process did not run for a while; it checks that the log is still the same."
    ),
    # The projector
    "projector.fenced": Event(
        "warning", "Another projector owns these partitions now; batches under way are dropped."
    ),
    "projector.newer_fold": Event(
        "error",
        "A newer release folded this conversation; its partition waits for a projector of that release.",
        "Upgrade this process.",
    ),
    "projector.not_rebuilt": Event(
        "warning",
        "A conversation that an older release folded cannot be rebuilt; it goes on from its old state.",
        "`frameledger rebuild --context` shows what differs.",
    ),
    "projector.name_taken": Event(
        "warning",
        "Another projector is connected under this instance's name.",
        "Give each its own `FRAMELEDGER_PROJECTOR_INSTANCE_ID`.",
    ),
    "projector.isolated": Event(
        "warning",
        "Projectors crashed at this offset: records are tried one by one, and the one that crashes is parked.",
        "Read the crashes in the process manager's log; later `frameledger unpark`.",
    ),
    "projector.outbox_held_back": Event(
        "warning", "A topic takes no records; its rows stay in the outbox and are sent later.", _WAIT
    ),
    "projector.too_large_to_publish": Event(
        "error",
        "A record is larger than its topic takes; it is kept as a dead letter.",
        "`frameledger dlq list`.",
    ),
    "projector.announcement_failed": Event(
        "warning",
        "PostgreSQL took no NOTIFY; clients notice new frames later.",
        "The event names the remedy.",
    ),
    # Workers
    "worker.started": Event("info", "A worker is registered and takes work."),
    "worker.draining": Event("info", "It stops: it takes nothing new and finishes what it does."),
    "worker.stopped": Event("info", "It stopped in order; nothing is left to others."),
    "worker.lease_lost": Event(
        "warning",
        "Its heartbeats did not arrive within its lease: its jobs are stopped, others take them over.",
    ),
    "worker.heartbeat_failed": Event("warning", "One heartbeat did not arrive.", _WAIT),
    "worker.event_loop_blocked": Event(
        "error",
        "The event loop did not run for so long that the worker gives its lease up.",
        "Find the handler that blocks: long computations belong in a thread.",
    ),
    "worker.reconnected": Event("info", "The connection to the database was made again."),
    "worker.retrying_database": Event("warning", "A statement is tried again.", _WAIT),
    "worker.retrying_broker": Event("warning", "Effects cannot be read for now.", _WAIT),
    "worker.offsets_not_committed": Event(
        "info", "Kafka did not take the offsets; they go with the next ones."
    ),
    "worker.job_released": Event(
        "warning", "A job failed for broker or database, and is tried by another worker."
    ),
    "worker.jobs_cancelled": Event("warning", "Jobs are told to stop, for the reason that is named."),
    "worker.unknown_claims_released": Event(
        "info", "Claims that this process knows nothing of are returned."
    ),
    "worker.unanswered_claims_released": Event(
        "info", "Claims whose answer was lost with a connection are returned."
    ),
    "worker.unreadable_effect": Event(
        "warning",
        "A record of an effects topic is no effect; it is skipped.",
        "Find what else writes to this topic.",
    ),
    "worker.unreadable_cancellation": Event(
        "warning",
        "A record of the cancellations topic is none; it is skipped.",
        "As for `worker.unreadable_effect`.",
    ),
    "worker.cancellations_by_heartbeat_only": Event(
        "warning",
        "The cancellations topic cannot be read: cancellations arrive with heartbeats, later.",
        _WAIT,
    ),
    # Runs
    "run.taken_over": Event("info", "A run whose worker died or returned it is answered by this one."),
    "run.retried": Event("info", "The provider failed for now and is asked again."),
    "run.answer_broke_off": Event("warning", "The stream of an answer broke off; another attempt begins."),
    "run.given_up": Event(
        "warning", "The last attempt failed; an ErrorFrame says so.", "See `frameledger show`."
    ),
    "run.failed": Event("warning", "The provider refused or failed for good; an ErrorFrame says so."),
    "run.provider_failed": Event("error", "The provider's code raised; the run failed.", "Mend the plug-in."),
    "run.adapter_failed": Event("error", "A provider's adapter raised on this context.", "Mend the plug-in."),
    "run.stream_not_closed": Event("warning", "A provider's stream was left open after its answer."),
    "run.nothing_to_answer": Event("warning", "The context of this run is not there; it is finished."),
    "run.not_answered": Event("warning", "The context cannot be read or is parked; the run is returned."),
    # Calls
    "call.taken_over": Event(
        "info", "A call whose worker died or returned it is run or settled by this one."
    ),
    "call.failed": Event("error", "A handler raised; the call has an error result.", "Mend the handler."),
    "call.failed_without_lease": Event("error", "A handler raised after its worker had lost the call."),
    "call.handler_failed_late": Event(
        "error", "A handler raised after its call was settled.", "Mend the handler."
    ),
    "call.handler_goes_on": Event("warning", "A handler still runs although its call is settled."),
    "call.handler_does_not_stop": Event(
        "warning",
        "A handler does not react to its cancellation; the call is ambiguous.",
        "`frameledger calls list`, and let the handler end when it is cancelled.",
    ),
    "call.settled_without_result": Event("warning", "A call was settled by a deadline, a cancel or a loss."),
    "call.not_startable": Event("error", "The start of a call has no form on the log; it is cancelled."),
    "call.arguments_unreadable": Event(
        "error", "Reading the arguments raised; the call has an error result."
    ),
    "call.frame_refused": Event("error", "The broker refuses a frame of this call for good."),
    "call.frame_not_published": Event("warning", "A frame of this call is sent again.", _WAIT),
    "call.status_unreadable": Event("warning", "The status of calls is asked again.", _WAIT),
    "call.announcement_unreadable": Event("warning", "The calls of one answer are asked again.", _WAIT),
    "call.context_updated_skipped": Event(
        "warning", "A result was not seen in time: `on_context_updated` is not called."
    ),
    "call.context_updated_failed": Event("error", "`on_context_updated` raised.", "Mend the callback."),
    "functions.tools_not_folded": Event("warning", "A published tool list is not in the tables yet."),
    "functions.tools_not_followed": Event("warning", "Tool lists cannot be read for now.", _WAIT),
    # Providers
    "provider.two_system_instructions": Event(
        "warning",
        "Service and context both have a system instruction; the model gets both.",
        "Set one of them.",
    ),
    "provider.connection_failed": Event(
        "warning", "A WebSocket to a provider is not made yet; it is tried again."
    ),
    "provider.hook_failed": Event("error", "An event handler of a provider raised.", "Mend the handler."),
    # The timekeeper
    "timekeeper.started": Event("info", "It looks for what is overdue."),
    "timekeeper.settled": Event(
        "info", "Something was overdue, and was settled by a frame; `rule` says why."
    ),
    "timekeeper.settlement_refused": Event("error", "A settling frame has no form on the log.", "Report it."),
    "timekeeper.judged_dead": Event(
        "warning", "Its heartbeats did not arrive; it begins again as another one."
    ),
    "timekeeper.retrying_broker": Event("warning", "What is overdue cannot be settled for now.", _WAIT),
    "timekeeper.root_published": Event("info", "A root over all conversations is on the topic `roots`."),
    "timekeeper.root_failed": Event(
        "warning",
        "No root could be computed or published for now; it is tried again.",
        "The event names the reason. If the topic is not there: `frameledger topics --create`.",
    ),
    "timekeeper.not_counted": Event(
        "warning", "What there is to do cannot be counted for now; its metrics stay as they were.", _WAIT
    ),
    # Traces
    "telemetry.not_installed": Event(
        "warning",
        "The environment asks for traces, and OpenTelemetry is not installed: none are recorded.",
        "`pip install 'frameledger[otel]'`.",
    ),
    "telemetry.protocol_not_spoken": Event(
        "warning",
        "The environment asks for another protocol than OTLP over HTTP: no traces are recorded.",
        "Set `OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf`, and the collector's port for it, mostly 4318.",
    ),
    "telemetry.not_exported": Event(
        "warning",
        "The collector takes no spans. They are lost while it does not, and nothing else is.",
        "Look whether a collector answers at `OTEL_EXPORTER_OTLP_ENDPOINT`.",
    ),
    "telemetry.exports_again": Event("info", "The collector takes spans again; `lost` did not get there."),
    "telemetry.spans_lost": Event(
        "warning", "This process ends, and `lost` of its spans did not get to the collector."
    ),
    # The gateway
    "gateway.started": Event("info", "It listens at `address`."),
    "gateway.draining": Event(
        "info", "It stops: it takes nothing new and finishes the requests that have begun."
    ),
    "gateway.stopped": Event("info", "It stopped in order."),
    "gateway.read": Event(
        "info",
        "Somebody read of conversations: `token`, `context_id`, `path`, the `part` that was asked for, the `version` "
        "that was answered, `trace_id`.",
    ),
    "gateway.tokens_unreadable": Event(
        "warning",
        "The file of the tokens cannot be read, so no token is good.",
        "Mend the file that `reason` names; it is read again when it changes.",
    ),
    "gateway.database_away": Event(
        "warning",
        "`requests` were answered by `database-away` since this was logged last; at most every 5 s.",
        _WAIT,
    ),
    "gateway.log_away": Event(
        "warning",
        "`requests` were answered by `log-away` since this was logged last; at most every 5 s.",
        _WAIT,
    ),
    "gateway.not_interrupted": Event(
        "warning",
        "A client of a compatible API is gone, and the log does not take the interruption of its answer.",
        _WAIT,
    ),
    "gateway.not_listening": Event(
        "warning",
        "Projectors' notifications are not received; streams look by themselves each second.",
        _WAIT,
    ),
    "gateway.streams_retrying": Event(
        "warning", "The database gives streams nothing for now; they go on once it does.", _WAIT
    ),
    "gateway.unknown_interrupt": Event(
        "warning",
        "A front end answered an interrupt that its conversation does not have, or no longer; the run went on without.",
        "Nothing; if it happens often, look at what the front end sends.",
    ),
    "gateway.request_failed": Event("error", "A request was answered by `internal-error`.", "Report it."),
}
