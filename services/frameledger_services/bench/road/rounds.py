"""Alternating measurement of two works on a machine with other load.

Who goes first changes from round to round, and the ratio is taken within each round: what slows the machine down for
longer than that slows both. The median of the ratios counts, and its interval says how far to trust it.
"""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import comb
from statistics import median
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
        """One number of each round, `read` from what came of it, as a figure."""
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


def interval_of_median(ratios: Sequence[float]) -> tuple[float, float]:
    """Between which of these ratios the median of all that could have been taken lies, nine times of ten at least.
    Fewer than five do not say that: the lowest and the highest then.

    Whatever the ratios are distributed like, each is below that median as often as above: so many of `n` are below as a
    coin shows heads in `n` throws.
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
    """Measure both so many times; the first `warm_up` rounds do not count."""
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
    """No garbage collection inside the block: it would fall to whoever is at work when a counter is full. For what is
    measured within this process."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
