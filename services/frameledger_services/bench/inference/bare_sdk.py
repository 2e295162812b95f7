"""The yardstick of inference: the official SDK in a loop that gathers the text and does nothing else. A process.

Its arguments are the server's address, how many streams, and whether they are read at once or one after another. It
asks once to be warm, says so with a line, waits for a line, and then writes as JSON: when it began and ended, when each
request was made and its first token came (seconds since 1970), the tokens, and the processor's seconds that it used.
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
class Told:
    """What came of the streams of a process."""

    began: float
    ended: float
    firsts: tuple[tuple[float, float], ...]
    """Of each stream: when it was asked for, and when its first token was there."""

    tokens: int
    cpu_secs: float

    @classmethod
    def read(cls, text: str | bytes) -> Self:
        values: Mapping[str, Any] = json.loads(text)
        return cls(**{**values, "firsts": tuple((asked, first) for asked, first in values["firsts"])})


async def stream(client: AsyncOpenAI) -> tuple[float, float, int]:
    """Read an answer to its end: when it was asked for, when its first token came, and how many came."""
    asked, first, pieces = time.time(), 0.0, []
    answer = await client.chat.completions.create(
        model="bench",
        messages=[{"role": "user", "content": "Talk to me."}],
        stream=True,
        stream_options={"include_usage": True},
    )
    async for chunk in answer:
        if chunk.choices and (text := chunk.choices[0].delta.content):
            first = first or time.time()
            pieces.append(text)
    return asked, first, len(pieces)


async def read(base_url: str, streams: int, at_once: bool) -> Told:
    async with AsyncOpenAI(api_key="bench", base_url=base_url, max_retries=0) as client:
        await stream(client)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        began, cpu = time.time(), time.process_time()
        if at_once:
            came = await asyncio.gather(*(stream(client) for _ in range(streams)))
        else:
            came = [await stream(client) for _ in range(streams)]
        return Told(
            began=began,
            ended=time.time(),
            firsts=tuple((asked, first) for asked, first, _ in came),
            tokens=sum(tokens for _, _, tokens in came),
            cpu_secs=time.process_time() - cpu,
        )


def main() -> None:
    base_url, streams, how = sys.argv[1:]

    async def once(_: asyncio.Event) -> None:
        print(json.dumps(asdict(await read(base_url, int(streams), how == "at-once"))))

    process.run_service(once)


if __name__ == "__main__":
    main()
