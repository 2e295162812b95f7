"""Failpoints: named points between two statements, at which a test kills, freezes or delays the process.

A component with failpoints takes a `Failpoint` and calls it with the name of each point that it passes. In production
it is `none`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

Failpoint = Callable[[str], Awaitable[None]]


async def none(point: str) -> None:
    """No failpoint is set."""
