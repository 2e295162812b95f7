"""The ids of the frames that an observer publishes. Pure."""

from __future__ import annotations

from uuid import UUID

OWN = 0xF000_0000
"""The sequence of the first item of the bridge itself: more than any item that is captured."""


class FrameIds:
    """The ids of one session's frames: UUIDs of version 8 (RFC 9562), which begin with the session's random digits and
    end with the sequence of the captured item and the number of the frame within it. A hash of these, as in version 5,
    would take a quarter of the time that encoding a token takes."""

    def __init__(self, session: UUID) -> None:
        digits = session.hex
        self._session = f"{digits[:8]}-{digits[8:12]}-8{digits[13:16]}-{digits[16:20]}-"

    def of(self, sequence: int, number: int = 0) -> str:
        """Returns the id of this frame of a captured item."""
        return f"{self._session}{sequence:08x}{number:04x}"
