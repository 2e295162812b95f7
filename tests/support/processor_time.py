"""Whether something takes time in proportion to its size: of `TIMES` as much, less than `AT_MOST` times as long."""

from __future__ import annotations

import gc
from collections.abc import Callable
from time import thread_time

TIMES = 4
AT_MOST = 9
"""In quadratic time it is 16."""


def seconds(run: Callable[[], object]) -> float:
    """The least of several: what it takes without what else the machine does."""
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
