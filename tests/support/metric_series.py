"""The series of a metric, by the names that a query uses."""

from frameledger_services.telemetry.metric_types import Histogram, Metric


def series_of(metric: Metric) -> tuple[str, ...]:
    """Returns the names that a query can use for a metric."""
    if isinstance(metric, Histogram):
        return tuple(f"{metric.name}_{part}" for part in ("bucket", "count", "sum"))
    return (metric.name,)
