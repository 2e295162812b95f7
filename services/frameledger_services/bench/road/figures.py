"""The figures from publish to SQL in order of measurement, and their scales."""

from __future__ import annotations

from dataclasses import dataclass

from frameledger_services.bench.measures import Measures
from frameledger_services.bench.road import flatness, latency, memory, reading, sizes, throughput


@dataclass(frozen=True, slots=True)
class Scale:
    """The scale: `rounds` of measurements that take seconds, and `turns` of those that take milliseconds."""

    rounds: int = 5
    turns: int = 25
    backlog_contexts: int = 400
    backlog_each: int = 150
    one_at_a_time: int = 300
    at_rate: int = 3_000
    late: int = 100_000
    sized_contexts: int = 300
    sized_each: int = 200
    remembered_contexts: int = 100_000
    messages: int = 5_000


QUICK = Scale(
    rounds=1,
    turns=1,
    backlog_contexts=40,
    backlog_each=30,
    one_at_a_time=20,
    at_rate=200,
    late=1_000,
    sized_contexts=20,
    sized_each=60,
    remembered_contexts=500,
    messages=100,
)
"""Enough to test the bench itself, and too little to measure speed."""

MEASURES: Measures[Scale] = {
    "throughput": lambda servers, scale: throughput.measure(
        servers, contexts=scale.backlog_contexts, each=scale.backlog_each, rounds=scale.rounds
    ),
    "latency": lambda servers, scale: latency.measure(
        servers, one_at_a_time=scale.one_at_a_time, at_rate=scale.at_rate, rounds=scale.rounds
    ),
    "flatness": lambda servers, scale: flatness.measure(servers, late=scale.late, rounds=scale.turns),
    "sizes": lambda servers, scale: sizes.measure(
        servers, contexts=scale.sized_contexts, each=scale.sized_each
    ),
    "memory": lambda servers, scale: memory.measure(servers, contexts=scale.remembered_contexts),
    "reading": lambda servers, scale: reading.measure(servers, messages=scale.messages, rounds=scale.turns),
}
