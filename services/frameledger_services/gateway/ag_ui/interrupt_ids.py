"""Ids of interrupts: in AG-UI a call that waits for a person is an interrupt of the run."""

from __future__ import annotations

import re


def interrupt_id(tool_call_id: str, requested_version: int) -> str:
    """Returns the id of the interrupt of a call. It is unique even if a model reuses the call's id."""
    return f"{tool_call_id}@{requested_version}"


_INTERRUPT = re.compile(r"(?s)(.+)@(\d{1,18})", re.ASCII)


def call_of_interrupt(interrupt: str) -> tuple[str, int] | None:
    """Returns the id of the interrupt's call and the version that requested it, or None if it is not an interrupt's
    id."""
    match = _INTERRUPT.fullmatch(interrupt)
    return None if match is None else (match[1], int(match[2]))
