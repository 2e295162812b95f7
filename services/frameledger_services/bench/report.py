"""The form of every bench: figures, each with its yardstick, its ratio to it and the goal of that ratio."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rich import box
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Figure:
    """What was measured: `value` and `yardstick` are in the same `unit`.

    `ratio` is that of value to yardstick, and need not be the quotient of the two numbers shown: it may be the median
    of many ratios where they are two medians. `bound` says on which side of `goal` it has to be.
    """

    name: str
    value: float
    unit: str
    yardstick: float
    ratio: float
    goal: float
    bound: Literal["at least", "at most"]

    @property
    def ok(self) -> bool:
        return self.ratio >= self.goal if self.bound == "at least" else self.ratio <= self.goal

    def as_json(self) -> dict[str, Any]:
        """The keys that every bench writes, in this order; `bound` is left to `ok`."""
        return {
            "name": self.name,
            "value": _rounded(self.value),
            "unit": self.unit,
            "yardstick": _rounded(self.yardstick),
            "ratio": round(self.ratio, 3),
            "goal": self.goal,
            "ok": self.ok,
        }


def as_json(figures: Sequence[Figure]) -> str:
    """For programs: a list of objects, one for each figure."""
    return json.dumps([figure.as_json() for figure in figures], indent=2)


def as_table(figures: Sequence[Figure]) -> Table:
    """For people: a row for each figure."""
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("figure")
    for heading in ("value", "yardstick"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("unit", no_wrap=True)
    for heading in ("ratio", "goal"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for figure in figures:
        sign = "≥" if figure.bound == "at least" else "≤"
        table.add_row(
            figure.name,
            _for_people(figure.value),
            _for_people(figure.yardstick),
            figure.unit,
            f"{figure.ratio:.2f}",
            f"{sign} {figure.goal:g}",
            "[green]ok[/]" if figure.ok else "[red]missed[/]",
        )
    return table


def _rounded(number: float) -> float:
    """Four significant digits: more would only be noise."""
    return float(f"{number:.4g}")


def _for_people(number: float) -> str:
    return f"{_rounded(number):,.0f}" if number >= 100 else f"{_rounded(number):,.2f}"
