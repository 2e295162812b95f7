"""A clock that continues while the machine is suspended."""

from __future__ import annotations

import time


def clock_through_suspend() -> float:
    """Returns the seconds of a monotonic clock that continues while the machine is suspended. On Linux the usual one
    stops then; on macOS it does not."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)
