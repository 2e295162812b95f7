"""Counts of open work: in the outbox, for a worker, for a person."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from frameledger_services.database_types import Connection
from frameledger_services.store.client_calls import WAITS_FOR_PERSON

MAX_COUNTED = 100_000
"""Outbox rows beyond this number are not counted: after a long outage of a broker there may be millions."""


@dataclass(frozen=True, slots=True)
class WorkToDo:
    """The result of one count."""

    contexts_parked: int
    calls_waiting: int
    """Calls that wait for a person. Those that wait for their client are not people's work."""

    calls_ambiguous: int
    runs_open: int
    outbox_rows: Mapping[str, int]
    """By kind."""

    outbox_oldest_seconds: float

    @property
    def outbox(self) -> int:
        """Outbox rows of all kinds, up to `MAX_COUNTED`."""
        return sum(self.outbox_rows.values())


async def count(connection: Connection) -> WorkToDo:
    """Returns the open work. Reads partial indexes, which contain only that, and the first rows of the outbox."""
    cursor = await connection.execute(
        f"""
        SELECT
            (SELECT count(*) FROM contexts WHERE parked_version IS NOT NULL),
            (SELECT count(*) FROM tool_calls WHERE {WAITS_FOR_PERSON}),
            (SELECT count(*) FROM tool_calls WHERE status = 'ambiguous' AND resolved_version IS NULL),
            (SELECT count(*) FROM runs WHERE status = 'open'),
            (
                SELECT jsonb_build_object(
                    'effect', count(*) FILTER (WHERE kind = 'effect'),
                    'dead_letter', count(*) FILTER (WHERE kind = 'dead_letter'),
                    'forward', count(*) FILTER (WHERE kind = 'forward'),
                    'oldest', greatest(0, extract(epoch FROM clock_timestamp() - min(recorded_at)))
                )
                FROM (SELECT kind, recorded_at FROM outbox LIMIT %s) AS first_rows
            )
        """,
        (MAX_COUNTED,),
    )
    row = await cursor.fetchone()
    assert row is not None
    parked, waiting, ambiguous, open_runs, outbox = row
    oldest = outbox.pop("oldest")
    return WorkToDo(parked, waiting, ambiguous, open_runs, outbox, float(oldest or 0.0))
