"""The database of the demo's functions: a SQLite file with ferries, weather and bookings."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE = "demo.sqlite"
"""Name of the file in the data directory."""

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
    """The database. Each query opens and closes the file, because functions run in several threads."""

    file: Path

    def prepare(self) -> None:
        """Create missing tables and reset the timetable. Bookings of earlier demos are kept."""
        with closing(self._connect()) as connection, connection:
            connection.execute("CREATE TABLE IF NOT EXISTS ferries (harbour, leaves, name, pier)")
            connection.execute("CREATE TABLE IF NOT EXISTS weather (harbour, sky, celsius, wind)")
            # Without a key, so that a booking made twice is stored twice.
            connection.execute("CREATE TABLE IF NOT EXISTS bookings (call, attempt, what, berth, at)")
            connection.execute("DELETE FROM ferries")
            connection.execute("DELETE FROM weather")
            connection.executemany("INSERT INTO ferries VALUES (?, ?, ?, ?)", _FERRIES)
            connection.executemany("INSERT INTO weather VALUES (?, ?, ?, ?)", _WEATHER)

    def ferries(self, harbour: str) -> list[dict[str, Any]]:
        """Returns the ferries of a harbour in order of departure."""
        return self._rows("SELECT leaves, name, pier FROM ferries WHERE harbour = ? ORDER BY leaves", harbour)

    def weather(self, harbour: str) -> dict[str, Any] | None:
        """Returns the weather of the morning, or None for an unknown harbour."""
        return next(
            iter(self._rows("SELECT sky, celsius, wind FROM weather WHERE harbour = ?", harbour)), None
        )

    def book(self, call: str, attempt: int, what: str, berth: int, at: str) -> None:
        """Write a booking, the effect that must not happen twice. `call` is the id of the function call."""
        with closing(self._connect()) as connection, connection:
            connection.execute(
                "INSERT INTO bookings VALUES (?, ?, ?, ?, ?)", (call, attempt, what, berth, at)
            )

    def bookings(self, calls: Iterable[str]) -> list[dict[str, Any]]:
        """Returns the bookings that these calls made, in order."""
        call_ids = set(calls)
        rows = self._rows("SELECT call, attempt, what, berth, at FROM bookings ORDER BY rowid")
        return [one for one in rows if one["call"] in call_ids]

    def _rows(self, query: str, *parameters: Any) -> list[dict[str, Any]]:
        with closing(self._connect()) as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(query, parameters)]

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.file, timeout=BUSY_SECONDS)
