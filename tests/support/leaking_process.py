"""A process whose service stops on request, but leaves a task or a thread running."""

from __future__ import annotations

import asyncio
import sys
import threading
from pathlib import Path
from typing import Any, Literal

from tests.support.processes import Process, preload

from frameledger_services import logs, process

preload(__name__)

Leaves = Literal["a task that ends", "a task that goes on", "a thread that goes on"]


def service(leaves: Leaves, output: Path, *, fails: bool = False) -> Process:
    """Returns the process. It sends `serving`, and `went on` if its program continues after the service. Its prints and
    logs go to `output`. With `fails` the service raises an error when it stops."""
    return Process(_run, leaves, output, fails)


def _run(leaves: Leaves, output: Path, fails: bool, said: Any) -> None:
    # A buffered file: it is written when it is flushed or closed.
    sys.stdout = sys.stderr = output.open("w", encoding="utf-8")
    logs.configure("info", "json")

    async def serve(stopping: asyncio.Event) -> None:
        begun = asyncio.Event()
        leaving = asyncio.create_task(_leave(leaves, begun), name=leaves)
        await begun.wait()
        said.send("serving")
        await stopping.wait()
        print("last words")
        assert not leaving.done()
        if fails:
            raise LookupError("a bug")

    process.run_service(serve)
    said.send("went on")


async def _leave(leaves: Leaves, begun: asyncio.Event) -> None:
    begun.set()
    if leaves == "a thread that goes on":
        await asyncio.to_thread(threading.Event().wait)
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if leaves == "a task that ends":
                raise
