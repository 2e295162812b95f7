"""Metrics of a client's publishes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from frameledger_services.client.errors import FramesRefusedError, FramesUnacknowledgedError, NotVisibleError
from frameledger_services.telemetry import metrics as listed
from frameledger_services.telemetry.metrics_recorder import NO_METRICS, Metrics

_ERRORS: tuple[tuple[type[Exception], str], ...] = (
    (FramesRefusedError, "refused"),
    (FramesUnacknowledgedError, "unacknowledged"),
    (NotVisibleError, "not_visible"),
)


class PublishMetrics:
    """Metrics of one client."""

    def __init__(self, metrics: Metrics = NO_METRICS) -> None:
        self._results = {
            result: metrics.histogram(listed.PUBLISH, result) for result in listed.PUBLISH.labels[0].values
        }

    @contextmanager
    def publishing(self) -> Iterator[None]:
        """Measure one `publish` and count it by its result. A cancelled one is not counted."""
        began = time.perf_counter()
        try:
            yield
        except Exception as error:
            result = next((word for kind, word in _ERRORS if isinstance(error, kind)), "error")
            self._results[result].observe(time.perf_counter() - began)
            raise
        self._results["ok"].observe(time.perf_counter() - began)
