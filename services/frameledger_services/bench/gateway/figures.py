"""The figures of the gateway in order of measurement, and their scales."""

from __future__ import annotations

from dataclasses import dataclass

from frameledger_services.bench.gateway import appends, reads, streams
from frameledger_services.bench.gateway.reads import Reading
from frameledger_services.bench.gateway.streams import Load
from frameledger_services.bench.measures import Measures


@dataclass(frozen=True, slots=True)
class Scale:
    """The scale of the measurements."""

    rounds: int = 3
    streams: int = 1_000
    contexts: int = 100
    each: int = 61
    """Frames of each conversation."""

    rate: int = 300
    """Frames per second, of all conversations together."""

    connections: int = 32
    requests: int = 1_000
    slices: int = 20
    """Slices of a round, each of `requests` requests."""

    appends: int = 20
    """Frames of each conversation."""


QUICK = Scale(
    rounds=1, streams=20, contexts=4, each=16, rate=60, connections=4, requests=600, slices=1, appends=2
)
"""Enough to test the bench itself, and too little to measure speed."""

MEASURES: Measures[Scale] = {
    "appends": lambda servers, scale: appends.measure(servers, each=scale.appends, rounds=scale.rounds),
    "reads": lambda servers, scale: reads.measure(
        servers,
        load=Reading(scale.connections, scale.requests, scale.slices, scale.contexts),
        rounds=scale.rounds,
    ),
    "streams": lambda servers, scale: streams.measure(
        servers, load=Load(scale.streams, scale.contexts, scale.each, scale.rate), rounds=scale.rounds
    ),
}
