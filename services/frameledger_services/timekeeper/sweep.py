"""One sweep: every rule that is enabled is applied, and what is overdue becomes frames."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from frameledger_services import claims, logs, transient
from frameledger_services.claims import overdue_calls, overdue_runs, timekeeper_claims
from frameledger_services.database_types import Connection
from frameledger_services.store import overdue
from frameledger_services.timekeeper import settling
from frameledger_services.timekeeper.limits import TimeLimits
from frameledger_services.timekeeper.settling import Settlement

ROUNDS = 20
"""Maximum number of statements of one purge, few enough that the next heartbeat is not late."""

T = TypeVar("T")

_log = logs.get_logger("timekeeper")


@dataclass(frozen=True, slots=True)
class Sweeper:
    """The worker that sweeps, of the kind `timekeeper`. `may_judge`: it has been connected for long enough to declare
    other workers dead."""

    worker_id: str
    service: str
    may_judge: bool


async def sweep(
    connection: Connection, limits: TimeLimits, sweeper: Sweeper, current: Sequence[int]
) -> list[Settlement]:
    """Returns the frames to publish now in the contexts of partitions whose projection recently reached the end of the
    log, and claims the calls that no worker starts.

    Called again before the frames are folded, it returns some of them again; these repetitions count once.
    """
    settlements: list[Settlement] = []
    if limits.run_silent is not None:
        settlements += map(
            settling.run_silent,
            await _unless_late(overdue_runs.silent(connection, limits.run_silent, current)),
        )
    if limits.call is not None:
        late = await _unless_late(
            overdue_calls.past_deadline(connection, limits.call, limits.call_grace, current)
        )
        settlements += map(settling.call_overdue, late)
    if limits.waiting_calls:
        waiting = await _unless_late(overdue_calls.waiting(connection, limits.call_grace, current))
        settlements += map(settling.waiting_overdue, waiting)
    if limits.client_call is not None:
        left = await _unless_late(overdue_calls.left_by_clients(connection, limits.client_call, current))
        settlements += map(settling.call_left, left)
    if limits.user_silent is not None or limits.final_words is not None:
        turns = await _unless_late(overdue.turns(connection, limits.user_silent, limits.final_words, current))
        settlements += map(settling.turn_overdue, turns)
    if limits.bot_silent is not None:
        settlements += map(
            settling.bot_overdue, await _unless_late(overdue.speeches(connection, limits.bot_silent, current))
        )
    if sweeper.may_judge:
        settlements += await _judge(connection, limits, sweeper, current)
    with _logged_if_late():
        await timekeeper_claims.finish_settled(connection, sweeper.worker_id)
    calls = await _unless_late(timekeeper_claims.held(connection, sweeper.worker_id, current))
    settlements += [settling.held_call(call, sweeper.worker_id) for call in calls]
    return settlements


async def purge(connection: Connection, limits: TimeLimits, worker_id: str, *, batch: int = 2_000) -> None:
    """Delete old claims and workers, and finish dead workers' claims whose work has ended.

    A statement deletes at most `batch` claims, and a call `ROUNDS` times as many. A statement that takes too long, or
    waits for another session's transaction, is logged and left to the next purge: settling overdue work does not wait
    for it.
    """
    never = 100_000.0
    try:
        for _ in range(ROUNDS):
            deleted = await claims.purge(
                connection,
                claims_days=limits.keep_claims_days or never,
                workers_days=limits.keep_workers_days or never,
                limit=batch,
            )
            if deleted < batch:
                break
        await claims.reap_workers(connection)
        await claims.finish_over(connection, worker_id)
    except transient.LIMITED as error:
        _log.warning("timekeeper.not_purged", reason=transient.reason(error))


async def _judge(
    connection: Connection, limits: TimeLimits, sweeper: Sweeper, current: Sequence[int]
) -> list[Settlement]:
    """Apply the rules that need to know which workers are alive."""
    settlements: list[Settlement] = []
    if limits.run_unclaimed is not None:
        runs = await _unless_late(overdue_runs.unclaimed(connection, limits.run_unclaimed, current))
        settlements += map(settling.run_unclaimed, runs)
    if limits.interrupted_call is not None:
        calls = await _unless_late(overdue_calls.abandoned(connection, limits.interrupted_call, current))
        settlements += map(settling.call_abandoned, calls)
    if limits.lost_call is not None:
        lost = await _unless_late(overdue_calls.lost(connection, limits.lost_call, current))
        lost += await _unless_late(overdue_calls.queued_at_lost(connection, limits.lost_call, current))
        settlements += map(settling.call_lost, lost)
    if limits.call_unserved is not None or limits.call_unstarted is not None:
        unstarted = await _unless_late(
            timekeeper_claims.unstarted(connection, limits.call_unserved, limits.call_unstarted, current)
        )
        if unstarted:
            with _logged_if_late():
                await timekeeper_claims.claim(connection, sweeper.worker_id, sweeper.service, unstarted)
    return settlements


async def _unless_late(found: Awaitable[list[T]]) -> list[T]:
    """Returns what a rule finds, or nothing if its statement takes too long: the other rules do not wait for it."""
    with _logged_if_late():
        return await found
    return []


@contextmanager
def _logged_if_late() -> Iterator[None]:
    """Log a statement that takes too long, or waits for a transaction that another session left open."""
    try:
        yield
    except transient.LIMITED as error:
        _log.warning("timekeeper.rule_timed_out", reason=transient.reason(error))
