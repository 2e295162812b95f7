"""The rate of rebuilding conversations, in frames per second, compared with a projector that stores the same frames
from a backlog.

The yardstick reads its batches from memory, without a broker, so the comparison is stricter than with a real one.
"""

from __future__ import annotations

import time

from psycopg import AsyncConnection

from frameledger.ids import ContextId
from frameledger_services import access
from frameledger_services.bench.report import Figure
from frameledger_services.bench.road.direct import direct
from frameledger_services.bench.road.rounds import in_turns, no_collections
from frameledger_services.bench.road.servers import Servers
from frameledger_services.bench.road.stream import context_ids, interleaved
from frameledger_services.event_log.topics import TopicNames
from frameledger_services.projector.outbox_rows import effect_topics
from frameledger_services.projector.rebuild import rebuild
from frameledger_services.store import binary_copy

FRAME_BYTES = 355
BATCH = 500
WARM_UP = 1


async def measure(servers: Servers, *, contexts: int, each: int, rounds: int) -> list[Figure]:
    """Returns frames per second, for this many conversations of `each` frames."""
    names = context_ids(contexts)
    with servers.database() as settings:
        topics = TopicNames(settings.topic_prefix)
        async with direct(settings) as projector:
            await projector.store(projector.records(interleaved(contexts, each, FRAME_BYTES)), BATCH)
        async with await AsyncConnection.connect(
            access.database_address(settings), autocommit=True
        ) as connection:
            binary_copy.prepare(connection)
            await connection.execute("ANALYZE")

            async def ours() -> float:
                start = time.perf_counter()
                for name in names:
                    rebuilt = await rebuild(
                        connection, topics.frames, effect_topics(topics), ContextId(name), "bench"
                    )
                    assert rebuilt, "all of them, or the rate means nothing"
                return contexts * each / (time.perf_counter() - start)

            async def yardstick() -> float:
                with servers.database() as empty:
                    async with direct(empty) as fresh:
                        records = fresh.records(interleaved(contexts, each, FRAME_BYTES))
                        start = time.perf_counter()
                        await fresh.store(records, BATCH)
                        return contexts * each / (time.perf_counter() - start)

            with no_collections():
                measured = await in_turns(ours, yardstick, rounds, WARM_UP)
    name = "rebuild / the projector with the same backlog"
    return [measured.figure(name, "frames/s", float, 0.8, "at least")]
