"""The processor time of reading a context over HTTP, in microseconds: the gateway compared with a bare ASGI app that
sends the same bytes.

Only the gateway's process is measured, with all of its work: the token's permissions, the SQL statement, the access
log. The clients are the same process for both; they read conversations in turn over several connections at once. A
gateway keeps the bytes of a conversation that it read recently, and only checks whether they are the newest; a second
gateway keeps nothing, so each of its reads is a first read.
"""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.request import urlopen

from frameledger.frames import LLMMessagesAppendFrame
from frameledger_services.bench.gateway.server_processes import GATEWAY, WITHIN, until_up
from frameledger_services.bench.report import Figure
from frameledger_services.bench.road.processes import free_port, output_of, running
from frameledger_services.bench.road.rounds import in_turns, summed
from frameledger_services.bench.road.servers import Servers
from frameledger_services.bench.road.stream import context_ids
from frameledger_services.bench.scene import Scene, cpu_seconds, scene
from frameledger_services.settings import Settings

READERS = "frameledger_services.bench.gateway.readers"
BARE_READS = "frameledger_services.bench.gateway.bare_reads"

MESSAGES = 24
MESSAGE_BYTES = 450
GOAL = 2.0


@dataclass(frozen=True, slots=True)
class Reading:
    """The numbers of requests and conversations."""

    connections: int
    requests: int
    """Requests of a slice."""

    slices: int
    """Slices of a round: gateway and yardstick alternate within it, since the speed of a machine may change in a
    second."""

    contexts: int


@dataclass(frozen=True, slots=True)
class _Server:
    """A process that responds to requests."""

    settings: Settings
    process: Process
    port: int

    async def cpu_of(self, load: Reading, *conditions: str) -> float:
        """Returns the CPU seconds that the process takes to respond."""
        before = cpu_seconds([self.process])
        numbers = (self.port, load.connections, load.requests, load.contexts)
        await output_of(self.settings, READERS, *map(str, numbers), *conditions, within=WITHIN)
        return cpu_seconds([self.process]) - before


async def measure(servers: Servers, *, load: Reading, rounds: int) -> list[Figure]:
    """Returns the CPU microseconds for a context of about 12 KB, and for the response that it has not changed."""
    async with (
        scene(servers, [], "functions", log_level="info") as here,
        _gateway(here) as gateway,
        _gateway(here, gateway_kept_mb=0) as forgetful,
    ):
        await _fill(here, load.contexts)
        content, headers = await asyncio.to_thread(_read, gateway.port, context_ids(load.contexts)[0])
        with TemporaryDirectory(prefix="frameledger-bench-") as folder:
            file = Path(folder) / "context.json"
            file.write_bytes(content)
            port = free_port()
            module = (BARE_READS, str(port), str(file), json.dumps(headers))
            async with _answering(here.settings, port, module) as bare:
                known = dict(headers)["etag"]
                return [
                    await _figure("a context read", gateway, bare, load, rounds, goal=GOAL),
                    await _figure("a context that nobody read before", forgetful, bare, load, rounds),
                    await _figure("a context that is known", gateway, bare, load, rounds, conditions=[known]),
                ]


async def _figure(
    name: str,
    gateway: _Server,
    bare: _Server,
    load: Reading,
    rounds: int,
    *,
    conditions: Sequence[str] = (),
    goal: float | None = None,
) -> Figure:
    measured = await in_turns(
        lambda: gateway.cpu_of(load, *conditions),
        lambda: bare.cpu_of(load),
        rounds * load.slices,
        warm_up=load.slices,
    )
    return summed(measured, load.slices).figure(
        f"CPU of {name}, {load.connections} at once / bare ASGI, the whole context",
        "us",
        lambda one: 1e6 * one / (load.requests * load.slices),
        goal,
    )


@asynccontextmanager
async def _gateway(here: Scene, **changes: Any) -> AsyncIterator[_Server]:
    port = free_port()
    settings = here.settings.model_copy(update={"gateway_port": port, **changes})
    async with _answering(settings, port, GATEWAY) as gateway:
        yield gateway


@asynccontextmanager
async def _answering(settings: Settings, port: int, module: Sequence[str]) -> AsyncIterator[_Server]:
    # Logging is part of the measured work; the log itself is not needed.
    async with running(settings, *module, stderr=DEVNULL) as process:
        await until_up(process, port)
        yield _Server(settings, process, port)


async def _fill(here: Scene, contexts: int) -> None:
    """Store conversations of about 12 KB each."""
    text = "x" * MESSAGE_BYTES
    message = LLMMessagesAppendFrame(messages=({"role": "user", "content": text},))
    await here.publish(
        {name: [message.model_copy() for _ in range(MESSAGES)] for name in context_ids(contexts)}
    )
    stored = "SELECT count(*) = %s FROM contexts WHERE context_id <> 'first' AND version = %s"
    await here.until(stored, contexts, MESSAGES)


def _read(port: int, context_id: str) -> tuple[bytes, list[tuple[str, str]]]:
    """Returns a context, and the headers of its response, without those that every server adds itself."""
    with urlopen(f"http://localhost:{port}/v1/contexts/{context_id}", timeout=WITHIN) as answer:
        headers = [(name.lower(), value) for name, value in answer.headers.items()]
        return answer.read(), [one for one in headers if one[0] not in ("date", "connection")]
