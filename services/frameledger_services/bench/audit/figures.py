"""The figures of audit in order of measurement, and their scales."""

from __future__ import annotations

from dataclasses import dataclass

from frameledger_services.bench.audit import asking, rebuilding, verifying
from frameledger_services.bench.measures import Measures


@dataclass(frozen=True, slots=True)
class Scale:
    """The scale: `rounds` of measurements that take seconds, and `turns` of those that take milliseconds."""

    rounds: int = 5
    turns: int = 25
    contexts: int = 100
    each: int = 200
    frames: int = 1_000
    others: int = 5_000


QUICK = Scale(rounds=1, turns=1, contexts=4, each=40, frames=100, others=20)
"""Enough to test the bench itself, and too little to measure speed."""

MEASURES: Measures[Scale] = {
    "verify": lambda servers, scale: verifying.measure(
        servers, contexts=scale.contexts, each=scale.each, rounds=scale.rounds
    ),
    "rebuild": lambda servers, scale: rebuilding.measure(
        servers, contexts=scale.contexts, each=scale.each, rounds=scale.rounds
    ),
    "asking": lambda servers, scale: asking.measure(
        servers, frames=scale.frames, others=scale.others, rounds=scale.turns
    ),
}
