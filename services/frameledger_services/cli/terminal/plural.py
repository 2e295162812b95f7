"""Numbers of things, as a person says them."""

from __future__ import annotations


def plural(count: int, thing: str) -> str:
    """`1 frame`, `2 frames`, `1,000 frames`: of things whose plural has an s."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"
