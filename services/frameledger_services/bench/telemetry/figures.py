"""The figures of metrics and traces in order of measurement, and their scales."""

from __future__ import annotations

from dataclasses import dataclass

from frameledger_services.bench.measures import Measures
from frameledger_services.bench.telemetry import batches, projector, workers


@dataclass(frozen=True, slots=True)
class Scale:
    """The scale of the measurements."""

    contexts: int = 800
    each: int = 100
    rounds: int = 9
    folded_contexts: int = 200
    folded_each: int = 60
    repeats: int = 9
    folded_rounds: int = 7
    streams: int = 20
    tokens: int = 300
    answer_rounds: int = 5


QUICK = Scale(
    # Several batches, because the first is discarded.
    contexts=80,
    each=100,
    rounds=1,
    folded_contexts=20,
    folded_each=30,
    repeats=1,
    folded_rounds=1,
    streams=2,
    tokens=20,
    answer_rounds=1,
)
"""Enough to test the bench itself, and too little to measure speed."""

MEASURES: Measures[Scale] = {
    "batches": lambda servers, scale: batches.measure(
        servers,
        contexts=scale.folded_contexts,
        each=scale.folded_each,
        repeats=scale.repeats,
        rounds=scale.folded_rounds,
    ),
    "projector": lambda servers, scale: projector.measure(
        servers, contexts=scale.contexts, each=scale.each, rounds=scale.rounds
    ),
    "workers": lambda servers, scale: workers.measure(
        servers, streams=scale.streams, tokens=scale.tokens, rounds=scale.answer_rounds
    ),
}
