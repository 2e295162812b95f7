"""Latency from publish to SQL, compared with bare Kafka and PostgreSQL.

Measured on both sides from just before the send to the return of the COMMIT that makes the row visible to everybody.
The bare road's row is on disk by then. Of ours some are, and the others when they are announced, which is right after,
or after some milliseconds if there is much to announce: that is told too, without a goal.

Ours has the client in one process and the projector in another: a row says by the database's clock when it was
written, and its commit is the first one of the projector after that. So the servers have to be on this machine.

How long it takes until the publisher itself knows (`publish(..., wait=True)`) is told without a goal: nobody tells the
bare road's publisher anything, it is the process that commits.
"""

from __future__ import annotations

import json
import time
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import quantiles
from uuid import UUID

from psycopg import AsyncConnection

from frameledger.frames import AnyFrame, LLMRunFrame
from frameledger_services import access
from frameledger_services.bench.report import Figure
from frameledger_services.bench.road.pace import at_pace
from frameledger_services.bench.road.processes import BARE_ROAD, WATCHED, running, said
from frameledger_services.bench.road.progress import until_projected
from frameledger_services.bench.road.rounds import in_turns
from frameledger_services.bench.road.servers import Servers
from frameledger_services.bench.road.stream import mixture
from frameledger_services.client import Client
from frameledger_services.settings import Settings

FRAME_BYTES = 1_000
RATE = 1_000
WARM_UP = 100
"""Discarded frames at the start."""

WITHIN = 120.0


@dataclass(frozen=True, slots=True)
class Latencies:
    """Milliseconds: to the COMMIT of each frame, until it was on disk, and until its publisher knew (if it waited)."""

    committed: Sequence[float]
    on_disk: Sequence[float] = ()
    known: Sequence[float] = ()

    @property
    def p50(self) -> float:
        return _percentile(self.committed, 50)

    @property
    def p99(self) -> float:
        return _percentile(self.committed, 99)

    @property
    def p50_on_disk(self) -> float:
        return _percentile(self.on_disk or self.committed, 50)

    @property
    def p50_known(self) -> float:
        return _percentile(self.known or self.committed, 50)


async def measure(servers: Servers, *, one_at_a_time: int, at_rate: int, rounds: int) -> list[Figure]:
    """So many frames in each round, one at a time and at `RATE` a second."""
    alone = await in_turns(
        lambda: _ours(servers, one_at_a_time, 0), lambda: bare(servers, one_at_a_time, 0), rounds
    )
    busy = await in_turns(lambda: _ours(servers, at_rate, RATE), lambda: bare(servers, at_rate, RATE), rounds)
    return [
        alone.figure("publish to COMMIT, one at a time, p50", "ms", lambda one: one.p50, 1.5),
        alone.figure("publish to COMMIT, one at a time, p99", "ms", lambda one: one.p99, None),
        alone.figure("publish(wait=True), one at a time, p50", "ms", lambda one: one.p50_known, None),
        busy.figure(f"publish to COMMIT, {RATE:,} frames/s, p50", "ms", lambda one: one.p50, 1.5),
        busy.figure(f"publish to COMMIT, {RATE:,} frames/s, p99", "ms", lambda one: one.p99, None),
        busy.figure(f"publish to disk, {RATE:,} frames/s, p50", "ms", lambda one: one.p50_on_disk, None),
    ]


async def _ours(servers: Servers, count: int, rate: int) -> Latencies:
    with servers.database() as settings:
        settings = await servers.make_topics(settings)
        try:
            return await _published(settings, mixture(count + WARM_UP, FRAME_BYTES), rate)
        finally:
            await servers.delete_topics(settings)


async def bare(servers: Servers, count: int, rate: int, warm_up: int = WARM_UP) -> Latencies:
    """So many values over the bare road, `rate` a second or (0) one at a time, after `warm_up` that do not count."""
    with servers.database() as settings:
        settings = await servers.make_topics(settings)
        arguments = map(str, (count + warm_up, rate, FRAME_BYTES))
        try:
            told = json.loads(await said(settings, *BARE_ROAD, *arguments, within=WITHIN))
        finally:
            await servers.delete_topics(settings)
    return Latencies([1e3 * seconds for seconds in told[warm_up:]])


async def _published(settings: Settings, frames: Sequence[tuple[str, AnyFrame]], rate: int) -> Latencies:
    sent: dict[UUID, float] = {}

    async def publish(one: tuple[str, AnyFrame]) -> float:
        context_id, frame = one
        start = sent[UUID(frame.id)] = time.time()
        await client.publish(context_id, frame, wait=rate == 0)
        return 1e3 * (time.time() - start)

    async with running(settings, *WATCHED) as process, Client(settings) as client:
        # The projector is there when this is stored.
        await client.publish("first", LLMRunFrame(), wait=True, within=WITHIN)
        known = await at_pace(publish, frames, rate)
        await until_projected(settings, len(frames) + 1, process, within=WITHIN)
        written = await _written(settings)
        process.terminate()
        told, _ = await process.communicate()
    times: dict[str, list[float]] = json.loads(told)
    batches = {one: bisect_left(times["committed"], written[one]) for one in sent}
    took, to_disk = (
        [1e3 * (times[event][batches[one]] - start) for one, start in sent.items()]
        for event in ("committed", "on_disk")
    )
    return Latencies(took[WARM_UP:], to_disk[WARM_UP:], known[WARM_UP:] if rate == 0 else ())


async def _written(settings: Settings) -> dict[UUID, float]:
    """When each frame's row was written, in seconds since 1970."""
    async with await AsyncConnection.connect(access.database_address(settings)) as connection:
        cursor = await connection.execute(
            "SELECT frame_id, extract(epoch FROM recorded_at)::float8 FROM frames"
        )
        return dict(await cursor.fetchall())


def _percentile(values: Sequence[float], percent: int) -> float:
    return quantiles(values, n=100, method="inclusive")[percent - 1]
