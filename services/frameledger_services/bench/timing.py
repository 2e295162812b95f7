"""Comparison of two works on a machine with other load.

Both run in every round, one directly after the other, in alternating order: load that lasts longer than a round slows
both. The result is the median of the ratios within the rounds, so that a few disturbed rounds have no influence. Time
is the CPU time of this process; waiting for a core does not count.

The first rounds are discarded, because they fill caches and let the interpreter specialise its bytecode. The garbage
collector is off: a collection would be charged to the work that runs when a counter is full, and empty the free lists
of the next one.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

WARM_UP = 3
"""Discarded rounds at the start."""

Work = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The median seconds of each work, and the median of `ours / yardstick` over the rounds."""

    ours: float
    yardstick: float
    ratio: float


def compare(
    prepare_ours: Callable[[], Work], prepare_yardstick: Callable[[], Work], rounds: int
) -> Comparison:
    """Time two works against each other. Each is prepared again, outside of the timed part, for every round."""
    gc.collect()
    gc.disable()
    try:
        pairs = [_round(prepare_ours, prepare_yardstick, number) for number in range(WARM_UP + rounds)]
    finally:
        gc.enable()
    del pairs[:WARM_UP]
    return Comparison(
        ours=median(ours for ours, _ in pairs),
        yardstick=median(yardstick for _, yardstick in pairs),
        ratio=median(ours / yardstick for ours, yardstick in pairs),
    )


def _round(
    prepare_ours: Callable[[], Work], prepare_yardstick: Callable[[], Work], number: int
) -> tuple[float, float]:
    if number % 2:
        ours = _seconds(prepare_ours)
        return ours, _seconds(prepare_yardstick)
    yardstick = _seconds(prepare_yardstick)
    return _seconds(prepare_ours), yardstick


def _seconds(prepare: Callable[[], Work]) -> float:
    work = prepare()
    start = time.process_time_ns()
    work()
    return (time.process_time_ns() - start) / 1e9
