"""The cost of metrics and traces per frame, in microseconds of CPU time: batches are decoded, folded and counted in a
process without servers.

Of each batch the shortest of many times counts, so other load on the machine, which changes frames per second by a
tenth and more, has little influence. Writing the rows is left out, because it is the same either way. What is measured
is about half of a projector's work for a frame, so a ratio here is stricter than that of a projector.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from functools import partial
from time import process_time_ns

from frameledger.ids import ContextId
from frameledger.partition import partition_for
from frameledger.record import Record
from frameledger_services.bench.report import Figure
from frameledger_services.bench.road.direct import LOGGED_AT_MS, PARTITIONS
from frameledger_services.bench.road.processes import BenchError, running
from frameledger_services.bench.road.rounds import in_turns, no_collections
from frameledger_services.bench.road.servers import Servers
from frameledger_services.bench.telemetry import watching
from frameledger_services.bench.telemetry.projector import traced
from frameledger_services.bench.telemetry.watching import Watching
from frameledger_services.event_log.topics import TopicNames
from frameledger_services.projector.batch_fold import BatchFold
from frameledger_services.projector.batch_span import batch_span, note_outcomes
from frameledger_services.projector.decoded import decode_record
from frameledger_services.projector.head import Head
from frameledger_services.projector.metrics import ProjectorMetrics
from frameledger_services.projector.outbox_rows import effect_topics
from frameledger_services.projector.ownership import ProjectorTopics
from frameledger_services.settings import Settings
from frameledger_services.telemetry.metrics_recorder import NO_METRICS
from frameledger_services.telemetry.metrics_registry import ProcessMetrics
from frameledger_services.telemetry.provider import recording

ALONE = ("frameledger_services.bench.telemetry.batches",)
COUNTED = "counted"
"""The argument with which such a process records metrics, as for `/metrics`."""

TOPIC = "llm.frames"
TOPICS = ProjectorTopics(TOPIC, "llm.frames.dlq", effect_topics(TopicNames("")), PARTITIONS)
BATCH = 500
WITHIN = 300.0

WAYS: tuple[tuple[str, Watching, tuple[str, ...], float], ...] = (
    ("metrics", watching.nobody, (COUNTED,), 0.98),
    ("traces", watching.by_traces, (), 0.97),
)


async def measure(_: Servers, *, contexts: int, each: int, repeats: int, rounds: int) -> list[Figure]:
    """Returns the microseconds per frame, with this many conversations of `each` frames; each batch is processed
    `repeats` times."""
    size = [str(contexts), str(each), str(repeats)]
    figures: list[Figure] = []
    for name, watch, words, goal in WAYS:
        measured = await in_turns(
            partial(_alone, watch, [*size, *words]), partial(_alone, watching.nobody, size), rounds
        )
        figures.append(
            measured.figure(f"a batch, {name} / without: CPU", "us/frame", float, round(1 / goal, 3))
        )
    return figures


async def _alone(watch: Watching, words: Sequence[str]) -> float:
    """Returns the output of a new process."""
    with watch() as watched:
        async with running(Settings(), *ALONE, *words, also=watched.environment) as process:
            output, _ = await asyncio.wait_for(process.communicate(), WITHIN)
    if process.returncode != 0:
        raise BenchError(f"A process that folds batches ended with exit code {process.returncode}.")
    return float(output)


def _us_per_frame(records: Sequence[Record], repeats: int, metrics: ProjectorMetrics) -> float:
    """Returns the microseconds of CPU time per frame, for each batch the shortest."""
    batches = [records[first : first + BATCH] for first in range(0, len(records), BATCH)]
    shortest = [sys.maxsize] * len(batches)
    with no_collections():
        for _ in range(repeats):
            heads = {
                name: Head.new(ContextId(name)) for name in {(one.key or b"").decode() for one in records}
            }
            for number, batch in enumerate(batches):
                began = process_time_ns()
                _fold(batch, heads, metrics)
                shortest[number] = min(shortest[number], process_time_ns() - began)
    return sum(shortest) / len(records) / 1_000


def _fold(batch: Sequence[Record], heads: dict[str, Head], metrics: ProjectorMetrics) -> None:
    """Do a projector's work for a batch, without the database."""
    decoded = [decode_record(one) for one in batch]
    with batch_span(TOPIC, "projector", decoded) as span:
        parts = BatchFold(heads, TOPICS, None).fold(decoded)
        metrics.stored(parts)
        note_outcomes(span, parts)


def _records(contexts: int, each: int) -> list[Record]:
    """Returns the records of a backlog."""
    ends = [0] * PARTITIONS
    records = []
    for record in traced(contexts, each):
        partition = partition_for(record.key, PARTITIONS)
        place = (TOPIC, partition, ends[partition])
        records.append(Record(*place, record.key, record.value, record.headers, LOGGED_AT_MS))
        ends[partition] += 1
    return records


def main() -> None:
    """Print the microseconds per frame. Traces are recorded if the environment has an endpoint for them."""
    contexts, each, repeats = map(int, sys.argv[1:4])
    counted = ProcessMetrics() if COUNTED in sys.argv[4:] else NO_METRICS
    records = _records(contexts, each)
    with recording("bench", counted):
        print(_us_per_frame(records, repeats, ProjectorMetrics(counted)))


if __name__ == "__main__":
    main()
