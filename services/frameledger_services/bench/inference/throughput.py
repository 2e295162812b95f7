"""Tokens per second through the whole road, compared with the bare SDK loop on the same server, and CPU time.

Ours counts from just before the turns are published until the last row of the last answer is written: turn, projector,
`llm.inference`, worker, provider, frames, tables. The bare loop counts from its first request to its last token. The
server writes at the pace of a model, so the ratio shows whether tokens are delayed, and the CPU time shows the cost.
"""

from __future__ import annotations

import asyncio
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count

from frameledger_services.bench.inference.workers import ANSWERING, settings_for
from frameledger_services.bench.inference.yardstick import bare
from frameledger_services.bench.report import Figure
from frameledger_services.bench.road.processes import BenchError
from frameledger_services.bench.road.rounds import in_turns
from frameledger_services.bench.road.servers import Servers, command
from frameledger_services.bench.scene import Scene, cpu_seconds, scene, turn

MODEL_SERVER = "frameledger_services.bench.inference.model_server"
PACE = 60
POLL_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Load:
    """The numbers of concurrent answers and of worker processes, and the minimum share of the bare loop's rate."""

    streams: int
    workers: int
    goal: float


LOADS = (Load(1, 1, 0.95), Load(20, 1, 0.95), Load(100, 2, 0.9))


@dataclass(frozen=True, slots=True)
class AnsweredRound:
    """The result of a round."""

    tokens: int
    secs: float
    cpu_secs: float
    projector_secs: float = 0.0

    @property
    def rate(self) -> float:
        return self.tokens / self.secs

    @property
    def cpu_us(self) -> float:
        return 1e6 * self.cpu_secs / self.tokens

    @property
    def whole_cpu_us(self) -> float:
        return 1e6 * (self.cpu_secs + self.projector_secs) / self.tokens


async def measure(
    servers: Servers, *, tokens: int, rounds: int, loads: Sequence[Load] = LOADS
) -> list[Figure]:
    """Returns the rates for answers of this many tokens at `PACE` per second, one answer for each stream in each
    round."""
    figures: list[Figure] = []
    async with model_server(tokens) as url:
        for load in loads:
            figures += await _measure(servers, f"{url}/v1", load, tokens, rounds)
    return figures


async def _measure(servers: Servers, base_url: str, load: Load, tokens: int, rounds: int) -> list[Figure]:
    numbers = count(1)
    async with scene(servers, [ANSWERING] * load.workers, "inference", **settings_for(base_url)) as here:

        async def ours() -> AnsweredRound:
            return await round_of(here, f"round-{next(numbers)}", load.streams, tokens)

        async def yardstick() -> AnsweredRound:
            shares = [len(range(one, load.streams, load.workers)) for one in range(load.workers)]
            streams = await bare(base_url, shares)
            secs = max(one.ended for one in streams) - min(one.began for one in streams)
            return AnsweredRound(
                sum(one.tokens for one in streams), secs, sum(one.cpu_secs for one in streams)
            )

        measured = await in_turns(ours, yardstick, rounds, warm_up=1)
    name = f"{load.streams} streams" if load.streams > 1 else "1 stream"
    if load.workers > 1:
        name += f", {load.workers} workers"
    return [
        measured.figure(
            f"{name}: whole road / bare SDK", "tokens/s", lambda one: one.rate, load.goal, "at least"
        ),
        measured.figure(f"{name}: CPU of the workers", "us/token", lambda one: one.cpu_us, None),
        measured.figure(f"{name}: and of the projector", "us/token", lambda one: one.whole_cpu_us, None),
    ]


async def round_of(here: Scene, name: str, streams: int, tokens: int) -> AnsweredRound:
    """Run this many answers at once, each of this many tokens, in conversations whose ids begin with `name`."""
    contexts = [f"{name}-{number}" for number in range(streams)]
    workers, projector = cpu_seconds(here.workers), cpu_seconds([here.projector])
    began = time.time()
    await here.publish({context_id: turn("Talk to me.") for context_id in contexts})
    await here.until(
        "SELECT count(*) = %s FROM runs WHERE context_id = ANY(%s) AND status <> 'open'",
        streams,
        contexts,
        pause=POLL_SECONDS,
    )
    # Workers finish claims and commit offsets after the last token; that is part of their CPU time.
    await here.until("SELECT count(*) = 0 FROM claims WHERE finished_at IS NULL")
    cpu_secs = cpu_seconds(here.workers) - workers
    projector_secs = cpu_seconds([here.projector]) - projector
    (ended,) = (await here.rows(_LAST, contexts))[0]
    ((counted, pieces),) = await here.rows(_TOKENS, contexts, contexts)
    if (counted, pieces) != (streams * tokens, streams * tokens):
        raise BenchError(f"Of {streams * tokens} tokens {pieces} came through, and {counted} were counted.")
    return AnsweredRound(counted, ended - began, cpu_secs, projector_secs)


_LAST = """
    SELECT extract(epoch FROM max(recorded_at))::float8
    FROM frames WHERE context_id = ANY(%s) AND type = 'LLMFullResponseEndFrame'
"""

_TOKENS = """
    SELECT sum(output_tokens)::bigint, (
        SELECT sum(regexp_count(payload ->> 'text', 'token'))::bigint
        FROM frames WHERE frames.context_id = ANY(%s) AND type = 'LLMTextFrame' AND outcome = 'applied'
    )
    FROM runs WHERE runs.context_id = ANY(%s)
"""


@asynccontextmanager
async def model_server(tokens: int) -> AsyncIterator[str]:
    """Yields the address of a model server in a process of its own."""
    arguments = ("--tokens", str(tokens), "--pace", str(PACE))
    process = await asyncio.create_subprocess_exec(
        *command("-m", MODEL_SERVER, *arguments), stdin=PIPE, stdout=PIPE, process_group=0
    )
    assert process.stdin is not None, "it is a pipe"
    assert process.stdout is not None, "it is a pipe"
    try:
        url = (await process.stdout.readline()).decode().strip()
        if not url:
            raise BenchError("The model server did not begin.")
        yield url
    finally:
        process.stdin.close()
        await process.wait()
