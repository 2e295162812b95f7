"""One look: every rule that is not switched off is asked, and what is overdue becomes frames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from frameledger_services import claims
from frameledger_services.claims import overdue_calls, overdue_runs, timekeeper_claims
from frameledger_services.claims.values import Connection
from frameledger_services.store import overdue
from frameledger_services.timekeeper import settling
from frameledger_services.timekeeper.limits import Limits
from frameledger_services.timekeeper.settling import Settlement

ROUNDS = 20
"""How often one tidying forgets: short enough that the heartbeat behind it is not late."""


@dataclass(frozen=True, slots=True)
class Sweeper:
    """Who looks: a worker, of the kind `timekeeper`. `may_judge`: it has been connected for long enough to say that
    another worker is gone."""

    worker_id: str
    service: str
    may_judge: bool


async def look(
    connection: Connection, limits: Limits, looker: Sweeper, current: Sequence[int]
) -> list[Settlement]:
    """What is to be published now, in the contexts of the partitions that are projected up to a moment ago.

    Claims the calls that nobody starts. Called again before the frames are folded it gives some of them again, which
    does no harm: a repetition counts once.
    """
    found: list[Settlement] = []
    if limits.run_silent is not None:
        found += map(settling.run_silent, await overdue_runs.silent(connection, limits.run_silent, current))
    if limits.call is not None:
        late = await overdue_calls.past_deadline(connection, limits.call, limits.call_grace, current)
        found += map(settling.call_overdue, late)
    if limits.waiting_calls:
        waiting = await overdue_calls.waiting(connection, limits.call_grace, current)
        found += map(settling.waiting_overdue, waiting)
    if limits.user_silent is not None or limits.final_words is not None:
        turns = await overdue.turns(connection, limits.user_silent, limits.final_words, current)
        found += map(settling.turn_overdue, turns)
    if limits.bot_silent is not None:
        found += map(settling.bot_overdue, await overdue.speeches(connection, limits.bot_silent, current))
    if looker.may_judge:
        found += await _judge(connection, limits, looker, current)
    await timekeeper_claims.finish_settled(connection, looker.worker_id)
    calls = await timekeeper_claims.held(connection, looker.worker_id, current)
    found += [settling.held_call(call, looker.worker_id) for call in calls]
    return found


async def tidy(connection: Connection, limits: Limits, worker_id: str, *, at_once: int = 10_000) -> None:
    """Forget old claims and workers, and finish the claims that dead workers left on what is over.

    `at_once` claims are forgotten by a statement, and `ROUNDS` times as many by a call.
    """
    for_ever = 100_000.0
    for _ in range(ROUNDS):
        forgotten = await claims.purge(
            connection,
            claims_days=limits.keep_claims_days or for_ever,
            workers_days=limits.keep_workers_days or for_ever,
            limit=at_once,
        )
        if forgotten < at_once:
            break
    await claims.reap_workers(connection)
    await claims.finish_over(connection, worker_id)


async def _judge(
    connection: Connection, limits: Limits, looker: Sweeper, current: Sequence[int]
) -> list[Settlement]:
    """The rules that say of a worker that it is gone."""
    found: list[Settlement] = []
    if limits.run_unclaimed is not None:
        runs = await overdue_runs.unclaimed(connection, limits.run_unclaimed, current)
        found += map(settling.run_unclaimed, runs)
    if limits.interrupted_call is not None:
        calls = await overdue_calls.abandoned(connection, limits.interrupted_call, current)
        found += map(settling.call_abandoned, calls)
    if limits.lost_call is not None:
        lost = await overdue_calls.lost(connection, limits.lost_call, current)
        found += map(settling.call_lost, lost)
    if limits.call_unserved is not None or limits.call_unstarted is not None:
        nobody_starts = await timekeeper_claims.unstarted(
            connection, limits.call_unserved, limits.call_unstarted, current
        )
        if nobody_starts:
            await timekeeper_claims.claim(connection, looker.worker_id, looker.service, nobody_starts)
    return found
