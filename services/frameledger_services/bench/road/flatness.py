"""The cost of a frame late in a conversation, compared with early: microseconds of the projector's batches, database
included.

Early are the frames from the 10th on of a new conversation; late are as many frames of a long conversation, in as many
batches.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import count, islice

from frameledger.frames import AnyFrame
from frameledger_services.bench.report import Figure
from frameledger_services.bench.road.direct import Direct, direct
from frameledger_services.bench.road.rounds import in_turns, no_collections
from frameledger_services.bench.road.servers import Servers
from frameledger_services.bench.road.stream import conversation

FRAME_BYTES = 355
EARLY = 10
WINDOW = 500
WARM_UP = 3


async def measure(servers: Servers, *, late: int, rounds: int) -> list[Figure]:
    """Returns microseconds per frame, of windows of `WINDOW` frames."""
    names = map(str, count(1))
    with servers.database() as settings:
        async with direct(settings) as projector:
            long = conversation("long", FRAME_BYTES)
            await projector.store(projector.records(("long", frame) for frame in islice(long, late)), 1_000)

            async def at_the_end() -> float:
                return await _cost(projector, "long", long)

            async def at_the_beginning() -> float:
                name = next(names)
                short = conversation(name, FRAME_BYTES)
                await projector.store(projector.records((name, frame) for frame in islice(short, EARLY)))
                return await _cost(projector, name, short)

            with no_collections():
                measured = await in_turns(at_the_end, at_the_beginning, rounds, WARM_UP)
    return [measured.figure(f"a frame after {late:,} / after {EARLY}", "us/frame", float, 1.1)]


async def _cost(projector: Direct, name: str, frames: Iterator[AnyFrame]) -> float:
    records = projector.records((name, frame) for frame in islice(frames, WINDOW))
    start = time.perf_counter()
    await projector.store(records)
    return 1e6 * (time.perf_counter() - start) / WINDOW
