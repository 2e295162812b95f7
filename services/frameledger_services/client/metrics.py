"""Metrics of a client's publishes."""

from __future__ import annotations

import time
from collections.abc import Mapping

from frameledger_services.client.errors import FramesRefusedError, FramesUnacknowledgedError, NotVisibleError
from frameledger_services.telemetry import metrics as listed
from frameledger_services.telemetry.metrics_recorder import NO_METRICS, Metrics, Observing

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

    def publishing(self) -> _Publishing:
        """Context manager that measures one `publish` and counts it by its result. A cancelled one is not counted."""
        return _Publishing(self._results)


class _Publishing:
    def __init__(self, results: Mapping[str, Observing]) -> None:
        self._results = results
        self._began = time.perf_counter()

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is None:
            result = "ok"
        elif isinstance(error, Exception):
            result = next((word for one, word in _ERRORS if isinstance(error, one)), "error")
        else:
            return
        self._results[result].observe(time.perf_counter() - self._began)
