"""The figures of inference in order of measurement, and their scales."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from frameledger_services.bench.inference import first_token, interruptions, throughput
from frameledger_services.bench.measures import Measures


@dataclass(frozen=True, slots=True)
class Scale:
    """The scale of the measurements."""

    rounds: int = 3
    loads: Sequence[throughput.Load] = throughput.LOADS
    tokens: int = 450
    turn_rounds: int = 5
    turns: int = 40
    interruptions: int = 200
    lost: int = 50


QUICK = Scale(
    rounds=1,
    loads=(throughput.Load(2, 2, 0.9),),
    tokens=20,
    turn_rounds=1,
    turns=5,
    interruptions=10,
    lost=10,
)
"""Enough to test the bench itself, and too little to measure speed."""

MEASURES: Measures[Scale] = {
    "throughput": lambda servers, scale: throughput.measure(
        servers, tokens=scale.tokens, rounds=scale.rounds, loads=scale.loads
    ),
    "first-token": lambda servers, scale: first_token.measure(
        servers, turns=scale.turns, rounds=scale.turn_rounds
    ),
    "interruptions": lambda servers, scale: interruptions.measure(
        servers, interruptions=scale.interruptions, lost=scale.lost
    ),
}
