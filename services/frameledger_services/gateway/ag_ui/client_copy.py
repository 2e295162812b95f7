"""Tracks whether the client of a run has the messages of the conversation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class ClientCopy:
    """What is known of a client's messages while events are made for it."""

    text_differs: bool
    """Whether the streamed text differs from the stored message, or has another id: then the messages are sent again
    after it."""

    is_stale: bool = False
    """Whether the client's messages differ from those of the conversation."""
