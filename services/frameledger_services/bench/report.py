"""The output of every bench: figures, each with its yardstick, their ratio, and the goal of the ratio."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rich import box
from rich.table import Table
from rich.text import Text


@dataclass(frozen=True, slots=True)
class Figure:
    """A measurement: `value` and `yardstick` are in the same `unit`.

    `ratio` is that of value to yardstick. It may differ from the quotient of the two numbers shown: it may be the
    median of many ratios while they are two medians. `bound` is the side of `goal` on which it must be; a figure
    without a goal is only reported. `spread` is the confidence interval of the ratio if it is a median
    (`rounds.interval_of_median`), else the lowest and the highest ratio.
    """

    name: str
    value: float
    unit: str
    yardstick: float
    ratio: float
    goal: float | None
    bound: Literal["at least", "at most"]
    spread: tuple[float, float] | None = None

    @property
    def ok(self) -> bool:
        if self.goal is None:
            return True
        return self.ratio >= self.goal if self.bound == "at least" else self.ratio <= self.goal

    def as_json(self) -> dict[str, Any]:
        """Returns the keys that every bench writes, in this order, and `spread` if it was measured. `ok` stands for
        `bound`."""
        values = {
            "name": self.name,
            "value": _rounded(self.value),
            "unit": self.unit,
            "yardstick": _rounded(self.yardstick),
            "ratio": round(self.ratio, 3),
            "goal": self.goal,
            "ok": self.ok,
        }
        if self.spread is not None:
            values["spread"] = [round(ratio, 3) for ratio in self.spread]
        return values


def as_json(figures: Sequence[Figure]) -> str:
    """Returns the figures as a JSON list of objects."""
    return json.dumps([figure.as_json() for figure in figures], indent=2)


def as_table(figures: Sequence[Figure]) -> Table:
    """Returns the figures as a table."""
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("figure")
    for heading in ("value", "yardstick"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("unit", no_wrap=True)
    table.add_column("ratio", justify="right", no_wrap=True)
    spread = any(figure.spread is not None for figure in figures)
    if spread:
        table.add_column("from - to", justify="right", no_wrap=True)
    table.add_column("goal", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for figure in figures:
        table.add_row(
            figure.name,
            _for_people(figure.value),
            _for_people(figure.yardstick),
            figure.unit,
            f"{figure.ratio:.2f}",
            *([_spread(figure)] if spread else []),
            *_verdict(figure),
        )
    return table


def _spread(figure: Figure) -> str:
    return "" if figure.spread is None else "{:.2f} - {:.2f}".format(*figure.spread)


def _verdict(figure: Figure) -> tuple[str, Text]:
    """Returns the goal, and whether it was met."""
    if figure.goal is None:
        return "", Text()
    sign = "≥" if figure.bound == "at least" else "≤"
    return f"{sign} {figure.goal:g}", Text("ok", "green") if figure.ok else Text("missed", "red")


def _rounded(number: float) -> float:
    """Returns a number with four significant digits; more would be noise."""
    return float(f"{number:.4g}")


def _for_people(number: float) -> str:
    return f"{_rounded(number):,.0f}" if number >= 100 else f"{_rounded(number):,.2f}"
