"""Metrics of a worker: claims, leases and slots."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from frameledger_services import claims
from frameledger_services.telemetry import metrics as listed
from frameledger_services.telemetry.metrics_recorder import NO_METRICS, Metrics


class WorkMetrics:
    """Metrics of one service in one process, which outlive the sessions of its worker."""

    def __init__(self, service: str, kind: claims.Kind, metrics: Metrics = NO_METRICS) -> None:
        self._service = service
        self._metrics = metrics
        work = "run" if kind == "inference" else "call"
        self._new = metrics.counter(listed.WORK_CLAIMS, service, work, "new")
        self._taken_over = metrics.counter(listed.WORK_CLAIMS, service, work, "takeover")
        self._waited = metrics.histogram(listed.WORK_QUEUE, service)
        self.leases_lost = metrics.counter(listed.WORK_LEASES_LOST, service)

    def claimed(self, claimed_work: Sequence[claims.Claimed]) -> None:
        """Count the claims of one statement."""
        for work in claimed_work:
            if work.taken_over:
                self._taken_over.inc()
            else:
                self._new.inc()
                self._waited.observe(work.age_secs)

    def watch(self, slots: int, free: Callable[[], int]) -> None:
        """Expose the number of busy and free slots."""

        def read() -> dict[tuple[str, ...], float]:
            left = free()
            return {(self._service, "busy"): slots - left, (self._service, "free"): left}

        self._metrics.watch(listed.WORK_SLOTS, read)
