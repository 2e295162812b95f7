"""Answers of a model through an inference worker with metrics or traces, compared with the same worker without.

The model writes at a pace, so the rate shows whether tokens are delayed, and the CPU time shows the cost.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from functools import partial
from itertools import count

from frameledger_services.bench.inference.throughput import AnsweredRound, model_server, round_of
from frameledger_services.bench.inference.workers import ANSWERING, settings_for
from frameledger_services.bench.report import Figure
from frameledger_services.bench.road.rounds import in_turns
from frameledger_services.bench.road.servers import Servers
from frameledger_services.bench.scene import Scene, scene
from frameledger_services.bench.telemetry import watching
from frameledger_services.bench.telemetry.watching import Watching

WAYS: tuple[tuple[str, Watching, float], ...] = (
    ("metrics", watching.by_metrics, 0.98),
    ("traces", watching.by_traces, 0.97),
)


async def measure(servers: Servers, *, streams: int, tokens: int, rounds: int) -> list[Figure]:
    """Returns the figures for this many answers at once, each of this many tokens."""
    figures: list[Figure] = []
    async with model_server(tokens) as url:
        for name, watch, goal in WAYS:
            figures += await _measure(servers, f"{url}/v1", name, watch, goal, streams, tokens, rounds)
    return figures


async def _measure(
    servers: Servers,
    base_url: str,
    name: str,
    watch: Watching,
    goal: float,
    streams: int,
    tokens: int,
    rounds: int,
) -> list[Figure]:
    numbers = count(1)
    async with AsyncExitStack() as stack:
        watched = stack.enter_context(watch())
        here, plain = [
            await stack.enter_async_context(
                scene(
                    servers,
                    [ANSWERING],
                    "inference",
                    also=one.environment,
                    **settings_for(base_url),
                    **one.settings,
                )
            )
            for one in (watched, watching.Watched())
        ]

        async def answered(scene: Scene) -> AnsweredRound:
            return await round_of(scene, f"round-{next(numbers)}", streams, tokens)

        measured = await in_turns(partial(answered, here), partial(answered, plain), rounds, warm_up=1)
    return [
        measured.figure(
            f"{streams} streams, {name} / without", "tokens/s", lambda one: one.rate, goal, "at least"
        ),
        measured.figure(f"{streams} streams, {name}: CPU", "us/token", lambda one: one.cpu_us, None),
    ]
