"""The yardstick of inference: the official SDK in a loop that only collects the text. Run as a process.

Its arguments are the server's address, the number of streams, and whether they are read concurrently or one after
another. It sends one request to warm up, writes a line, waits for a line, and then writes as JSON: its start and end,
when each request was sent and its first token arrived (Unix time in seconds), the number of tokens, and the CPU seconds
that it used.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from openai import AsyncOpenAI

from frameledger_services import process


@dataclass(frozen=True, slots=True)
class StreamTimes:
    """The measurements of the streams of one process."""

    began: float
    ended: float
    firsts: tuple[tuple[float, float], ...]
    """For each stream: the time of its request, and that of its first token."""

    tokens: int
    cpu_secs: float

    @classmethod
    def read(cls, text: str | bytes) -> Self:
        values: Mapping[str, Any] = json.loads(text)
        return cls(**{**values, "firsts": tuple((requested, first) for requested, first in values["firsts"])})


async def stream(client: AsyncOpenAI) -> tuple[float, float, int]:
    """Read an answer to its end. Returns the time of its request, the time of its first token, and the number of
    tokens."""
    requested_at, first_at, pieces = time.time(), 0.0, []
    answer = await client.chat.completions.create(
        model="bench",
        messages=[{"role": "user", "content": "Talk to me."}],
        stream=True,
        stream_options={"include_usage": True},
    )
    async for chunk in answer:
        if chunk.choices and (text := chunk.choices[0].delta.content):
            first_at = first_at or time.time()
            pieces.append(text)
    return requested_at, first_at, len(pieces)


async def read(base_url: str, streams: int, at_once: bool) -> StreamTimes:
    async with AsyncOpenAI(api_key="bench", base_url=base_url, max_retries=0) as client:
        await stream(client)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        began, cpu = time.time(), time.process_time()
        if at_once:
            answers = await asyncio.gather(*(stream(client) for _ in range(streams)))
        else:
            answers = [await stream(client) for _ in range(streams)]
        return StreamTimes(
            began=began,
            ended=time.time(),
            firsts=tuple((requested_at, first_at) for requested_at, first_at, _ in answers),
            tokens=sum(tokens for _, _, tokens in answers),
            cpu_secs=time.process_time() - cpu,
        )


def main() -> None:
    base_url, streams, how = sys.argv[1:]

    async def once(_: asyncio.Event) -> None:
        print(json.dumps(asdict(await read(base_url, int(streams), how == "at-once"))))

    process.run_service(once)


if __name__ == "__main__":
    main()
