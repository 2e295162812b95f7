"""SQL conditions that the statements share: which workers are alive, what is open, and which worker serves it.

In all of them `me` is the row of the worker that executes the statement, which exists only while the worker is alive.
"""

from __future__ import annotations

from dataclasses import fields

from frameledger_services.cancel_tools import PREFIX
from frameledger_services.claims.values import CallColumns, WorkerDeadError
from frameledger_services.store.server import THIS_DATABASE

RECENTLY = "5 minutes"
"""A worker that died longer ago than this, without deregistering, is not expected to restart."""


HIGHEST_ATTEMPT = 2**31 - 1
"""The highest attempt that a frame can name and a column can hold."""


def alive(worker: str) -> str:
    """Returns the condition that a row of `workers` is a live worker, by its own lease."""
    return (
        f"({worker}.stopped_at IS NULL"
        f" AND {worker}.heartbeat_at > clock_timestamp() - {worker}.lease_secs * interval '1 second')"
    )


ME = f"me AS (SELECT * FROM workers WHERE workers.worker_id = %(worker_id)s AND {alive('workers')})"

# A context's settings may contain escapes of NUL and of lone surrogates, with which `->>` fails.
_UNREADABLE_ESCAPE = r"(?<!\\)((?:\\\\)*)\\u(0000|[dD][89a-fA-F][0-9a-fA-F]{2})"

MODEL = rf"""
    regexp_replace(
        setting_at(claimable.context_id, 'settings', claimable.version)::text, '{_UNREADABLE_ESCAPE}', '\1?', 'g'
    )::json ->> 'model'
"""
"""The model that the settings of a run name, NULL if they name none."""

FUNCTION = f"""
    CASE WHEN tool_calls.builtin AND NOT EXISTS (
        SELECT FROM workers AS own
        WHERE own.stopped_at IS NULL AND own.kind = 'functions' AND {alive("own")}
            AND tool_calls.function_name = ANY (own.serves)
    ) THEN regexp_replace(tool_calls.function_name, '^{PREFIX}', '') ELSE tool_calls.function_name END
"""
"""The function that a call needs: the workers of `<name>` serve the built-in `cancel_<name>`, unless an application
itself has a function of that name."""


def served(name: str) -> str:
    """Returns the condition that `me` serves a function or model: it lists it, or it is a catch-all and no live worker
    lists it."""
    return f"""
        ({name} IS NULL OR {name} = ANY (me.serves) OR me.serves_all AND NOT EXISTS (
            SELECT FROM workers AS lister
            WHERE lister.stopped_at IS NULL AND {alive("lister")} AND lister.kind = me.kind
                AND {name} = ANY (lister.serves)
        ))
    """


def attempt_after(*attempts: str) -> str:
    """Returns the expression for the attempt above the highest of these; NULLs do not count.

    Any client may name the highest number that a frame can have: that number is assigned again, under another claim. An
    overflow would fail the statement, for all work in it and all workers.
    """
    return f"least(greatest({', '.join(attempts)}), {HIGHEST_ATTEMPT - 1}) + 1"


def started_by_another(work: str, claim: str) -> str:
    """Returns the condition that the latest folded start of a run or call has the claim's attempt or a later one, and
    was made under another claim. Then no frame under this claim counts any more."""
    return f"({work}.attempt >= {claim}.attempt AND {work}.claim <> {claim}.token) IS TRUE"


def claimable_run(run: str, had: str) -> str:
    """Returns the condition that an open run has no claim, or a claim without effect: it was finished a while ago, and
    another claim's start counts. `had` is the row of `claims`, from an outer join."""
    return _claimable(had, started_by_another(run, had))


def claimable_call(call: str, had: str) -> str:
    """Returns the same condition for a call that is dispatched or running, whatever the attempt of its start: a worker
    that only settles what an earlier attempt started publishes no start. If the call is still open a lease after that
    claim was finished, the settlement did not count."""
    return _claimable(had, f"({call}.claim <> {had}.token) IS TRUE")


def _claimable(had: str, had_no_effect: str) -> str:
    return f"""
        ({had}.effect_id IS NULL OR {had_no_effect}
            AND {had}.finished_at < clock_timestamp() - me.lease_secs * interval '1 second')
    """


def served_call(name: str) -> str:
    """Returns the condition that `me` accepts a call of this function: it serves it, or no worker ever will.

    A name that no worker lists, no catch-all takes and the context's tools do not have was invented by the model: the
    first worker that reads the call reports that to the model. A name that the tools do have may still be served, by a
    service that is restarting; the same holds for a name of a worker that died recently. Tools have many forms, so the
    name is searched for in their text.
    """
    return f"""
        CASE
            WHEN {name} = ANY (me.serves) THEN true
            WHEN EXISTS (
                SELECT FROM workers AS lister
                WHERE lister.stopped_at IS NULL AND {alive("lister")} AND lister.kind = me.kind
                    AND {name} = ANY (lister.serves)
            ) THEN false
            WHEN me.serves_all THEN true
            WHEN EXISTS (
                SELECT FROM workers AS known
                WHERE known.stopped_at IS NULL AND known.kind = me.kind
                    AND known.heartbeat_at > clock_timestamp() - interval '{RECENTLY}'
                    AND (known.serves_all OR {name} = ANY (known.serves))
            ) THEN false
            ELSE position(
                to_json({name})::text
                IN coalesce(setting_at(claimable.context_id, 'tools', claimable.requested_version)::text, '')
            ) = 0
        END
    """


def _active_context(held: str) -> str:
    # Usually no partition is held; then the contexts' partitions are not computed.
    held_partitions = f"SELECT partition FROM projections WHERE sealed_at IS NULL AND {held}"
    return f"""
        JOIN contexts ON contexts.context_id = claimable.context_id AND contexts.parked_version IS NULL
            AND NOT contexts.recording AND NOT (
                EXISTS ({held_partitions})
                AND (
                    SELECT newest.partition FROM frames AS newest
                    WHERE newest.context_id = contexts.context_id AND newest.version = contexts.version
                ) = ANY (ARRAY({held_partitions}))
            )
    """


ACTIVE_CONTEXT = _active_context("effects_held_until IS NOT NULL")
"""Joins the context if work on it is allowed: not for a parked one or a recording, nor for one whose partition is still
catching up with its log, because what looks open may have ended a few records later. Once it has caught up, the
projector requests what is open."""

ACTIVE_OWNED_CONTEXT = _active_context(
    f"""(effects_held_until IS NOT NULL OR owner_pid IS NOT NULL AND NOT EXISTS (
        SELECT FROM pg_stat_get_activity(owner_pid) AS session
        -- The start of another user's session is not visible.
        WHERE coalesce(session.backend_start = owner_started_at, true) AND session.datid = {THIS_DATABASE}
    ))"""
)
"""The same for work that is open according to the tables only. While the session of its partition's owner is gone, the
tables may be older than the log: last night's dump, or a promoted standby. The next owner holds the partition until it
has checked."""

OPEN_RUN = """
    JOIN runs ON runs.context_id = claimable.context_id AND runs.run_id = claimable.run_id
        AND runs.opened_version = claimable.version AND runs.status = 'open'
"""


def open_call(*statuses: str) -> str:
    """Returns a join of the call if it has one of these statuses."""
    return f"""
        JOIN tool_calls ON tool_calls.context_id = claimable.context_id
            AND tool_calls.requested_version = claimable.requested_version
            AND tool_calls.ordinal = claimable.ordinal
            AND tool_calls.tool_call_id = claimable.tool_call_id
            AND tool_calls.status IN ({", ".join(f"'{status}'" for status in statuses)})
    """


HOLDER_OF_CLAIM = """
    LEFT JOIN workers AS holder ON holder.worker_id = claim.worker_id AND claim.finished_at IS NULL
        AND claim.released_at IS NULL
"""
"""An outer join of the worker that holds `claim` now."""

HOLDER = f"""
    LEFT JOIN claims AS claim
        ON claim.context_id = call.context_id AND claim.version = call.dispatched_version
            AND claim.tool_call_id = call.tool_call_id
    {HOLDER_OF_CLAIM}
"""
"""An outer join of the worker that holds `call` now."""

NOT_HELD = f"{alive('holder')} IS NOT TRUE"
"""With a `HOLDER`: no live worker holds it."""

STARTED_WITHOUT_CLAIM = "call.attempt = 0"
"""The condition that a started call was started by the program that announced it."""

STARTER = """
    LEFT JOIN workers AS starter ON starter.worker_id = call.worker COLLATE "C"
"""
"""An outer join of the worker that started `call`, if the tables know it."""

HAS_NO_WORKER = f"""
    CASE WHEN {STARTED_WITHOUT_CLAIM} THEN starter.worker_id IS NOT NULL AND {alive("starter")} IS NOT TRUE
        ELSE {NOT_HELD} END
"""
"""With a `HOLDER` and a `STARTER`: whether the worker of a started call is dead. This is the holder of its claim, or
its starter if it was started without one and so is never taken over. A starter that is not in the tables does not count
as dead."""

NOT_STARTED_RECENTLY = """
    (tool_calls.status = 'dispatched' OR tool_calls.attempt > 0
        AND tool_calls.started_at < clock_timestamp() - me.lease_secs * interval '1 second')
"""
"""Whether a call without a claim may be claimed. If a worker started it, as its attempt shows, the claim was lost: that
worker learns of it within a lease, and may still end the call until then."""


def frame_id_at(version: str, of: str) -> str:
    """Returns the expression for the id of the frame at a version of this row's context; NULL for no version."""
    return f"(SELECT frame_id FROM frames WHERE frames.context_id = {of}.context_id AND frames.version = {version})"


def trace_id_at(version: str, of: str) -> str:
    """Returns the expression for the trace id of that frame; NULL if it belongs to no trace."""
    return f"(SELECT trace_id FROM frames WHERE frames.context_id = {of}.context_id AND frames.version = {version})"


RUN_COLUMNS = """
    runs.trigger, extract(epoch FROM clock_timestamp() - runs.opened_at)::float8 AS age_secs
"""
"""The columns of `runs` in a `ClaimedRun`."""

CALL_COLUMNS = f"""
    tool_calls.function_name, tool_calls.arguments, tool_calls.group_id, tool_calls.run_id,
    extract(epoch FROM clock_timestamp() - coalesce(tool_calls.dispatched_at, tool_calls.requested_at))::float8
        AS age_secs,
    tool_calls.status, tool_calls.safe_to_retry, tool_calls.interrupted_version IS NOT NULL AS interrupted,
    tool_calls.builtin, {frame_id_at("tool_calls.started_version", of="tool_calls")} AS started_by
"""
"""The columns of `tool_calls` in a `ClaimedCall`: its `CallColumns`."""


def call_columns_of(row: str) -> str:
    """Returns the columns of this row that were selected as `CALL_COLUMNS`."""
    return ", ".join(f"{row}.{column.name}" for column in fields(CallColumns))


def dead(worker_id: str) -> WorkerDeadError:
    """Returns the error to raise when a statement found no `me`."""
    return WorkerDeadError(
        f"The worker {worker_id} is dead by the database's clock: its row is gone, it has stopped, or its last "
        "heartbeat is older than its lease. It has to register again as another worker."
    )
