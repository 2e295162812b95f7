"""Differences between the tables of one conversation and the fold of its frames."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

MAX_KEPT = 50
"""Maximum differences of a conversation that are kept; the others are only counted."""

ROW = "row"
"""The field of a difference that is a whole row: a missing or an unexpected one."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A column with a wrong value; or, with the field `ROW`, a row that is missing (`stored` is None) or unexpected
    (`expected` is None)."""

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
        """Whether it is in data that a rebuild reads and does not replace: frames, except for the columns that the fold
        derives."""
        return self.table == "frames" and self.field not in ("outcome", "reason")


@dataclass(slots=True)
class Differences:
    """The differences of one conversation: the first `MAX_KEPT` by their versions, and the count of all."""

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
        if len(self.kept) > 2 * MAX_KEPT:
            self.kept = self.in_order()

    def extend(self, others: Differences) -> None:
        """Add the differences of another comparison."""
        self.count += others.count
        self.kept = [*self.kept, *others.kept]
        if len(self.kept) > MAX_KEPT:
            self.kept = self.in_order()

    def in_order(self) -> list[Difference]:
        """Returns the kept differences by version, then in the order in which they were found."""
        return sorted(self.kept, key=lambda one: one.version)[:MAX_KEPT]

    @property
    def first(self) -> Difference | None:
        """The difference with the lowest version."""
        return min(self.kept, key=lambda one: one.version, default=None)
