"""The ids of the frames that an observer publishes. Pure."""

from __future__ import annotations

from uuid import UUID

UNNUMBERED, OWN = 0xE000_0000, 0xF000_0000
"""The sequences of tokens that were captured without a number, and of the bridge's own frames, begin here. No session
captures that many items."""


class NumberedIds:
    """The ids of one session's frames: UUIDs of version 8 (RFC 9562), which begin with the session's random digits and
    end with the sequence of the captured item and the number of the frame within it. Version 5 would hash these, which
    takes a seventh of the time of encoding a token."""

    def __init__(self, session: UUID) -> None:
        digits = session.hex
        self._session = f"{digits[:8]}-{digits[8:12]}-8{digits[13:16]}-{digits[16:20]}-"

    def of(self, sequence: int, number: int = 0) -> str:
        """Returns the id of this frame of a captured item."""
        return f"{self._session}{sequence:08x}{number:04x}"
