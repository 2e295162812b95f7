"""Whether the time of something is proportional to its size: `TIMES` as much takes less than `AT_MOST` times as
long."""

from __future__ import annotations

import gc
from collections.abc import Callable
from time import thread_time

TIMES = 4
AT_MOST = 9
"""In quadratic time it is 16."""


def seconds(run: Callable[[], object]) -> float:
    """The minimum of several runs, which is least affected by other load."""
    took = []
    gc.disable()
    try:
        for _ in range(5):
            began = thread_time()
            run()
            took.append(thread_time() - began)
    finally:
        gc.enable()
    return min(took)
