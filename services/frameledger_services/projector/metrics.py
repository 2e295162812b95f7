"""Metrics of the projector, counted for each batch after its commit, from the written rows."""

from __future__ import annotations

import time
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

from frameledger.frames import FRAME_TYPES
from frameledger_services.projector.ownership import OwnedPartition, OwnedPartitions
from frameledger_services.projector.rows import Rows
from frameledger_services.store.outbox import OutboxRow
from frameledger_services.telemetry import metrics as listed
from frameledger_services.telemetry.metrics_recorder import NO_METRICS, Counting, Metrics

MAX_RUNS = 10_000
"""Maximum open runs whose request time is kept. The time to first text of other runs is not measured."""

MAX_ENDS = 1_000

clock = time.perf_counter


class ProjectorMetrics:
    """Metrics that are created once per process and outlive the sessions of the service."""

    def __init__(self, metrics: Metrics = NO_METRICS) -> None:
        self._metrics = metrics
        self._frames: dict[tuple[str, str], Counting] = {}
        # Open runs by context and id: the request time and the model.
        self._runs: OrderedDict[tuple[Any, ...], list[Any]] = OrderedDict()
        self.duplicates = metrics.counter(listed.PROJECTOR_DUPLICATES)
        self.forwarded = metrics.counter(listed.PROJECTOR_FORWARDED)
        self.fenced = metrics.counter(listed.PROJECTOR_FENCED)
        self._unknown = metrics.counter(listed.PROJECTOR_UNKNOWN_TYPES)
        self.head_loads = metrics.counter(listed.PROJECTOR_HEAD_LOADS)
        self._batch = metrics.histogram(listed.PROJECTOR_BATCH_FRAMES)
        self.visible = metrics.histogram(listed.PROJECTOR_VISIBLE)
        stages = {stage: metrics.histogram(listed.PROJECTOR_BATCH_DURATION, stage) for stage in listed.STAGES}
        self.decode, self.load, self.fold = stages["decode"], stages["load"], stages["fold"]
        self.write, self.commit, self.announce = stages["write"], stages["commit"], stages["announce"]
        self._sent = {
            kind: metrics.counter(listed.OUTBOX_SENT, kind) for kind in listed.OUTBOX_SENT.labels[0].values
        }
        # Their series are created at the first event, since most never occur.
        metrics.declare(
            listed.PROJECTOR_FRAMES, listed.PROJECTOR_REJECTED, listed.RUNS_REQUESTED, listed.RUNS
        )
        metrics.declare(listed.RUN_FIRST_TEXT, listed.CALLS)

    def stored(self, parts: Sequence[Rows]) -> None:
        """Count the rows of a commit."""
        frames = 0
        for part in parts:
            frames += len(part.frames)
            # The type and the outcome of each row.
            for key, count in Counter(row[7:9] for row in part.frames).items():
                bound = self._frames.get(key)
                if bound is None:
                    bound = self._bind(*key)
                bound.inc(count)
                if key[1] == "unknown":
                    self._unknown.inc(count)
            if part.outbox:
                forwarded = sum(1 for row in part.outbox if row.kind == "forward")
                if forwarded:
                    self.forwarded.inc(forwarded)
            for letter in part.rejections:
                self._metrics.counter(listed.PROJECTOR_REJECTED, letter.code).inc()
            for function, end in part.settled:
                self._metrics.counter(listed.CALLS, function, end).inc()
            if part.new_runs or part.run_patches:
                self._count_runs(part)
        if frames:
            self._batch.observe(frames)

    def sent(self, rows: Iterable[OutboxRow]) -> None:
        """Count outbox rows that the broker acknowledged."""
        for kind, count in Counter(row.kind for row in rows).items():
            self._sent[kind].inc(count)

    def watch(self, topic: str, owned: OwnedPartitions, heads: Callable[[], int]) -> None:
        """Expose the lag of the owned partitions and the number of cached heads."""
        watching = _Lag(topic, owned)
        self._metrics.watch(listed.PROJECTOR_LAG_RECORDS, watching.records)
        self._metrics.watch(listed.PROJECTOR_LAG_SECONDS, watching.seconds)
        self._metrics.watch(listed.PROJECTOR_HEADS_CACHED, lambda: {(): heads()})

    def _bind(self, frame_type: str, outcome: str) -> Counting:
        bound = self._metrics.counter(listed.PROJECTOR_FRAMES, frame_type, outcome)
        if frame_type in FRAME_TYPES:
            # The type of an unknown frame can be any text, so it is not cached.
            self._frames[frame_type, outcome] = bound
        return bound

    def _count_runs(self, part: Rows) -> None:
        for key, row in (*part.new_runs.items(), *part.run_patches.items()):
            known = self._runs.get(key)
            if "requested_at" in row:
                self._metrics.counter(listed.RUNS_REQUESTED, row["trigger"]).inc()
                known = self._runs[key] = [row["requested_at"], ""]
                if len(self._runs) > MAX_RUNS:
                    self._runs.popitem(last=False)
            if known is not None:
                known[1] = row.get("model") or known[1]
                first: datetime | None = row.get("first_text_at")
                if first is not None:
                    seconds = (first - known[0]).total_seconds()
                    self._metrics.histogram(listed.RUN_FIRST_TEXT, known[1]).observe(seconds)
            if "closed_at" in row:
                self._metrics.counter(listed.RUNS, row["status"]).inc()
                self._runs.pop(key, None)


class _Lag:
    """The lag of the partitions, computed at each scrape.

    The lag in seconds is measured between scrapes: records that were on the log at an earlier scrape and are not stored
    yet have waited at least since then.
    """

    def __init__(self, topic: str, owned: OwnedPartitions) -> None:
        self._topic = topic
        self._owned = owned
        self._ends: defaultdict[int, deque[tuple[float, int]]] = defaultdict(deque)
        """By partition: the times of scrapes and the end of the log at each."""

    def records(self) -> dict[tuple[str, ...], float]:
        return {(self._topic, str(one.partition)): _behind(one) for one in list(self._owned.values())}

    def seconds(self) -> dict[tuple[str, ...], float]:
        now = time.monotonic()
        return {
            (self._topic, str(one.partition)): self._seconds(one, now) for one in list(self._owned.values())
        }

    def _seconds(self, partition: OwnedPartition, now: float) -> float:
        ends = self._ends[partition.partition]
        while ends and ends[0][1] <= partition.next_offset:
            ends.popleft()
        if _behind(partition) and len(ends) < MAX_ENDS:
            end = partition.end_offset or 0
            if not ends or end > ends[-1][1]:
                ends.append((now, end))
        return now - ends[0][0] if ends else 0.0


def _behind(partition: OwnedPartition) -> int:
    return 0 if partition.end_offset is None else max(0, partition.end_offset - partition.next_offset)
