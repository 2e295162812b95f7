"""The latency of an instant call in milliseconds, from the COMMIT that dispatched it to the COMMIT of its result,
compared with the bare road.

The minimum is two trips: the effect to the worker, and the result over the road. An unsafe call takes two more, because
its handler starts only after its own in-progress frame is folded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Literal

from frameledger_services.bench.functions.asking import CALLING, asking
from frameledger_services.bench.report import Figure
from frameledger_services.bench.road import latency
from frameledger_services.bench.road.processes import BenchError
from frameledger_services.bench.road.rounds import in_turns, percentile
from frameledger_services.bench.road.servers import Servers
from frameledger_services.bench.scene import Scene, scene

WARM_UP = 10
"""Discarded calls at the start."""


@dataclass(frozen=True, slots=True)
class Took:
    """Milliseconds of each call."""

    safe: Sequence[float]
    unsafe: Sequence[float]


async def measure(servers: Servers, *, calls: int, rounds: int) -> list[Figure]:
    """Returns the milliseconds of this many calls of each kind in each round, one at a time, the two kinds
    alternately."""

    async def ours() -> Took:
        return await _round(servers, calls)

    async def yardstick() -> Took:
        road = (await latency.bare(servers, calls, 0)).committed
        return Took(road, road)

    measured = await in_turns(ours, yardstick, rounds)
    name = "call dispatched to result in SQL"
    return [
        measured.figure(f"{name}, safe, p50 / bare road", "ms", lambda one: percentile(one.safe, 50), None),
        measured.figure(f"{name}, safe, p99 / bare road", "ms", lambda one: percentile(one.safe, 99), None),
        measured.figure(
            f"{name}, unsafe, p50 / bare road", "ms", lambda one: percentile(one.unsafe, 50), None
        ),
        measured.figure(
            f"{name}, unsafe, p99 / bare road", "ms", lambda one: percentile(one.unsafe, 99), None
        ),
    ]


async def _round(servers: Servers, calls: int) -> Took:
    numbers = count()
    async with scene(servers, [CALLING], "functions") as here:
        for _ in range(WARM_UP + calls):
            for function_name in ("safe", "unsafe"):
                await _call(here, f"{function_name}-{next(numbers):06}", function_name)
        rows = {kind: await here.rows(_CALLS, kind) for kind in ("safe", "unsafe")}
        committed = await here.committed()

    def took(kind: Literal["safe", "unsafe"]) -> list[float]:
        each = [committed.of(settled) - committed.of(dispatched) for dispatched, settled in rows[kind]]
        if len(each) != WARM_UP + calls:
            raise BenchError(f"Of {WARM_UP + calls} {kind} calls {len(each)} are done.")
        return [1e3 * secs for secs in each[WARM_UP:]]

    return Took(took("safe"), took("unsafe"))


async def _call(here: Scene, context_id: str, function_name: str) -> None:
    await here.publish({context_id: asking(context_id, function_name)})
    await here.until(
        "SELECT count(*) = 1 FROM tool_calls WHERE context_id = %s AND settled_version IS NOT NULL",
        context_id,
    )


_CALLS = """
    SELECT extract(epoch FROM dispatched.recorded_at)::float8, extract(epoch FROM settled.recorded_at)::float8
    FROM tool_calls
    INNER JOIN frames AS dispatched
        ON dispatched.context_id = tool_calls.context_id AND dispatched.version = tool_calls.dispatched_version
    INNER JOIN frames AS settled
        ON settled.context_id = tool_calls.context_id AND settled.version = tool_calls.settled_version
    WHERE tool_calls.function_name = %s AND tool_calls.status = 'done'
    ORDER BY tool_calls.context_id
"""
