"""The projector, run as its command runs it, that says when each of its transactions was committed.

A time for each, in seconds since 1970 by this machine's clock, as JSON on standard output when it stops.
"""

from __future__ import annotations

import json
import os
import time

from frameledger_services import life
from frameledger_services.projector import service
from frameledger_services.settings import load


def watch() -> list[float]:
    """Serve until SIGTERM; the times at which a commit returned, in order."""
    committed: list[float] = []

    async def passing(step: str) -> None:
        if step == "after commit":
            committed.append(time.time())

    settings = load(os.environ).settings
    life.live(lambda stopping: service.serve(settings, stopping, passing))
    return committed


if __name__ == "__main__":
    print(json.dumps(watch()))
