"""Watchdog: SIGALRM kills a process whose decoding or fold does not return.

That counts as a crash like any other: after several, the record is isolated and parked (`crashes`).
"""

from __future__ import annotations

import signal

SECONDS = 30.0
"""The limit for decoding or folding a batch. The largest batch takes about a second."""


class TimeLimit:
    """Kill the process by SIGALRM if this block, which must not await, takes longer than `SECONDS`."""

    def __enter__(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, SECONDS)

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
