"""The types of metrics and labels; `metrics` lists all metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

OTHER = "other"
"""The label value for all values that are not listed, or come after the first `MAX_NAMES`."""


MAX_NAMES = 50
"""Maximum values of an open label in one process. Any model or function name can occur in a conversation."""


Unit = Literal["", "seconds", "frames", "records", "tokens"]


Of = Literal[
    "projector", "timekeeper", "worker", "inference", "functions", "gateway", "client", "every service"
]


@dataclass(frozen=True, slots=True)
class Label:
    """A label and its values: those listed, or the open set that `open_to` names."""

    name: str
    values: tuple[str, ...] = ()
    open_to: Literal["", "names", "settings"] = ""
    """`names`: up to `MAX_NAMES` values, then `other`. `settings`: configured names, such as topics."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. `high` says what a high value means and what to do."""

    name: str
    of: Of
    meaning: str
    high: str = ""
    labels: tuple[Label, ...] = ()
    unit: Unit = ""


class Counter(Metric):
    """A counter of events; its name ends in `_total`."""

    __slots__ = ()


class Gauge(Metric):
    """A current value."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Histogram(Metric):
    """Observations, counted in buckets."""

    buckets: tuple[float, ...] = ()
