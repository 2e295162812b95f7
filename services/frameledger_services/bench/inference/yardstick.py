"""Runs the bare SDK loop: one process, or several that start together."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Literal

from frameledger_services.bench.inference.bare_sdk import StreamTimes
from frameledger_services.bench.road.processes import BenchError
from frameledger_services.bench.road.servers import command

BARE_SDK = "frameledger_services.bench.inference.bare_sdk"
WITHIN = 120.0


async def bare(
    base_url: str, streams: Sequence[int], how: Literal["at-once", "one-by-one"] = "at-once"
) -> list[StreamTimes]:
    """Run one process for each number of streams. They start together when all have warmed up. Raises `BenchError`."""
    async with AsyncExitStack() as stack:
        processes: list[Process] = []
        for count in streams:
            process = await asyncio.create_subprocess_exec(
                *command("-m", BARE_SDK, base_url, str(count), how), stdin=PIPE, stdout=PIPE, process_group=0
            )
            stack.callback(_kill, process)
            processes.append(process)
        try:
            async with asyncio.timeout(WITHIN):
                for process in processes:
                    assert process.stdout is not None, "it is a pipe"
                    if not await process.stdout.readline():
                        raise BenchError("The bare SDK loop did not begin.")
                outputs = await asyncio.gather(*(process.communicate(b"go\n") for process in processes))
        except TimeoutError:
            raise BenchError(f"The bare SDK loop did not end within {WITHIN:.0f} s.") from None
    if any(process.returncode for process in processes):
        raise BenchError("The bare SDK loop failed.")
    return [StreamTimes.read(output) for output, _ in outputs]


def _kill(process: Process) -> None:
    if process.returncode is None:
        process.kill()
