"""The latency of live streams in milliseconds, from the COMMIT of a frame to each client that follows its conversation,
with many clients of one gateway; and the gateway's CPU time and memory.

Ours is the whole path: frames are published at a pace, a projector stores them, and one gateway process sends each to
all clients of its conversation. The yardstick is a bare ASGI app that has the frames in memory and sends the same bytes
at the same pace. The clients are the same process for both. The bench fails if a stream leaves out or repeats a frame.
"""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from statistics import median

import psutil

from frameledger.frames import AnyFrame
from frameledger_services.bench.gateway.server_processes import GATEWAY, POLL_SECONDS, WITHIN, until_up
from frameledger_services.bench.report import Figure
from frameledger_services.bench.road.pace import at_pace
from frameledger_services.bench.road.processes import BenchError, free_port, running
from frameledger_services.bench.road.rounds import in_turns, percentile
from frameledger_services.bench.road.servers import Servers
from frameledger_services.bench.road.stream import context_ids, interleaved
from frameledger_services.bench.scene import cpu_seconds, scene
from frameledger_services.settings import Settings

LISTENERS = "frameledger_services.bench.gateway.listeners"
BARE_STREAMS = "frameledger_services.bench.gateway.bare_streams"

FRAME_BYTES = 355
GOAL_MS = 100.0
EARLIER = 3
"""The time is divided into this many parts; the memory at the end is compared with the highest in the first part."""


@dataclass(frozen=True, slots=True)
class Load:
    """The numbers of streams, conversations and frames."""

    streams: int
    contexts: int
    each: int
    """Frames of each conversation; the first one is stored before the clients connect."""

    rate: int
    """Frames per second, of all conversations together."""

    @property
    def events(self) -> int:
        """The number of frames that are received live, over all streams."""
        return self.streams * (self.each - 1)


@dataclass(frozen=True, slots=True)
class StreamedRound:
    """The result of a round."""

    milliseconds: Sequence[float]
    """From the COMMIT of a frame to its arrival at a client, for each frame and client."""

    cpu: float
    """CPU seconds of the sending process."""

    memory: Sequence[float]
    """Megabytes of the sending process, sampled during the round."""


async def measure(servers: Servers, *, load: Load, rounds: int) -> list[Figure]:
    """Returns the milliseconds from COMMIT to a client, and the CPU time and memory of the sending process."""
    measured = await in_turns(lambda: _by_gateway(servers, load), lambda: _by_bare_app(servers, load), rounds)
    name = f"{load.streams:,} streams of {load.contexts:,} conversations, {load.rate} frames/s"
    p99 = median(_percentile(one, 99) for one in measured.ours)
    early = median(max(one.memory[: len(one.memory) // EARLIER + 1]) for one in measured.ours)
    late = median(one.memory[-1] for one in measured.ours)
    return [
        Figure(
            f"{name}: COMMIT to client, p99 / {GOAL_MS:.0f} ms",
            p99,
            "ms",
            GOAL_MS,
            p99 / GOAL_MS,
            1.0,
            "at most",
        ),
        *(
            measured.figure(
                f"the same, p{percent} / bare ASGI", "ms", partial(_percentile, percent=percent), None
            )
            for percent in (50, 99)
        ),
        measured.figure("CPU per event / bare ASGI", "us", lambda one: 1e6 * one.cpu / load.events, None),
        Figure("memory in the end / after a third", late, "MB", early, late / early, 1.1, "at most"),
    ]


def _percentile(streamed: StreamedRound, percent: int) -> float:
    return percentile(streamed.milliseconds, percent)


async def _by_gateway(servers: Servers, load: Load) -> StreamedRound:
    port = free_port()
    # Without this it logs each stream that starts.
    async with scene(servers, [], "functions", gateway_port=port, log_level="warning") as here:

        async def say(named_frame: tuple[str, AnyFrame]) -> None:
            name, frame = named_frame
            await here.client.publish(name, frame)

        frames = interleaved(load.contexts, load.each, FRAME_BYTES)
        for _ in range(load.contexts):
            await say(next(frames))
        await here.until(_STORED, load.contexts, within=WITHIN)
        async with (
            running(here.settings, *GATEWAY) as gateway,
            _listening(here.settings, gateway, port, load) as clients,
        ):
            watching = asyncio.create_task(_watched(gateway, clients))
            await at_pace(say, frames, load.rate)
            received, cpu, memory = await watching
        rows = await here.rows(_RECORDED)
        committed = await here.committed()
        visible = {(name, version): committed.of(at) for name, version, at in rows}
        sent = [
            [visible[name, version] for version in range(1, load.each + 1)]
            for name in context_ids(load.contexts)
        ]
    return StreamedRound(_milliseconds(sent, received), cpu, memory)


async def _by_bare_app(servers: Servers, load: Load) -> StreamedRound:
    port = free_port()
    numbers = (port, load.streams, load.contexts, load.each, load.rate, FRAME_BYTES)
    with servers.database() as settings:
        async with running(settings, BARE_STREAMS, *map(str, numbers)) as app:
            async with _listening(settings, app, port, load) as clients:
                received, cpu, memory = await _watched(app, clients)
            app.terminate()
            output, _ = await app.communicate()
    return StreamedRound(_milliseconds(json.loads(output), received), cpu, memory)


@asynccontextmanager
async def _listening(settings: Settings, server: Process, port: int, load: Load) -> AsyncIterator[Process]:
    """Yields the clients of a server when all of them have caught up."""
    await until_up(server, port)
    numbers = (port, load.streams, load.contexts, load.each)
    async with running(settings, LISTENERS, *map(str, numbers)) as clients:
        async with asyncio.timeout(WITHIN):
            await _line(clients)
        yield clients


async def _watched(server: Process, clients: Process) -> tuple[list[list[float]], float, list[float]]:
    """Returns when each client received each frame, and the CPU time and memory of the server until all had."""
    memory: list[float] = []
    before = cpu_seconds([server])
    receiving = asyncio.create_task(_line(clients))
    async with asyncio.timeout(WITHIN):
        while not receiving.done():
            memory.append(psutil.Process(server.pid).memory_info().rss / 1e6)
            await asyncio.wait([receiving], timeout=POLL_SECONDS)
    return json.loads(receiving.result()), cpu_seconds([server]) - before, memory


def _milliseconds(sent: Sequence[Sequence[float]], received: Sequence[Sequence[float]]) -> list[float]:
    """Returns the latency of each frame and client, without the frames that were stored before."""
    return [
        1e3 * (there - here)
        for number, stream in enumerate(received)
        for here, there in list(zip(sent[number % len(sent)], stream, strict=True))[1:]
    ]


async def _line(process: Process) -> bytes:
    assert process.stdout is not None
    line = await process.stdout.readline()
    if not line:
        raise BenchError("The clients of the streams ended; what they said is above.")
    return line


_STORED = "SELECT count(*) = %s FROM contexts WHERE context_id <> 'first'"
_RECORDED = "SELECT context_id, version, extract(epoch FROM recorded_at)::float8 FROM frames"
