"""The projector, run like by its command, that records when each of its transactions was committed, and when it was on
disk.

Writes both times of each transaction, in order, as Unix time in seconds by this machine's clock, as JSON on standard
output when it stops.
"""

from __future__ import annotations

import json
import time

from frameledger_services import process
from frameledger_services.projector import service
from frameledger_services.settings import Settings


def watch() -> dict[str, list[float]]:
    """Serve until SIGTERM. Returns the times at which commits returned, and those at which they were announced: they
    were on disk by then."""
    committed: list[float] = []
    on_disk: list[float] = []
    announcing = 0

    async def failpoint(step: str) -> None:
        nonlocal announcing
        if step == "after commit":
            committed.append(time.time())
        elif step == "before announcing":
            announcing = len(committed)
        elif step == "announced":
            on_disk.extend([time.time()] * (announcing - len(on_disk)))

    settings = Settings.from_env()
    process.collect_garbage_rarely()
    process.run_service(lambda stopping: service.serve(settings, stopping, failpoint))
    return {"committed": committed, "on_disk": on_disk}


if __name__ == "__main__":
    print(json.dumps(watch()))
