"""Asserts that the processor time of an operation is proportional to its size."""

from __future__ import annotations

import gc
from collections.abc import Callable
from time import thread_time

Work = Callable[[], object]

TIMES = 4
AT_MOST = 9
"""`TIMES` the size takes less than this many times as long. In quadratic time it is 16."""

TRIES = 5
"""On a busy machine the larger of two works may lose more of the processor's caches than the smaller one."""


def assert_proportional(of: Callable[[int], Work], count: int) -> None:
    """Raise AssertionError if the time of `of(number)` grows faster than in proportion to `number` in every
    measurement."""
    small, large = of(count), of(TIMES * count)
    took = []
    for _ in range(TRIES):
        took.append((_seconds(small), _seconds(large)))
        if took[-1][1] < AT_MOST * took[-1][0]:
            return
    raise AssertionError(f"{TIMES} times as much took more than {AT_MOST} times as long: {took} seconds")


def _seconds(run: Work) -> float:
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
