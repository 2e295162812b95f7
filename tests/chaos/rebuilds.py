"""A hundred thousand frames are rebuilt while a thousand per second arrive; the rebuild is killed and repeated.

Run by `make chaos`, not by `make test`. REBUILD_FRAMES=... and REBUILD_RATE=... set these numbers, CHAOS_SEED=... the
point at which the rebuild is killed.
"""

import asyncio
import os
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import psycopg
from tests.support.batches import value_of
from tests.support.killable import Plan, projector
from tests.support.pipeline import own_pipeline  # noqa: F401  # a fixture
from tests.support.rebuilding import killed_at, rebuild_in

from frameledger_services.bench.road.stream import interleaved, record_of
from frameledger_services.event_log.producer import Producer

FRAMES = int(os.environ.get("REBUILD_FRAMES", "100_000"))
RATE = int(os.environ.get("REBUILD_RATE", "1_000"))
SEED = int(os.environ.get("CHAOS_SEED") or random.SystemRandom().randrange(1_000_000))
CONTEXTS = 500
FRAME_BYTES = 355
TICK = 0.1
KILLS = 6

TAMPER = """
    DELETE FROM messages WHERE position % 3 = 1;
    UPDATE runs SET model = 'another';
    UPDATE contexts SET message_count = message_count + 1
"""


def test_a_rebuild_while_frames_come_in_ends_equal_and_publishing_is_never_refused(pipeline):
    print(f"\nCHAOS_SEED={SEED}, {FRAMES:,} frames, {RATE:,} a second meanwhile")
    chance = random.Random(SEED)
    talks = interleaved(CONTEXTS, 10 * FRAMES // CONTEXTS, FRAME_BYTES)
    with projector(pipeline.settings, Plan(member="it")) as running:
        asyncio.run(publish(pipeline, islice(talks, FRAMES)))
        pipeline.until_idle(running)
        with psycopg.connect(pipeline.address, autocommit=True) as connection:
            connection.execute(TAMPER)
        over = threading.Event()
        with ThreadPoolExecutor(1) as beside:
            publishing = beside.submit(lambda: asyncio.run(publish_until(pipeline, talks, over)))
            try:
                began = time.monotonic()
                for _ in range(KILLS):
                    killed_at(pipeline.address, chance.randrange(200, 4_000), pipeline.names)
                done = rebuild_in(pipeline.address, names=pipeline.names)
                took = time.monotonic() - began
            finally:
                over.set()
            published = publishing.result()
        pipeline.until_idle(running)
        assert done.progress.failed_count == 0
        assert rebuild_in(pipeline.address, names=pipeline.names, apply=False).progress.differ_count == 0
        assert running.stop() == 0
    with psycopg.connect(pipeline.address) as connection:
        assert value_of(connection, "SELECT count(*) FROM frames") == FRAMES + published
        assert value_of(connection, "SELECT count(*) FROM contexts WHERE rebuilt > 0") == CONTEXTS
    print(f"rebuilt in {took:.0f} s with {KILLS} kills; {published:,} frames came meanwhile")
    pipeline.check(every=997)


async def publish(pipeline, frames):
    async with Producer(pipeline.settings) as producer:
        for some in chunks(frames, 2_000):
            await producer.publish(pipeline.names.frames, [record_of(*one) for one in some])


async def publish_until(pipeline, frames, over):
    """Publish `RATE` frames per second until the rebuild ends. Returns their number. Raises if one is refused."""
    published, each = 0, int(RATE * TICK)
    async with Producer(pipeline.settings) as producer:
        while not over.is_set():
            due = time.monotonic() + TICK
            some = list(islice(frames, each))
            await producer.publish(pipeline.names.frames, [record_of(*one) for one in some])
            published += len(some)
            over.wait(max(0.0, due - time.monotonic()))
    return published


def chunks(frames, size):
    while some := list(islice(frames, size)):
        yield some
