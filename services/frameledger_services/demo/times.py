"""Time spent by phase."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Times:
    """Seconds by phase, in the order in which the phases started."""

    def __init__(self) -> None:
        self._spent: dict[str, float] = {}

    @contextmanager
    def of(self, what: str) -> Iterator[None]:
        """Measure the time of this block, also if it fails."""
        began = time.monotonic()
        self._spent[what] = 0.0
        try:
            yield
        finally:
            self._spent[what] = time.monotonic() - began

    def __getitem__(self, what: str) -> float:
        return self._spent[what]

    def __str__(self) -> str:
        """Returns, for example, `servers 7.4 s, conversation 23.3 s`. Phases that did not start are left out."""
        return ", ".join(f"{what} {spent:.1f} s" for what, spent in self._spent.items()) or "nothing started"
