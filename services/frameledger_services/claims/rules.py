"""The conditions that the statements share, as SQL: who is alive, what is still open, who serves what.

In all of them `me` is the row of the worker that asks, and it has one only while it is alive.
"""

from __future__ import annotations

from typing import Any

from frameledger_services.claims.values import ClaimedCall, WorkerDeadError

DIED_LATELY = "5 minutes"
"""A worker of which nothing was heard for longer, and that had not left, is not going to be started again soon."""


def alive(worker: str) -> str:
    """Whether a row of `workers` is a live one. It is judged by its own lease."""
    return (
        f"({worker}.stopped_at IS NULL"
        f" AND {worker}.heartbeat_at > clock_timestamp() - {worker}.lease_secs * interval '1 second')"
    )


ME = f"me AS (SELECT * FROM workers WHERE workers.worker_id = %(worker_id)s AND {alive('workers')})"

# A lone surrogate or NUL, which Postgres reads in no JSON, may stand anywhere in a context's settings.
_READABLE = r"(?<!\\)((?:\\\\)*)\\u(0000|[dD][89a-fA-F][0-9a-fA-F]{2})"

MODEL = rf"""
    regexp_replace(
        setting_at(claimable.context_id, 'settings', claimable.version)::text, '{_READABLE}', '\1?', 'g'
    )::json ->> 'model'
"""
"""The model that the settings of a run name, null if they name none."""

FUNCTION = f"""
    CASE WHEN tool_calls.builtin AND NOT EXISTS (
        SELECT FROM workers AS own
        WHERE own.stopped_at IS NULL AND own.kind = 'functions' AND {alive("own")}
            AND tool_calls.function_name = ANY (own.serves)
    ) THEN regexp_replace(tool_calls.function_name, '^cancel_', '') ELSE tool_calls.function_name END
"""
"""The function that a call needs: whoever serves `<name>` serves `cancel_<name>`, the built-in one, unless an
application has its own of that name."""


def served(name: str) -> str:
    """Whether `me` serves a function or model: it lists it, or it takes what no live worker of its kind lists."""
    return f"""
        ({name} IS NULL OR {name} = ANY (me.serves) OR me.serves_all AND NOT EXISTS (
            SELECT FROM workers AS lister
            WHERE lister.stopped_at IS NULL AND {alive("lister")} AND lister.kind = me.kind
                AND {name} = ANY (lister.serves)
        ))
    """


def started_by_another(work: str, claim: str) -> str:
    """Whether the latest start of a run or call, as it is folded, is of the claim's attempt or a later one, and was
    made under another claim: nothing that is said under this one counts any more."""
    return f"({work}.attempt >= {claim}.attempt AND {work}.claim <> {claim}.token) IS TRUE"


def claimable_run(run: str, had: str) -> str:
    """Whether nobody has had the open run, or who had it has nothing to show for it: the claim was finished a while
    ago, and another one's start is what counts. `had` is the row of `claims`, of an outer join."""
    return _claimable(had, started_by_another(run, had))


def claimable_call(call: str, had: str) -> str:
    """The same of a call that is dispatched or runs: whoever settles what an earlier attempt started has no start of
    its own, so it runs a while later only if that settlement did not count."""
    return _claimable(had, f"({call}.claim <> {had}.token) IS TRUE")


def _claimable(had: str, came_to_nothing: str) -> str:
    return f"""
        ({had}.effect_id IS NULL OR {came_to_nothing}
            AND {had}.finished_at < clock_timestamp() - me.lease_secs * interval '1 second')
    """


def served_call(name: str) -> str:
    """Whether `me` takes a call of this function: it serves it, or nobody would ever do.

    A name that no worker lists and no catch-all takes, and that the tools of the context do not have, is one that the
    model made up: whoever sees it tells the model so. One that the tools do have may yet be served, by a service that
    is being started again, and so may one of a worker that died a moment ago. Tools have many forms; that one has a
    name shows in its text.
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
                    AND known.heartbeat_at > clock_timestamp() - interval '{DIED_LATELY}'
                    AND (known.serves_all OR {name} = ANY (known.serves))
            ) THEN false
            ELSE position(
                to_json({name})::text
                IN coalesce(setting_at(claimable.context_id, 'tools', claimable.requested_version)::text, '')
            ) = 0
        END
    """


def _lives(held: str) -> str:
    # Usually no partition is held, and then no conversation is asked for its own.
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


LIVES = _lives("effects_held_until IS NOT NULL")
"""A join of the context, if it is neither parked nor a recording: nobody works for these. Nor does anybody for one
whose partition is being read up to the end that its log had: what looks open may be over a few records further on. When
it has caught up, the projector asks for what is open."""

LIVES_BY_THE_TABLES = _lives(
    """(effects_held_until IS NOT NULL OR owner_pid IS NOT NULL AND NOT EXISTS (
        SELECT FROM pg_stat_get_activity(owner_pid) AS session
        -- Of other users' sessions one sees that they are there, and not since when.
        WHERE coalesce(session.backend_start = owner_started_at, true)
    ))"""
)
"""The same for work of which only the tables say that it is open. While the session of its partition's owner is gone,
these may be older than the log: a dump of last night, or a standby that was promoted. The next owner holds the
partition until it has looked."""

OPEN_RUN = """
    JOIN runs ON runs.context_id = claimable.context_id AND runs.run_id = claimable.run_id
        AND runs.opened_version = claimable.version AND runs.status = 'open'
"""


def open_call(*statuses: str) -> str:
    """A join of the call, if it is in one of these states."""
    return f"""
        JOIN tool_calls ON tool_calls.context_id = claimable.context_id
            AND tool_calls.requested_version = claimable.requested_version
            AND tool_calls.ordinal = claimable.ordinal
            AND tool_calls.tool_call_id = claimable.tool_call_id
            AND tool_calls.status IN ({", ".join(f"'{status}'" for status in statuses)})
    """


HOLDER = """
    LEFT JOIN claims AS claim
        ON claim.context_id = call.context_id AND claim.version = call.dispatched_version
            AND claim.tool_call_id = call.tool_call_id
    LEFT JOIN workers AS holder ON holder.worker_id = claim.worker_id AND claim.finished_at IS NULL
        AND claim.released_at IS NULL
"""
"""An outer join of who has the call `call` now."""

NOBODY_HAS_IT = f"{alive('holder')} IS NOT TRUE"
"""Of a call with its `HOLDER`: no living worker has it."""

NOT_BEGUN_LATELY = """
    (tool_calls.status = 'dispatched' OR tool_calls.attempt > 0
        AND tool_calls.started_at < clock_timestamp() - me.lease_secs * interval '1 second')
"""
"""Whether a call may be taken that nobody has a claim of. One that a worker started, as its attempt says, had a claim
that was lost: whoever made it is told so within a lease, and may still end it by then."""

CALL_COLUMNS = """
    tool_calls.function_name, tool_calls.arguments, tool_calls.group_id, tool_calls.run_id,
    extract(epoch FROM clock_timestamp() - coalesce(tool_calls.dispatched_at, tool_calls.requested_at))::float8
        AS age_secs,
    tool_calls.status, tool_calls.safe_to_retry, tool_calls.interrupted_version IS NOT NULL AS interrupted,
    tool_calls.builtin
"""
"""What a `ClaimedCall` has from the ledger, in the order of its fields."""


def dead(worker_id: str) -> WorkerDeadError:
    """To be raised when a statement found no `me`."""
    return WorkerDeadError(
        f"The worker {worker_id} is dead by the database's clock: its row is gone, it has left, or its last heartbeat "
        "is older than its lease. It has to begin again as another worker."
    )


def claimed_call(
    key: tuple[object, ...], attempt: int, token: str, ledger: tuple[object, ...]
) -> ClaimedCall:
    """From effect_id, context_id, version, requested_version, ordinal, tool_call_id; the claim; `CALL_COLUMNS`."""
    function_name, arguments, group_id, run_id, *rest = ledger
    row: Any = (*key, function_name, arguments, group_id, run_id, attempt, *rest, token)
    return ClaimedCall(*row)
