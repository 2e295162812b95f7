"""Whether the client of a run has all messages of the conversation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class ClientCopy:
    """What is known of a client's messages while events are made for it."""

    is_told_anew: bool
    """The streamed text is not what is stored, or has another id there: the messages are stated after it."""

    is_stale: bool = False
    """The client has other messages than the conversation."""
