"""All figures of audit, in the order in which they are measured, and how much is done for each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from frameledger_services.bench.audit import asking, rebuilding, verifying
from frameledger_services.bench.report import Figure
from frameledger_services.bench.road.servers import Servers


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured. `rounds` is for what takes seconds a round, `turns` for what takes milliseconds."""

    rounds: int = 5
    turns: int = 25
    contexts: int = 100
    each: int = 200
    frames: int = 1_000
    others: int = 5_000


QUICK = Scale(rounds=1, turns=1, contexts=4, each=40, frames=100, others=20)
"""Enough to see that everything works, and too little to say how well."""

Measure = Callable[[Servers, Scale], Awaitable[Sequence[Figure]]]

MEASURES: dict[str, Measure] = {
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
"""By the name with which one is asked for. Each raises `BenchError` when what is measured does not work at all."""
