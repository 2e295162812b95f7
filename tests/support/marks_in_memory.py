"""Fakes of the marks that gateways share, in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from tests.support.turns import turns

from frameledger_services.gateway.shared_marks import Mark


class Marks:
    """The marks of all gateways."""

    def __init__(self) -> None:
        self.marks: Counter[Mark] = Counter()

    def add(self, *mark: str) -> None:
        self.marks[mark] += 1

    def remove(self, *mark: str) -> None:
        self.marks[mark] -= 1

    async def settle(self) -> None:
        """Marks that are set at once."""

    async def found(self, marks: Collection[Mark]) -> set[Mark]:
        return {one for one in marks if self.marks[one] > 0}


class SlowMarks(Marks):
    """Marks whose database is slow to respond."""

    async def found(self, marks: Collection[Mark]) -> set[Mark]:
        await turns(1)
        return await super().found(marks)
