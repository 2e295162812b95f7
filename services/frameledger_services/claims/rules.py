"""The conditions that the statements share, as SQL: who is alive, what is still open, who serves what.

In all of them `me` is the row of the worker that asks, and it has one only while it is alive.
"""

from __future__ import annotations

from typing import Any

from frameledger_services.claims.values import ClaimedCall, WorkerDeadError


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

FUNCTION = r"""
    CASE WHEN tool_calls.builtin THEN regexp_replace(tool_calls.function_name, '^cancel_', '')
    ELSE tool_calls.function_name END
"""
"""The function that a call needs: whoever serves `<name>` serves `cancel_<name>`, the built-in one."""


def served(name: str) -> str:
    """Whether `me` serves a function or model: it lists it, or it takes what no live worker of its kind lists."""
    return f"""
        ({name} IS NULL OR {name} = ANY (me.serves) OR me.serves_all AND NOT EXISTS (
            SELECT FROM workers AS lister
            WHERE lister.stopped_at IS NULL AND {alive("lister")} AND lister.kind = me.kind
                AND {name} = ANY (lister.serves)
        ))
    """


LIVES = """
    JOIN contexts ON contexts.context_id = claimable.context_id AND contexts.parked_version IS NULL
        AND NOT contexts.recording
"""
"""A join of the context, if it is neither parked nor a recording: nobody works for these."""

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


CALL_COLUMNS = """
    tool_calls.function_name, tool_calls.arguments, tool_calls.group_id, tool_calls.run_id,
    extract(epoch FROM clock_timestamp() - tool_calls.requested_at)::float8 AS age_secs,
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


def claimed_call(key: tuple[object, ...], attempt: int, ledger: tuple[object, ...]) -> ClaimedCall:
    """From effect_id, context_id, version, requested_version, ordinal, tool_call_id; the attempt; `CALL_COLUMNS`."""
    function_name, arguments, group_id, run_id, *rest = ledger
    row: Any = (*key, function_name, arguments, group_id, run_id, attempt, *rest)
    return ClaimedCall(*row)
