"""Metrics of the timekeeper: closed runs, calls and turns, and the open work of the whole database."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from frameledger_services.store.work_to_do import WorkToDo
from frameledger_services.telemetry import metrics as listed
from frameledger_services.telemetry.metrics_recorder import NO_METRICS, Metrics


class TimekeeperMetrics:
    """Created once per process."""

    def __init__(self, metrics: Metrics = NO_METRICS) -> None:
        self._metrics = metrics
        metrics.declare(listed.TIMEKEEPER_SETTLED)
        self._behind = metrics.gauge(listed.PROJECTION_LAG)
        self._found = {
            "contexts_parked": metrics.gauge(listed.CONTEXTS_PARKED),
            "calls_waiting": metrics.gauge(listed.CALLS_WAITING),
            "calls_ambiguous": metrics.gauge(listed.CALLS_AMBIGUOUS),
            "runs_open": metrics.gauge(listed.RUNS_OPEN),
            "outbox_oldest_seconds": metrics.gauge(listed.OUTBOX_OLDEST),
        }
        self._outbox = {
            kind: metrics.gauge(listed.OUTBOX_ROWS, kind) for kind in listed.OUTBOX_ROWS.labels[0].values
        }

    def settled(self, rules: Iterable[str]) -> None:
        """Count published closing frames by rule."""
        for rule in rules:
            self._metrics.counter(listed.TIMEKEEPER_SETTLED, rule).inc()

    def observe_ends(self, ends: Mapping[int, int], reached: Mapping[int, int]) -> None:
        """Expose the number of records that were on the log at the previous sweep and are not stored. Without end
        offsets, as during an outage of the broker, the value does not change."""
        if not ends:
            return
        self._behind.set(sum(max(0, end - reached.get(partition, 0)) for partition, end in ends.items()))

    def observe_work(self, work: WorkToDo) -> None:
        """Expose the open work."""
        for name, gauge in self._found.items():
            gauge.set(getattr(work, name))
        for kind, rows in self._outbox.items():
            rows.set(work.outbox_rows.get(kind, 0))
