"""The memory of one worker with many slow calls at once, in megabytes. All calls must be settled.

Two figures, each of the highest resident memory of the worker: with all calls, compared with a tenth of them; and with
a second crowd of calls, compared with the first, which shows whether memory is kept.
"""

from __future__ import annotations

import asyncio

import psutil

from frameledger_services.bench.functions.asking import CALLING, asking
from frameledger_services.bench.functions.tools import SLOW_SECONDS
from frameledger_services.bench.report import Figure
from frameledger_services.bench.road.processes import BenchError
from frameledger_services.bench.road.servers import Servers
from frameledger_services.bench.scene import Scene, scene

POLL_SECONDS = 0.25
WITHIN = 300.0
TENTH = 10


async def measure(servers: Servers, *, calls: int) -> list[Figure]:
    """Returns the megabytes of one worker with this many calls at once."""
    async with scene(servers, [CALLING], "functions", work_slots=calls) as here:
        await _crowd(here, "warm", 2)
        few = await _crowd(here, "few", max(1, calls // TENTH))
        many = await _crowd(here, "many", calls)
        again = await _crowd(here, "again", calls)
    return [
        _figure(f"memory with {calls:,} slow calls at once / {max(1, calls // TENTH):,}", many, few, 1.5),
        _figure(f"memory with {calls:,} more / the first {calls:,}", again, many, 1.1),
    ]


def _figure(name: str, value: float, yardstick: float, goal: float) -> Figure:
    return Figure(name, value, "MB", yardstick, value / yardstick, goal, "at most")


async def _crowd(here: Scene, name: str, calls: int) -> float:
    """Dispatch this many calls and wait until all are settled. Returns the worker's highest memory meanwhile, in
    megabytes."""
    worker = psutil.Process(here.workers[0].pid)
    contexts = [f"{name}-{number}" for number in range(calls)]
    highest = [0.0]

    async def watch() -> None:
        while True:
            highest.append(worker.memory_info().rss / 1e6)
            await asyncio.sleep(POLL_SECONDS)

    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(watch())
        await here.publish({context_id: asking(context_id, "slow") for context_id in contexts})
        await here.until(_SETTLED, calls, contexts, within=WITHIN, pause=POLL_SECONDS)
        watching.cancel()
    ((settled, at_once),) = await here.rows(_ENDED, contexts, SLOW_SECONDS)
    if settled != calls:
        raise BenchError(f"Of {calls} calls {settled} are done, and the others ended in another way.")
    if at_once != calls:
        raise BenchError(f"Only {at_once} of {calls} calls had begun when the first one ended.")
    return max(highest)


_SETTLED = "SELECT count(*) = %s FROM tool_calls WHERE context_id = ANY(%s) AND settled_version IS NOT NULL"

_ENDED = """
    WITH crowd AS (
        SELECT claims.claimed_at, tool_calls.status
        FROM tool_calls
        INNER JOIN claims USING (context_id, requested_version, ordinal)
        WHERE tool_calls.context_id = ANY(%s)
    )
    SELECT
        count(*) FILTER (WHERE status = 'done'),
        count(*) FILTER (WHERE claimed_at < (SELECT min(claimed_at) FROM crowd) + make_interval(secs => %s))
    FROM crowd
"""
