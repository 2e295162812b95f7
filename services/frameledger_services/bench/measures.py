"""The measurements of a bench that needs servers, by name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from frameledger_services.bench.report import Figure
from frameledger_services.bench.road.servers import Servers

S = TypeVar("S")
"""The scale of a bench: how much it measures."""

Measures = Mapping[str, Callable[[Servers, S], Awaitable[Sequence[Figure]]]]
"""Each raises `BenchError` if the measured system fails."""
