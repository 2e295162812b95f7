"""The throughput of one projector with metrics or traces, in frames per second, compared with the same projector
without.

One in a hundred conversations carries a trace that is recorded, the others one that is not, as published by clients
that sample.

The first tenth of a backlog is discarded: it contains what happens once, such as the first scrape of `/metrics`, which
comes only every 15 seconds and would otherwise be in each of the short rounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from frameledger.ids import ContextId
from frameledger.record import Outgoing, outgoing
from frameledger_services.bench.report import Figure
from frameledger_services.bench.road import stream
from frameledger_services.bench.road.processes import PROJECTOR, running
from frameledger_services.bench.road.progress import until_projected
from frameledger_services.bench.road.rounds import in_turns
from frameledger_services.bench.road.servers import Servers
from frameledger_services.bench.road.throughput import FRAME_BYTES, WITHIN, publish_records, rate
from frameledger_services.bench.scene import cpu_seconds
from frameledger_services.bench.telemetry import watching
from frameledger_services.bench.telemetry.watching import Watching
from frameledger_services.settings import Settings

EVERY = round(1 / watching.SHARE)

WARM_UP_SHARE = 10
"""The discarded part of a backlog: one in this many."""


@dataclass(frozen=True, slots=True)
class ProjectedRound:
    """The result of a round: frames per second by the database's clock, and CPU time of the process per frame, both
    without the first tenth of the frames."""

    rate: float
    cpu_us: float


WAYS: tuple[tuple[str, Watching, float], ...] = (
    ("metrics", watching.by_metrics, 0.98),
    ("traces", watching.by_traces, 0.97),
    ("traces for a dead collector", watching.by_nobody_at_the_address, 0.97),
)


async def measure(servers: Servers, *, contexts: int, each: int, rounds: int) -> list[Figure]:
    """Returns frames per second with this many conversations of `each` frames, which are on the log before the
    projector starts."""
    figures: list[Figure] = []
    with servers.database() as settings:
        settings = await servers.make_topics(settings)
    try:
        count = await publish_records(settings, traced(contexts, each))
        for name, watch, goal in WAYS:
            measured = await in_turns(
                partial(_worked_off, servers, settings, count, watch),
                partial(_worked_off, servers, settings, count, watching.nobody),
                rounds,
                warm_up=1,
            )
            figures += [
                measured.figure(
                    f"projector, {name} / without", "frames/s", lambda one: one.rate, goal, "at least"
                ),
                measured.figure(
                    f"projector, {name} / without: CPU",
                    "us/frame",
                    lambda one: one.cpu_us,
                    round(1 / goal, 3),
                ),
            ]
    finally:
        await servers.delete_topics(settings)
    return figures


async def _worked_off(servers: Servers, log: Settings, count: int, watch: Watching) -> ProjectedRound:
    """Run a projector until it has stored all `count` records of the topics in `log`."""
    with servers.database() as here, watch() as watched:
        here = here.model_copy(update={"topic_prefix": log.topic_prefix, **watched.settings})
        async with running(here, *PROJECTOR, also=watched.environment) as process:
            # The batch that passes the tenth is in neither part: its number of frames is known only afterwards.
            passed = await until_projected(here, count // WARM_UP_SHARE, process, within=WITHIN)
            cpu_before = cpu_seconds([process])
            await until_projected(here, count, process, within=WITHIN)
            used = cpu_seconds([process]) - cpu_before
        return ProjectedRound(
            await rate(here, "frames", skipped=count // WARM_UP_SHARE), 1e6 * used / (count - passed)
        )


def traced(contexts: int, each: int) -> Iterator[Outgoing]:
    """Returns the records of such a backlog, with traces."""
    numbers = {context_id: number for number, context_id in enumerate(stream.context_ids(contexts))}
    for context_id, frame in stream.interleaved(contexts, each, FRAME_BYTES):
        number = numbers[context_id]
        sampled = number % EVERY == 0
        traceparent = f"00-{number + 1:032x}-{number + 1:016x}-{sampled:02x}"
        yield outgoing(frame, ContextId(context_id), source=stream.SOURCE, traceparent=traceparent)
