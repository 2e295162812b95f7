"""Failpoints: named points between two statements, where a test kills, freezes or delays the process.

A component that has some takes a `Failpoint`, called with a point's name each time that it is passed. In production it
is `none`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

Failpoint = Callable[[str], Awaitable[None]]


async def none(point: str) -> None:
    """No failpoint is set."""
