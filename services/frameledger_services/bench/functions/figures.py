"""The figures of functions in order of measurement, and their scales."""

from __future__ import annotations

from dataclasses import dataclass

from frameledger_services.bench.functions import crowd, latency
from frameledger_services.bench.measures import Measures


@dataclass(frozen=True, slots=True)
class Scale:
    """The scale of the measurements."""

    rounds: int = 5
    calls: int = 60
    crowd: int = 1_000


QUICK = Scale(rounds=1, calls=5, crowd=20)
"""Enough to test the bench itself, and too little to measure speed."""

MEASURES: Measures[Scale] = {
    "latency": lambda servers, scale: latency.measure(servers, calls=scale.calls, rounds=scale.rounds),
    "crowd": lambda servers, scale: crowd.measure(servers, calls=scale.crowd),
}
