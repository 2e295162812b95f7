"""Numbers that Python reads in JSON and that JSON does not have."""

from __future__ import annotations

from typing import NoReturn


def no_constant(name: str) -> NoReturn:
    """Raise ValueError: a `parse_constant` of `json`, which takes NaN and both infinities otherwise."""
    raise ValueError(f"{name} is no number of JSON")
