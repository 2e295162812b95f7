"""What a service is given to count with: `Metrics`. Without a registry it counts nothing, at no cost."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Protocol

from frameledger_services.telemetry.metrics import Counter, Gauge, Histogram, Metric


class Counting(Protocol):
    """A counter with all its labels."""

    def inc(self, amount: float = 1) -> None:
        """Add so much."""


class Showing(Protocol):
    """A gauge with all its labels."""

    def set(self, value: float) -> None:
        """It is so much now."""


class Observing(Protocol):
    """A histogram with all its labels."""

    def observe(self, amount: float) -> None:
        """Count one observation of this size."""


Read = Callable[[], Mapping[tuple[str, ...], float]]
"""Returns what a gauge is now, by the values of its labels. Called in the thread of whoever asks for `/metrics`."""


class Metrics(ABC):
    """Gives out what is counted with. Ask once, at the start, and keep what you got: finding the labels' values costs
    ten times what counting does. Asked twice with the same values, it gives the same."""

    @abstractmethod
    def counter(self, metric: Counter, *values: str) -> Counting:
        """Returns the counter of these values, one for each label."""

    @abstractmethod
    def gauge(self, metric: Gauge, *values: str) -> Showing:
        """Returns the gauge of these values."""

    @abstractmethod
    def histogram(self, metric: Histogram, *values: str) -> Observing:
        """Returns the histogram of these values."""

    @abstractmethod
    def declare(self, *metrics: Metric) -> None:
        """Show that these are counted here, before anything is. For those whose labels' values come with what happens;
        the others are there once they were asked for."""

    @abstractmethod
    def watch(self, metric: Gauge, read: Read) -> None:
        """From now on this gauge is what `read` returns when somebody asks. Takes the place of what was given before;
        an error of `read` shows as no series."""


class _Nothing:
    """Counts nothing."""

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
"""For a process that nobody asks."""
