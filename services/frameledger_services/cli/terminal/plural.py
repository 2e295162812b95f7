"""Counts with singular and plural nouns."""

from __future__ import annotations


def plural(count: int, noun: str) -> str:
    """Returns `1 frame`, `2 frames` or `1,000 frames`; the plural is formed with an s."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
