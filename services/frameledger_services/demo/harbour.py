"""The little database behind the demo's functions: a SQLite file with ferries, the weather, and bookings."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE = "demo.sqlite"
"""In the data directory."""

BOOKING = "order_breakfast"
"""The function that writes bookings."""

BUSY_SECONDS = 10.0

_FERRIES = [
    ("Brindle", "06:40", "Petrel", 2),
    ("Brindle", "08:00", "Auk", 1),
    ("Brindle", "11:15", "Petrel", 2),
    ("Sandmouth", "07:20", "Gannet", 1),
]
_WEATHER = [("Brindle", "rain", 8, "fresh, from the west"), ("Sandmouth", "fog", 6, "hardly any")]


@dataclass(frozen=True, slots=True)
class Harbour:
    """The database, by its file. Each question opens and closes it: functions run in several threads."""

    file: Path

    def prepare(self) -> None:
        """Make what is missing. The timetable is as it always was; bookings of earlier demos stay."""
        with closing(self._connect()) as connection, connection:
            connection.execute("CREATE TABLE IF NOT EXISTS ferries (harbour, leaves, name, pier)")
            connection.execute("CREATE TABLE IF NOT EXISTS weather (harbour, sky, celsius, wind)")
            # No key: a booking that was made twice shall be there twice.
            connection.execute("CREATE TABLE IF NOT EXISTS bookings (call, attempt, what, berth, at)")
            connection.execute("DELETE FROM ferries")
            connection.execute("DELETE FROM weather")
            connection.executemany("INSERT INTO ferries VALUES (?, ?, ?, ?)", _FERRIES)
            connection.executemany("INSERT INTO weather VALUES (?, ?, ?, ?)", _WEATHER)

    def ferries(self, harbour: str) -> list[dict[str, Any]]:
        """The ferries of a harbour, the first one first."""
        return self._rows("SELECT leaves, name, pier FROM ferries WHERE harbour = ? ORDER BY leaves", harbour)

    def weather(self, harbour: str) -> dict[str, Any] | None:
        """Returns the weather of the morning; None for a harbour without any."""
        return next(
            iter(self._rows("SELECT sky, celsius, wind FROM weather WHERE harbour = ?", harbour)), None
        )

    def book(self, call: str, attempt: int, what: str, berth: int, at: str) -> None:
        """Write a booking: the effect that must not happen twice. `call` is the id of the call that makes it."""
        with closing(self._connect()) as connection, connection:
            connection.execute(
                "INSERT INTO bookings VALUES (?, ?, ?, ?, ?)", (call, attempt, what, berth, at)
            )

    def bookings(self, calls: Iterable[str]) -> list[dict[str, Any]]:
        """The bookings that these calls made, in their order."""
        wanted = set(calls)
        found = self._rows("SELECT call, attempt, what, berth, at FROM bookings ORDER BY rowid")
        return [one for one in found if one["call"] in wanted]

    def _rows(self, query: str, *parameters: Any) -> list[dict[str, Any]]:
        with closing(self._connect()) as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(query, parameters)]

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.file, timeout=BUSY_SECONDS)
