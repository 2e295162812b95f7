"""The time until a publisher knows that its frame is stored, in milliseconds: over HTTP, compared with `Client`.

Both clients run in the process of the bench and wait for the same projector, so a request to the gateway is compared
with a producer in the publisher's own process.
"""

from __future__ import annotations

import time
from itertools import count
from statistics import median

from frameledger.frames import AnyFrame
from frameledger_services.bench.gateway.server_processes import GATEWAY, until_up
from frameledger_services.bench.report import Figure
from frameledger_services.bench.road.pace import at_pace
from frameledger_services.bench.road.processes import free_port, running
from frameledger_services.bench.road.rounds import in_turns
from frameledger_services.bench.road.servers import Servers
from frameledger_services.bench.road.stream import interleaved
from frameledger_services.bench.scene import scene
from frameledger_services.client import Client, HttpClient

FRAME_BYTES = 1_000
CONTEXTS = 20
GOAL = 1.4


async def measure(servers: Servers, *, each: int, rounds: int) -> list[Figure]:
    """Returns the milliseconds until a publisher knows, one frame after another, with this many frames of each
    conversation per round."""
    port = free_port()
    seeds = count()

    async with scene(servers, [], "functions", gateway_port=port, log_level="warning") as here:

        async def known_to(client: Client | HttpClient) -> float:
            async def publish(frame: tuple[str, AnyFrame]) -> float:
                began = time.perf_counter()
                await client.publish(*frame, wait=True)
                return 1e3 * (time.perf_counter() - began)

            # New ids in each round: in an existing conversation the frames would be ignored.
            frames = interleaved(CONTEXTS, each, FRAME_BYTES, seed=next(seeds))
            return median(await at_pace(publish, frames, 0))

        async with running(here.settings, *GATEWAY) as gateway:
            await until_up(gateway, port)
            async with HttpClient(f"http://127.0.0.1:{port}", "") as over_http:
                measured = await in_turns(
                    lambda: known_to(over_http), lambda: known_to(here.client), rounds, warm_up=1
                )
    return [
        measured.figure(
            "append and wait, p50 / Client.publish(wait=True)", "ms", lambda milliseconds: milliseconds, GOAL
        )
    ]
