"""Alternating measurement of two works on a machine with other load.

The order changes from round to round, and the ratio is taken within each round: load that lasts longer than a round
slows both. The result is the median of the ratios, with its confidence interval.
"""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import comb
from statistics import median, quantiles
from typing import Generic, Literal, TypeVar

from frameledger_services.bench.report import Figure

T = TypeVar("T")

CONFIDENCE = 0.9


@dataclass(frozen=True, slots=True)
class Rounds(Generic[T]):
    """The results of the rounds, in order."""

    ours: Sequence[T]
    yardstick: Sequence[T]

    def figure(
        self,
        name: str,
        unit: str,
        read: Callable[[T], float],
        goal: float | None,
        bound: Literal["at least", "at most"] = "at most",
    ) -> Figure:
        """Returns a figure of one number, which `read` takes from the result of each round."""
        ours, yardstick = [read(one) for one in self.ours], [read(one) for one in self.yardstick]
        ratios = [one / other for one, other in zip(ours, yardstick, strict=True)]
        return Figure(
            name=name,
            value=median(ours),
            unit=unit,
            yardstick=median(yardstick),
            ratio=median(ratios),
            goal=goal,
            bound=bound,
            spread=interval_of_median(ratios),
        )


def summed(rounds: Rounds[float], count: int) -> Rounds[float]:
    """Returns the sums of each `count` rounds, as rounds: the shorter the measurements that alternate, the less changes
    between the two of a pair."""

    def sums(values: Sequence[float]) -> list[float]:
        return [sum(values[at : at + count]) for at in range(0, len(values), count)]

    return Rounds(sums(rounds.ours), sums(rounds.yardstick))


def interval_of_median(ratios: Sequence[float]) -> tuple[float, float]:
    """Returns a confidence interval of at least 90% for the median of these ratios. With fewer than five ratios there
    is none: returns the lowest and the highest.

    It holds for every distribution: each ratio is below the true median with probability one half, so the number of
    ratios below it is binomial.
    """
    ordered, count = sorted(ratios), len(ratios)
    outside, below = 0.0, 0
    while (outside := outside + 2 * comb(count, below) / 2**count) <= 1 - CONFIDENCE:
        below += 1
    lowest = max(below - 1, 0)
    return ordered[lowest], ordered[-1 - lowest]


async def in_turns(
    ours: Callable[[], Awaitable[T]], yardstick: Callable[[], Awaitable[T]], rounds: int, warm_up: int = 0
) -> Rounds[T]:
    """Measure both this many times, alternately. The first `warm_up` rounds are discarded."""
    of_ours: list[T] = []
    of_yardstick: list[T] = []
    for number in range(warm_up + rounds):
        if number % 2:
            of_ours.append(await ours())
            of_yardstick.append(await yardstick())
        else:
            of_yardstick.append(await yardstick())
            of_ours.append(await ours())
    return Rounds(of_ours[warm_up:], of_yardstick[warm_up:])


@contextmanager
def no_collections() -> Iterator[None]:
    """Disable garbage collection within the block: it would be charged to the work that runs when a counter is full.
    For measurements within this process."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def percentile(values: Sequence[float], percent: int) -> float:
    """Returns a percentile of at least two values, from 1 to 99."""
    return quantiles(values, n=100, method="inclusive")[percent - 1]
