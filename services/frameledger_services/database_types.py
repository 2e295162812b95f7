"""The type of a database connection, as every room names it."""

from __future__ import annotations

from typing import Any

from psycopg import AsyncConnection

Connection = AsyncConnection[Any]
"""An asynchronous connection of psycopg with rows of any type. `database.connect` opens one with timeouts."""
