"""The time to the first token in SQL beyond that of the bare SDK, in milliseconds, compared with the bare road.

Both sides count from the arrival of the request at the model server: the SDK to its first token, we to the COMMIT that
makes the first text visible. The difference is what the road adds; one trip over the bare road is the minimum. The time
before, from the publish of the user's turn to the request, is reported without a goal: it is also a trip over the road,
and in addition the claim and the read of the context.

A first token arrives after a pause, as long as the model thought. The bare road therefore carries its values at that
pace too: a value that directly follows another finds processors awake and caches warm, and takes about half as long.
That ratio is reported as well.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from frameledger_services.bench.inference.answers import words
from frameledger_services.bench.inference.model_server import ModelServer, serving
from frameledger_services.bench.inference.workers import ANSWERING, settings_for
from frameledger_services.bench.inference.yardstick import bare
from frameledger_services.bench.report import Figure
from frameledger_services.bench.road import latency
from frameledger_services.bench.road.rounds import Rounds, in_turns
from frameledger_services.bench.road.servers import Servers
from frameledger_services.bench.scene import Scene, monotonic_offset, scene, turn

TOKENS = 4
PACE = 60
FIRST_TOKEN_SECONDS = 0.1
"""The delay of a quick model. The frame for the start of the attempt is stored by then, as with real models."""
WARM_UP = 5
"""Discarded turns at the start."""
PAUSES = 5
"""Values per second on the bare road, as many as there are turns."""


@dataclass(frozen=True, slots=True)
class Firsts:
    """Milliseconds, each the median of a round."""

    alone: float = 0.0
    """The bare road, for a value that comes after a pause."""

    in_a_row: float = 0.0
    """The bare road, for a value that directly follows another."""

    added: float = 0.0
    """From the arrival of the request to the first text in SQL, minus the SDK's time to its first token."""

    to_request: float = 0.0
    """From the publish of the turn to the arrival of the request."""

    to_text: float = 0.0
    """From the publish of the turn to the first text in SQL."""


async def measure(servers: Servers, *, turns: int, rounds: int) -> list[Figure]:
    """Returns the figures over this many turns in each round, one at a time."""

    async def ours() -> Firsts:
        return await _round(servers, turns)

    async def yardstick() -> Firsts:
        return Firsts(
            alone=(await latency.bare(servers, turns, PAUSES, WARM_UP)).p50,
            in_a_row=(await latency.bare(servers, turns, 0)).p50,
        )

    measured = await in_turns(ours, yardstick, rounds)

    def figure(
        name: str, ours: Callable[[Firsts], float], road: Callable[[Firsts], float], goal: float | None = None
    ) -> Figure:
        pairs = Rounds([ours(one) for one in measured.ours], [road(one) for one in measured.yardstick])
        return pairs.figure(name, "ms", float, goal)

    added = "first token in SQL, on top of the bare SDK, p50"
    return [
        figure(f"{added} / bare road at that pace", lambda one: one.added, lambda one: one.alone, 1.5),
        figure(
            f"{added} / bare road, one value right behind another",
            lambda one: one.added,
            lambda one: one.in_a_row,
        ),
        figure(
            "turn published to request at the model, p50", lambda one: one.to_request, lambda one: one.alone
        ),
        figure("turn published to first token in SQL, p50", lambda one: one.to_text, lambda one: one.alone),
    ]


async def _round(servers: Servers, turns: int) -> Firsts:
    offset = monotonic_offset()
    async with serving(words(TOKENS, pace=PACE, first_byte_secs=FIRST_TOKEN_SECONDS)) as server:
        sdk = await _of_the_sdk(server, turns, offset)
        async with scene(servers, [ANSWERING], "inference", **settings_for(server.openai_base_url)) as here:
            server.received.clear()
            published = await _talk(here, turns)
            rows = await here.rows(_FIRST_TEXTS)
            committed = await here.committed()
    arrived = [offset + one.arrived_at for one in server.received]
    visible = [committed.of(at) for (at,) in rows]
    steps = list(zip(published, arrived, visible, strict=True))[WARM_UP:]
    return Firsts(
        added=1e3 * median(visible_at - arrived_at for _, arrived_at, visible_at in steps) - sdk,
        to_request=1e3 * median(arrived_at - published_at for published_at, arrived_at, _ in steps),
        to_text=1e3 * median(visible_at - published_at for published_at, _, visible_at in steps),
    )


async def _talk(here: Scene, turns: int) -> Sequence[float]:
    """Publish turns, each in a conversation of its own, and wait for the end of each answer. Returns when each was
    published."""
    published = []
    for number in range(turns + WARM_UP):
        published.append(time.time())
        await here.publish({f"turn-{number:05}": turn("Talk to me.")})
        await here.until(
            "SELECT count(*) = 1 FROM runs WHERE context_id = %s AND status <> 'open'", f"turn-{number:05}"
        )
    return published


async def _of_the_sdk(server: ModelServer, turns: int, offset: float) -> float:
    """Returns the median milliseconds from the arrival of a request to its first token in the bare loop."""
    (stream_times,) = await bare(server.openai_base_url, [turns], "one-by-one")
    # The first request was the warm-up.
    arrived = [offset + one.arrived_at for one in server.received[1:]]
    return 1e3 * median(
        first_at - arrived_at for (_, first_at), arrived_at in zip(stream_times.firsts, arrived, strict=True)
    )


_FIRST_TEXTS = """
    SELECT extract(epoch FROM min(recorded_at))::float8
    FROM frames WHERE type = 'LLMTextFrame' GROUP BY context_id ORDER BY context_id
"""
