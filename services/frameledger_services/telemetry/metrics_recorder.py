"""The interface with which services record metrics: `Metrics`. `NO_METRICS` records nothing, at no cost."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Protocol

from frameledger_services.telemetry.metric_types import Counter, Gauge, Histogram, Metric


class Counting(Protocol):
    """A counter with its label values."""

    def inc(self, amount: float = 1) -> None:
        """Add this amount."""


class Showing(Protocol):
    """A gauge with its label values."""

    def set(self, value: float) -> None:
        """Set the current value."""


class Observing(Protocol):
    """A histogram with its label values."""

    def observe(self, amount: float) -> None:
        """Count one observation of this value."""


Read = Callable[[], Mapping[tuple[str, ...], float]]
"""Returns the current values of a gauge by label values. Called in the thread of a `/metrics` request."""


class Metrics(ABC):
    """Returns counters, gauges and histograms. Get them once, at the start, and keep them: the lookup by label values
    is ten times as slow as counting. The same values return the same object."""

    @abstractmethod
    def counter(self, metric: Counter, *values: str) -> Counting:
        """Returns the counter with these label values, one for each label."""

    @abstractmethod
    def gauge(self, metric: Gauge, *values: str) -> Showing:
        """Returns the gauge with these label values."""

    @abstractmethod
    def histogram(self, metric: Histogram, *values: str) -> Observing:
        """Returns the histogram with these label values."""

    @abstractmethod
    def declare(self, *metrics: Metric) -> None:
        """Expose these metrics before the first event. Needed for metrics whose label values are not known in advance;
        the others are exposed when they are first requested."""

    @abstractmethod
    def watch(self, metric: Gauge, read: Read) -> None:
        """Read this gauge by `read` at each scrape. Replaces an earlier `read`. If `read` raises, the gauge has no
        series."""


class _Nothing:
    """Records nothing."""

    def inc(self, amount: float = 1) -> None: ...

    def set(self, value: float) -> None: ...

    def observe(self, amount: float) -> None: ...


class _NoMetrics(Metrics):
    def counter(self, metric: Counter, *values: str) -> Counting:
        return _NOTHING

    def gauge(self, metric: Gauge, *values: str) -> Showing:
        return _NOTHING

    def histogram(self, metric: Histogram, *values: str) -> Observing:
        return _NOTHING

    def declare(self, *metrics: Metric) -> None: ...

    def watch(self, metric: Gauge, read: Read) -> None: ...


_NOTHING = _Nothing()

NO_METRICS: Metrics = _NoMetrics()
"""For a process that exposes no metrics."""
