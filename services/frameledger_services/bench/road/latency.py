"""Latency from publish to SQL in milliseconds, compared with bare Kafka and PostgreSQL.

Both sides are measured from just before the send to the return of the COMMIT that makes the row visible. The bare
road's row is on disk by then. Some of ours are; the others are on disk when they are announced, which is directly
afterwards, or some milliseconds later if there is much to announce. That time is reported too, without a goal.

The client and the projector run in different processes. A row has the time at which it was written, by the database's
clock, and its commit is the first one of the projector after that time, so the servers have to be on this machine.

A frame that comes alone comes at a fixed pace, the same on both sides. A frame that is sent when the previous one is
done would measure the pause before it as well: our publisher waits until it knows, the bare road only for the COMMIT,
and after 3 ms of rest all processes are so much slower that the bare road takes half as long again.

At `RATE` processor time is the limit on a machine with two cores: the bare road takes more than half of both; ours,
with its publisher, the broker, the projector and its session, takes three quarters to nine tenths, and the projector's
batches have as many frames as arrived meanwhile. The ratio there is largely that of two queues, and other load of the
machine raises it. Processor time per frame says more about a change than a single run of this.

The time until the publisher itself knows (`publish(..., wait=True)`) is reported without a goal: the bare road has no
counterpart, because the process that publishes is the one that commits.
"""

from __future__ import annotations

import json
import time
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from psycopg import AsyncConnection

from frameledger.frames import AnyFrame, LLMRunFrame
from frameledger_services import access
from frameledger_services.bench.report import Figure
from frameledger_services.bench.road.pace import at_pace
from frameledger_services.bench.road.processes import BARE_ROAD, WATCHED, output_of, running
from frameledger_services.bench.road.progress import until_projected
from frameledger_services.bench.road.rounds import in_turns, percentile
from frameledger_services.bench.road.servers import Servers
from frameledger_services.bench.road.stream import mixture
from frameledger_services.client import Client
from frameledger_services.settings import Settings

FRAME_BYTES = 1_000
RATE = 1_000
ALONE = 50
"""Frames per second, so few that each finds everything idle, also on a machine that is several times as slow. If a
frame had to wait for the one before it, the slower side would be measured with a queue."""

WARM_UP = 100
"""Discarded frames at the start."""

WITHIN = 120.0


@dataclass(frozen=True, slots=True)
class Latencies:
    """Milliseconds from the publish of each frame to its COMMIT, until it was on disk, and until its publisher knew (if
    it waited)."""

    committed: Sequence[float]
    on_disk: Sequence[float] = ()
    known: Sequence[float] = ()

    @property
    def p50(self) -> float:
        return percentile(self.committed, 50)

    @property
    def p99(self) -> float:
        return percentile(self.committed, 99)

    @property
    def p50_on_disk(self) -> float:
        return percentile(self.on_disk or self.committed, 50)

    @property
    def p50_known(self) -> float:
        return percentile(self.known or self.committed, 50)


async def measure(servers: Servers, *, one_at_a_time: int, at_rate: int, rounds: int) -> list[Figure]:
    """Returns the latencies of this many frames in each round, at `ALONE` and at `RATE` per second."""
    alone = await in_turns(
        lambda: _ours(servers, one_at_a_time, ALONE, wait=True),
        lambda: bare(servers, one_at_a_time, ALONE),
        rounds,
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


async def _ours(servers: Servers, count: int, rate: int, *, wait: bool = False) -> Latencies:
    with servers.database() as settings:
        settings = await servers.make_topics(settings)
        try:
            return await _published(settings, mixture(count + WARM_UP, FRAME_BYTES), rate, wait=wait)
        finally:
            await servers.delete_topics(settings)


async def bare(servers: Servers, count: int, rate: int, warm_up: int = WARM_UP) -> Latencies:
    """Returns the latencies of this many values over the bare road, `rate` per second or (0) one at a time, after
    `warm_up` discarded ones."""
    with servers.database() as settings:
        settings = await servers.make_topics(settings)
        arguments = map(str, (count + warm_up, rate, FRAME_BYTES))
        try:
            seconds_each = json.loads(await output_of(settings, *BARE_ROAD, *arguments, within=WITHIN))
        finally:
            await servers.delete_topics(settings)
    return Latencies([1e3 * seconds for seconds in seconds_each[warm_up:]])


async def _published(
    settings: Settings, frames: Sequence[tuple[str, AnyFrame]], rate: int, *, wait: bool
) -> Latencies:
    sent: dict[UUID, float] = {}

    async def publish(named_frame: tuple[str, AnyFrame]) -> float:
        context_id, frame = named_frame
        start = sent[UUID(frame.id)] = time.time()
        await client.publish(context_id, frame, wait=wait)
        return 1e3 * (time.time() - start)

    async with running(settings, *WATCHED) as process:
        async with Client(settings) as first:
            # When this is stored, the projector is running. A client that has waited receives all notifications from
            # then on, which a publisher that never waits does not.
            await first.publish("first", LLMRunFrame(), wait=True, within=WITHIN)
        async with Client(settings) as client:
            known = await at_pace(publish, frames, rate)
        await until_projected(settings, len(frames) + 1, process, within=WITHIN)
        written = await _written(settings)
        process.terminate()
        output, _ = await process.communicate()
    times: dict[str, list[float]] = json.loads(output)
    batches = {one: bisect_left(times["committed"], written[one]) for one in sent}
    took, to_disk = (
        [1e3 * (times[event][batches[one]] - start) for one, start in sent.items()]
        for event in ("committed", "on_disk")
    )
    return Latencies(took[WARM_UP:], to_disk[WARM_UP:], known[WARM_UP:] if wait else ())


async def _written(settings: Settings) -> dict[UUID, float]:
    """Returns when each frame's row was written, as Unix time in seconds."""
    async with await AsyncConnection.connect(access.database_address(settings)) as connection:
        cursor = await connection.execute(
            "SELECT frame_id, extract(epoch FROM recorded_at)::float8 FROM frames"
        )
        return dict(await cursor.fetchall())
