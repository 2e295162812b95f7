"""Throughput of one projector with a backlog, in frames per second, compared with a minimal consumer (`straight_line`).

The rate is that of the rows, by the database's clock: from the first frame that is written to the last. The start of
the process and the join of its group are not part of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from psycopg import AsyncConnection

from frameledger.frames import AnyFrame
from frameledger.record import Outgoing
from frameledger_services import access
from frameledger_services.bench.report import Figure
from frameledger_services.bench.road import stream
from frameledger_services.bench.road.processes import PROJECTOR, STRAIGHT_LINE, output_of, running
from frameledger_services.bench.road.progress import until_projected
from frameledger_services.bench.road.rounds import in_turns
from frameledger_services.bench.road.servers import Servers
from frameledger_services.event_log.producer import Producer
from frameledger_services.event_log.topics import TopicNames
from frameledger_services.settings import Settings

FRAME_BYTES = 355
WITHIN = 300.0
AT_ONCE = 5_000


async def measure(servers: Servers, *, contexts: int, each: int, rounds: int) -> list[Figure]:
    """Returns frames per second with this many conversations of `each` frames, interleaved, which are on the log before
    the projector starts."""
    with servers.database() as settings:
        settings = await servers.make_topics(settings)
    try:
        count = await publish(settings, stream.interleaved(contexts, each, FRAME_BYTES))

        async def ours() -> float:
            with servers.database() as here:
                here = here.model_copy(update={"topic_prefix": settings.topic_prefix})
                async with running(here, *PROJECTOR) as process:
                    await until_projected(here, count, process, within=WITHIN)
                return await rate(here, "frames")

        async def yardstick() -> float:
            with servers.database() as here:
                here = here.model_copy(update={"topic_prefix": settings.topic_prefix})
                await output_of(here, *STRAIGHT_LINE, within=WITHIN)
                return await rate(here, "line_frames")

        measured = await in_turns(ours, yardstick, rounds)
    finally:
        await servers.delete_topics(settings)
    name = "one projector / straight line"
    return [measured.figure(name, "frames/s", float, goal=0.5, bound="at least")]


async def publish(settings: Settings, frames: Iterable[tuple[str, AnyFrame]]) -> int:
    """Publish frames. Returns their number."""
    return await publish_records(
        settings, (stream.record_of(context_id, frame) for context_id, frame in frames)
    )


async def publish_records(settings: Settings, records: Iterable[Outgoing]) -> int:
    """Publish records. Returns their number."""
    topic, count, left = TopicNames(settings.topic_prefix).frames, 0, iter(records)
    async with Producer(settings, name="frameledger-bench") as producer:
        while some := list(islice(left, AT_ONCE)):
            await producer.publish(topic, some, within=WITHIN)
            count += len(some)
    return count


async def rate(settings: Settings, table: str, *, skipped: int = 0) -> float:
    """Returns rows of this table per second, by the database's clock: from the first row that was written to the last,
    without the `skipped` earliest rows."""
    async with await AsyncConnection.connect(access.database_address(settings)) as connection:
        cursor = await connection.execute(
            f"""
            SELECT count(*) / extract(epoch FROM max(recorded_at) - min(recorded_at))
            FROM (SELECT recorded_at FROM {table} ORDER BY recorded_at OFFSET {skipped}) AS counted
            """
        )
        row = await cursor.fetchone()
        assert row is not None, "an aggregate has one row"
        return float(row[0])
