"""All figures of functions, in the order in which they are measured, and how much is done for each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from frameledger_services.bench.functions import crowd, latency
from frameledger_services.bench.report import Figure
from frameledger_services.bench.road.servers import Servers


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured."""

    rounds: int = 5
    calls: int = 60
    crowd: int = 1_000


QUICK = Scale(rounds=1, calls=5, crowd=20)
"""Enough to see that everything works, and too little to say how well."""

Measure = Callable[[Servers, Scale], Awaitable[Sequence[Figure]]]

MEASURES: dict[str, Measure] = {
    "latency": lambda servers, scale: latency.measure(servers, calls=scale.calls, rounds=scale.rounds),
    "crowd": lambda servers, scale: crowd.measure(servers, calls=scale.crowd),
}
"""By the name with which one is asked for. Each raises `BenchError` when what is measured does not work at all."""
