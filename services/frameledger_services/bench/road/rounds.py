"""Two things measured in turns, while the machine does other things too.

Who goes first changes from round to round, and the ratio is taken within each round: what slows the machine down for
longer than that slows both. The median of the ratios counts, and the lowest and highest say how far to trust it.
"""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Generic, Literal, TypeVar

from frameledger_services.bench.report import Figure

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Rounds(Generic[T]):
    """What came of each round, in order."""

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
            spread=(min(ratios), max(ratios)),
        )


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
