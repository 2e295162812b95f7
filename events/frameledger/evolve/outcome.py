"""The outcome of a frame, and the closed list of reasons for which a frame is ignored."""

from __future__ import annotations

from typing import Literal

Outcome = Literal["applied", "ignored", "unknown", "parked"]
"""`applied` also where a frame is only recorded; `parked` is given by the store, never by the fold."""

Reason = Literal[
    "no_open_turn",
    "no_open_response",
    "run_over",
    "attempt_superseded",
    "call_unknown",
    "call_settled",
    "call_started",
    "call_forgotten",
    "call_open_already",
    "intermediate_of_synchronous",
    "place_replaced",
    "nothing_said",
    "context_ended",
    "run_response_open",
    "target_over",
    "context_changed",
    "busy",
    "too_many_calls",
    "too_many_rounds",
    "mirror_superseded",
    "no_such_position",
    "position_fixed",
    "too_many_frames",
    "context_full",
]
"""Stored for ever: a reason may be added, none renamed or removed."""
