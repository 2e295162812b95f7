"""A conversation of a million frames, and a hundred thousand conversations at once, in bounded memory.

Run by `make chaos`, not by `make test`: it takes minutes, mostly to publish. LARGE_FRAMES=... and LARGE_CONTEXTS=...
set the numbers. The times are printed.
"""

import asyncio
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice

import psutil
import psycopg
from tests.support.batches import value_of
from tests.support.killable import projector
from tests.support.pipeline import own_pipeline  # noqa: F401  # a fixture

from frameledger.fold import Conversation, Folding
from frameledger.frames import AnyFrame
from frameledger.ids import ContextId
from frameledger_services.bench.road.stream import context_ids, conversation, record_of
from frameledger_services.event_log.producer import Producer
from frameledger_services.store.progress_channel import CHANNEL

FRAMES = int(os.environ.get("LARGE_FRAMES", "1_000_000"))
CONTEXTS = int(os.environ.get("LARGE_CONTEXTS", "100_000"))
FRAME_BYTES = 355
AT_ONCE = 5_000
DEADLINE = 1_800.0

MORE_AT_MOST = 1.25
"""The limit of the projector's memory at the end, relative to that after a tenth."""


def test_a_conversation_of_a_million_frames(pipeline):
    """The result equals a fold in memory, and the last frames need no more memory than the first."""
    folding = Folding(Conversation.new(ContextId("long")))
    spoken: Counter[str] = Counter()

    def frames() -> Iterator[tuple[str, AnyFrame]]:
        for frame in islice(conversation("long", FRAME_BYTES), FRAMES):
            step = folding.step(frame)
            assert step is not None
            spoken[step.outcome] += 1
            yield "long", frame

    _project(pipeline, frames(), FRAMES)
    context = folding.conversation().context.to_wire()
    with psycopg.connect(pipeline.address) as connection:
        assert value_of(connection, "SELECT version FROM contexts") == FRAMES
        assert value_of(
            connection,
            "SELECT json_object_agg(outcome, n) FROM (SELECT outcome, count(*) AS n "
            "FROM frames GROUP BY outcome) AS outcomes",
        ) == dict(spoken)
        assert value_of(connection, "SELECT message_count FROM contexts") == len(context["messages"])
        assert value_of(connection, "SELECT context_at('long', %s)", FRAMES) == context
        assert value_of(connection, "SELECT intact FROM verify_chain('long')") is True


def test_a_hundred_thousand_conversations_that_all_begin_at_once(pipeline):
    """One frame of each conversation, then a second one of each, when none is cached any more."""
    talks = {name: conversation(name, FRAME_BYTES) for name in context_ids(CONTEXTS)}
    frames = ((name, next(talk)) for _ in range(2) for name, talk in talks.items())
    _project(pipeline, frames, 2 * CONTEXTS)
    with psycopg.connect(pipeline.address) as connection:
        assert value_of(connection, "SELECT count(*) FROM contexts WHERE version = 2") == CONTEXTS
        assert value_of(connection, "SELECT count(*) FROM frames WHERE outcome = 'applied'") == 2 * CONTEXTS


def _project(pipeline, frames: Iterable[tuple[str, AnyFrame]], count: int) -> None:
    """Publish everything, then let one projector store all of it, in bounded memory."""
    began = time.monotonic()
    asyncio.run(_publish(pipeline, frames))
    published = time.monotonic()
    with projector(pipeline.settings) as running:
        process = psutil.Process(running.pid)
        _until(pipeline, count // 10, running)
        early = process.memory_info().rss / 1e6
        _until(pipeline, count, running)
        late = process.memory_info().rss / 1e6
        done = time.monotonic()
        assert running.stop() == 0
    print(
        f"\n{count:,} frames: published in {published - began:.0f} s, projected in {done - published:.0f} s, "
        f"{count / (done - published):,.0f} a second; memory {early:.0f} MB after a tenth, {late:.0f} MB at the end",
        flush=True,
    )
    assert late <= MORE_AT_MOST * early


async def _publish(pipeline, frames: Iterable[tuple[str, AnyFrame]]) -> None:
    records = (record_of(name, frame) for name, frame in frames)
    async with Producer(pipeline.settings) as producer:
        while some := list(islice(records, AT_ONCE)):
            await producer.publish(pipeline.names.frames, some, within=DEADLINE)


def _until(pipeline, count: int, running) -> None:
    until = time.monotonic() + DEADLINE
    with psycopg.connect(pipeline.address, autocommit=True) as connection:
        connection.execute(f"LISTEN {CHANNEL}")
        while value_of(connection, "SELECT coalesce(sum(next_offset), 0) FROM projections") < count:
            assert running.is_alive(), "the projector ended"
            assert time.monotonic() < until, "the projector did not come to the end"
            for _ in connection.notifies(timeout=1.0, stop_after=1):
                pass
