"""The time from an interruption to the end of the stream at the provider, in milliseconds.

It counts from the COMMIT of the interruption until the model server sees its client disconnect. Many conversations
receive an answer at once and are interrupted one by one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from frameledger.frames import InterruptionFrame
from frameledger_services.bench.inference.answers import words
from frameledger_services.bench.inference.http_wire import Received
from frameledger_services.bench.inference.model_server import ModelServer, serving
from frameledger_services.bench.inference.workers import ANSWERING, DEAF, settings_for
from frameledger_services.bench.report import Figure
from frameledger_services.bench.road.processes import BenchError
from frameledger_services.bench.road.rounds import percentile
from frameledger_services.bench.road.servers import Servers
from frameledger_services.bench.scene import Scene, monotonic_offset, scene, turn

STREAMS = 10
TOKENS = 600
PACE = 60
GOAL_MS = 50.0
LOST_GOAL_MS = 1_000.0
WITHIN = 30.0
WARM_UP = 1
"""Discarded rounds of `STREAMS` interruptions."""


async def measure(servers: Servers, *, interruptions: int, lost: int) -> list[Figure]:
    """Returns the milliseconds of this many interruptions, and of as many while the worker receives no cancellation."""
    quick = await _closings(servers, ANSWERING, interruptions)
    slow = await _closings(servers, DEAF, lost)
    name = "interruption folded to stream closed"
    return [
        _figure(f"{name}, p50 / {GOAL_MS:.0f} ms", percentile(quick, 50), GOAL_MS, None),
        _figure(f"{name}, p99 / {GOAL_MS:.0f} ms", percentile(quick, 99), GOAL_MS, 1.0),
        _figure("with cancellations lost, p50 / 1 s", percentile(slow, 50), LOST_GOAL_MS, None),
        _figure("with cancellations lost, the slowest / 1 s", max(slow), LOST_GOAL_MS, 1.0),
    ]


def _figure(name: str, value: float, yardstick: float, goal: float | None) -> Figure:
    return Figure(name, value, "ms", yardstick, value / yardstick, goal, "at most")


async def _closings(servers: Servers, worker: Sequence[str], interruptions: int) -> list[float]:
    """Returns the milliseconds from each interruption's COMMIT until its stream was closed."""
    offset = monotonic_offset()
    rounds = WARM_UP + -(-interruptions // STREAMS)
    async with serving(words(TOKENS, pace=PACE)) as server:
        async with scene(servers, [worker], "inference", **settings_for(server.openai_base_url)) as here:
            for number in range(rounds):
                await _interrupt(here, server, [f"talk-{number:05}-{one}-" for one in range(STREAMS)])
            rows = await here.rows(_INTERRUPTIONS)
            committed = await here.committed()
        left = {_context_of(one): one.left_at for one in server.received}
    took = []
    for context_id, at in rows:
        left_at = left[context_id]
        if left_at is None:
            raise BenchError(f"The stream of {context_id} was not closed.")
        took.append(1e3 * (offset + left_at - committed.of(at)))
    return took[WARM_UP * STREAMS :]


async def _interrupt(here: Scene, server: ModelServer, contexts: Sequence[str]) -> None:
    """Interrupt the answers of conversations when their first words are there. Returns when all streams have ended."""
    await here.publish({context_id: turn(context_id) for context_id in contexts})
    await here.until(
        "SELECT count(DISTINCT context_id) = %s FROM frames WHERE context_id = ANY(%s) AND type = 'LLMTextFrame'",
        len(contexts),
        list(contexts),
    )
    for context_id in contexts:
        await here.client.publish(context_id, InterruptionFrame())
    async with asyncio.timeout(WITHIN):
        for request in server.received[-len(contexts) :]:
            await request.left.wait()


def _context_of(received: Received) -> str:
    """Returns the conversation of a request: its user's message is the conversation's id."""
    name = received.body[received.body.index(b"talk-") :]
    return b"-".join(name.split(b"-")[:3]).decode() + "-"


_INTERRUPTIONS = """
    SELECT context_id, extract(epoch FROM recorded_at)::float8
    FROM frames WHERE type = 'InterruptionFrame' ORDER BY context_id
"""
