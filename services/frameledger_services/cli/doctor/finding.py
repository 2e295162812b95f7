"""A finding of `doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check. `remedy` is empty if nothing has to be done."""

    check: str
    state: State
    found: str
    remedy: str = ""
