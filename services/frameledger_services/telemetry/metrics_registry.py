"""The metrics of one process in a prometheus_client registry of its own, so that a host program's metrics are not
touched, and two services in one program do not collide unless they share a registry.

A metric is exposed when a service first requests it. Metrics whose labels are closed lists are exposed with all their
series at 0, so that rates include the first event.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Iterator
from importlib import metadata
from typing import Any

import prometheus_client
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from frameledger.stored import FOLD_VERSION
from frameledger_services.telemetry import metrics
from frameledger_services.telemetry.metric_types import (
    MAX_NAMES,
    OTHER,
    Counter,
    Gauge,
    Histogram,
    Label,
    Metric,
)
from frameledger_services.telemetry.metrics_recorder import Counting, Metrics, Observing, Read, Showing

MAX_FOUND = 5_000
"""Maximum cached series. Label values can come from clients, so the cache is bounded."""

MAX_AT_ONCE = 500
"""A metric with closed lists of labels creates all its series at the start unless there are more than this."""


class ProcessMetrics(Metrics):
    """Metrics in a registry. Thread-safe."""

    def __init__(self, registry: prometheus_client.CollectorRegistry | None = None) -> None:
        """`registry`: a registry to use instead of a new one, such as the one that a host program serves."""
        self.registry = _WithoutTimesOfCreation() if registry is None else registry
        self._families: dict[str, Any] = {}
        self._found: dict[tuple[str, tuple[str, ...]], Any] = {}
        self._watched: dict[str, _Watched] = {}
        self._names: dict[tuple[str, str], set[str]] = {}
        self._lock = threading.Lock()
        version = metadata.version("frameledger")
        self.gauge(metrics.BUILD_INFO, version, str(FOLD_VERSION)).set(1)
        self.declare(metrics.SPANS)

    def counter(self, metric: Counter, *values: str) -> Counting:
        child: Counting = self._child(metric, values)
        return child

    def gauge(self, metric: Gauge, *values: str) -> Showing:
        child: Showing = self._child(metric, values)
        return child

    def histogram(self, metric: Histogram, *values: str) -> Observing:
        child: Observing = self._child(metric, values)
        return child

    def declare(self, *metrics: Metric) -> None:
        with self._lock:
            for metric in metrics:
                self._family(metric)

    def watch(self, metric: Gauge, read: Read) -> None:
        with self._lock:
            watched = self._watched.get(metric.name)
            if watched is None:
                watched = self._watched[metric.name] = _Watched(metric, read)
                self.registry.register(watched)
            watched.read = read

    def _child(self, metric: Metric, values: tuple[str, ...]) -> Any:
        key = metric.name, values
        # Without the lock: entries are never replaced.
        child = self._found.get(key)
        if child is not None:
            return child
        with self._lock:
            family = self._family(metric)
            child = family.labels(*self._bounded(metric, values)) if metric.labels else family
            if len(self._found) < MAX_FOUND:
                self._found[key] = child
            return child

    def _family(self, metric: Metric) -> Any:
        """Returns the prometheus_client object of a metric, created at the first request."""
        family = self._families.get(metric.name)
        if family is not None:
            return family
        about = metric.name, metric.meaning, [label.name for label in metric.labels]
        match metric:
            case Counter():
                family = prometheus_client.Counter(*about, registry=self.registry)
            case Histogram():
                family = prometheus_client.Histogram(*about, registry=self.registry, buckets=metric.buckets)
            case _:
                family = prometheus_client.Gauge(*about, registry=self.registry)
        self._families[metric.name] = family
        for closed in _closed_series(metric.labels):
            family.labels(*closed)
        return family

    def _bounded(self, metric: Metric, values: tuple[str, ...]) -> Iterator[str]:
        for label, value in zip(metric.labels, values, strict=True):
            if label.values:
                yield value if value in label.values else OTHER
            elif label.open_to == "names":
                # A value has the same name in all metrics.
                known = self._names.setdefault(("", label.name), {""})
                if value not in known and len(known) <= MAX_NAMES:
                    known.add(value)
                yield value if value in known else OTHER
            else:
                yield value


def _closed_series(labels: tuple[Label, ...]) -> Iterable[tuple[str, ...]]:
    if not labels or not all(label.values for label in labels):
        return []
    series = list(itertools.islice(itertools.product(*(label.values for label in labels)), MAX_AT_ONCE + 1))
    return series if len(series) <= MAX_AT_ONCE else []


class _Watched(Collector):
    """A gauge that is read at each scrape."""

    def __init__(self, metric: Gauge, read: Read) -> None:
        self._metric = metric
        self.read = read

    def describe(self) -> Iterable[Family]:
        return [self._family()]

    def collect(self) -> Iterable[Family]:
        family = self._family()
        try:
            for values, number in self.read().items():
                family.add_metric(values, number)
        except Exception:
            # The values belong to an event loop in another thread and can change meanwhile; the next scrape has them.
            return [self._family()]
        return [family]

    def _family(self) -> GaugeMetricFamily:
        names = [label.name for label in self._metric.labels]
        return GaugeMetricFamily(self._metric.name, self._metric.meaning, labels=names)


class _WithoutTimesOfCreation(prometheus_client.CollectorRegistry):
    """A registry without the `_created` series of prometheus_client, which double the number of series and can
    otherwise only be disabled for the whole program."""

    def collect(self) -> Iterator[Family]:
        for family in super().collect():
            family.samples = [one for one in family.samples if not one.name.endswith("_created")]
            yield family
