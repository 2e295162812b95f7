"""The projector, run as its command runs it, that says when each of its transactions was committed.

A time for each, in seconds since 1970 by this machine's clock, as JSON on standard output when it stops.
"""

from __future__ import annotations

import asyncio
import json
import time

from frameledger_services.cli import run
from frameledger_services.projector import service
from frameledger_services.settings import Settings


def watch() -> list[float]:
    """Serve until SIGTERM; the times at which a commit returned, in order."""
    committed: list[float] = []

    async def passing(step: str) -> None:
        if step == "after commit":
            committed.append(time.time())

    async def serve(settings: Settings, stopping: asyncio.Event) -> None:
        await service.serve(settings, stopping, passing)

    run.live(serve)
    return committed


if __name__ == "__main__":
    print(json.dumps(watch()))
