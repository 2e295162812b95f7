"""Differences between the tables of one conversation and the fold of its frames."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

KEPT = 50
"""Number of differences of one conversation that are kept; the others are counted."""

ROW = "row"
"""The field of a difference that is a whole row: one that is missing, or one too many."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A column of a row with a wrong value; with the field `ROW` a row that is missing (`stored` is None) or should not
    exist (`expected` is None)."""

    version: int
    """The first version of the conversation at which it differs."""

    table: str
    key: Mapping[str, object]
    """The key of the row within its conversation."""

    field: str
    stored: object
    expected: object

    @property
    def is_of_a_frame(self) -> bool:
        """Whether it is in data that a rebuild reads and so does not replace: frames, except what the fold says of
        them."""
        return self.table == "frames" and self.field not in ("outcome", "reason")


@dataclass(slots=True)
class Differences:
    """The differences of one conversation, as they are found; the first `KEPT` of them by their versions."""

    count: int = 0
    kept: list[Difference] = field(default_factory=list)

    def add(
        self,
        version: int,
        table: str,
        field: str,
        stored: object,
        expected: object,
        key: Mapping[str, object] | None = None,
    ) -> None:
        self.count += 1
        self.kept.append(Difference(version, table, key or {}, field, stored, expected))
        if len(self.kept) > 2 * KEPT:
            self.kept = self.in_order()

    def extend(self, others: Differences) -> None:
        """Add what was found elsewhere."""
        self.count += others.count
        self.kept = [*self.kept, *others.kept]
        if len(self.kept) > KEPT:
            self.kept = self.in_order()

    def in_order(self) -> list[Difference]:
        """Returns the kept ones by version, those of one version in the order in which they were found."""
        return sorted(self.kept, key=lambda one: one.version)[:KEPT]

    @property
    def first(self) -> Difference | None:
        """The one of the lowest version."""
        return min(self.kept, key=lambda one: one.version, default=None)
