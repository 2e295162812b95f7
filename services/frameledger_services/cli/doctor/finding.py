"""What a check of `doctor` hands over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found. `remedy` is empty if there is nothing to be done."""

    check: str
    state: State
    found: str
    remedy: str = ""
