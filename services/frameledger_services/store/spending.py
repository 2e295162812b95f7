"""The usage of runs: rounds and runs of one conversation, tokens and cost of one and of all, by the log's time.

Each statement reads a range of an index: the latest runs of a conversation, those of its day, or those of some hours.
None becomes slower with the length of a conversation, or with the number of conversations.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

from frameledger.values import value
from frameledger_services.database_types import Connection

RESULTS = ("FunctionCallResultFrame", "FunctionCallCancelFrame", "BotStoppedSpeakingFrame")
"""Frames that request a run and are not input: the outcome of a call, at once or when the bot stopped speaking."""


@value
class Spent:
    """The usage of runs. Open runs, and runs whose provider reported no usage, count as 0."""

    tokens: int
    """Read and written."""

    cost: Decimal
    """By the table `prices`; usage without a price costs nothing here."""


@value
class Place:
    """When a run was requested, and by which frame: its time on the log, and the start for counting its limits."""

    requested_version: int
    requested_at: datetime
    trigger: str

    @property
    def is_of_a_result(self) -> bool:
        return self.trigger in RESULTS


async def place(connection: Connection, context_id: str, run_id: str) -> Place | None:
    """Returns when a run was requested; None if the run no longer exists."""
    cursor = await connection.execute(
        "SELECT requested_version, requested_at, trigger FROM runs WHERE context_id = %s AND run_id = %s",
        (context_id, run_id),
    )
    row = await cursor.fetchone()
    return None if row is None else Place(*row)


async def rounds(connection: Connection, context_id: str, upto: int, most: int) -> int:
    """Returns the number of consecutive runs that were requested by results, up to the one at the version `upto`; at
    most `most`."""
    cursor = await connection.execute(
        ROUNDS, {"id": context_id, "upto": upto, "most": most, "results": list(RESULTS)}
    )
    row = await cursor.fetchone()
    return 0 if row is None else int(row[0])


async def runs_in_minute(connection: Connection, context_id: str, upto: datetime, most: int) -> int:
    """Returns the number of runs that were requested in the minute before `upto`, including one at that time; at most
    `most`. Dropped runs do not count."""
    cursor = await connection.execute(RUNS_IN_MINUTE, {"id": context_id, "upto": upto, "most": most})
    row = await cursor.fetchone()
    return 0 if row is None else int(row[0])


async def of_conversation(connection: Connection, context_id: str, first: datetime, upto: datetime) -> Spent:
    """Returns the usage of a conversation's runs that were requested from `first` to `upto`."""
    cursor = await connection.execute(OF_CONVERSATION, {"id": context_id, "first": first, "upto": upto})
    return _spent(await cursor.fetchone())


async def of_all(connection: Connection, first: datetime, before: datetime, *, priced: bool = True) -> Spent:
    """Returns the usage of all runs that were requested from `first` on and before `before`. Runs that `replay`
    republished do not count, because the original used the tokens. Without `priced` the cost is 0: finding the price of
    each run takes several times as long as reading the run."""
    cursor = await connection.execute(OF_ALL, {"first": first, "before": before, "priced": priced})
    return _spent(await cursor.fetchone())


def _spent(row: tuple[Any, ...] | None) -> Spent:
    tokens, cost = row or (0, 0)
    return Spent(int(tokens), Decimal(cost))


# The first run that was not requested by a result ends the count.
ROUNDS = """
    WITH latest AS (
        SELECT trigger, row_number() OVER (ORDER BY requested_version DESC) AS place
        FROM (
            SELECT trigger, requested_version
            FROM runs
            WHERE context_id = %(id)s AND requested_version <= %(upto)s AND status <> 'dropped'
            ORDER BY requested_version DESC
            LIMIT %(most)s
        ) AS newest
    )
    SELECT coalesce(min(place) FILTER (WHERE NOT trigger = ANY(%(results)s)) - 1, count(*)) FROM latest
"""

# Times lead to a version, and the version to the runs since then: times of one conversation are in the order of its
# versions.
RUNS_IN_MINUTE = """
    SELECT count(*)
    FROM (
        SELECT 1
        FROM runs
        WHERE context_id = %(id)s AND requested_at > %(upto)s - interval '1 minute' AND requested_at <= %(upto)s
            AND requested_version > coalesce(version_at(%(id)s, %(upto)s - interval '1 minute'), 0)
            AND status <> 'dropped' AND is_copy IS NOT TRUE
        LIMIT %(most)s
    ) AS found
"""

# The sum of the tokens of a row of an earlier release may not fit into a bigint.
_TOKENS = "coalesce(sum(coalesce(input_tokens, 0)::numeric + coalesce(output_tokens, 0)), 0)"

OF_CONVERSATION = f"""
    SELECT {_TOKENS}, coalesce(sum(cost), 0)
    FROM facts_runs
    WHERE context_id = %(id)s AND NOT is_copy AND requested_at >= %(first)s AND requested_at <= %(upto)s
        AND requested_version > coalesce(version_at(%(id)s, %(first)s - interval '1 microsecond'), 0)
"""

OF_ALL = f"""
    SELECT {_TOKENS}, coalesce(sum(cost) FILTER (WHERE %(priced)s), 0)
    FROM facts_runs
    WHERE requested_at >= %(first)s AND requested_at < %(before)s AND NOT is_copy
"""
