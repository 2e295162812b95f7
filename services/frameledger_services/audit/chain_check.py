"""Checks the hash chain of stored frames by computing it from their bytes, and that their versions have no gaps."""

from __future__ import annotations

from collections.abc import Sequence

from frameledger.chain import next_link
from frameledger_services.audit.differences import ROW, Differences
from frameledger_services.projector.head import Head
from frameledger_services.store.stored_rows import StoredFrameRow


class ChainCheck:
    """Checks the frames of one conversation, in order.

    A wrong link is reported once: the frames after it are checked against the stored link.
    """

    def __init__(self, head: Head, differences: Differences) -> None:
        """`head` is the state to continue from: that of the conversation's beginning or of an earlier verification."""
        self.version = head.version
        self.chain = head.chain
        self.started_at = head.started_at
        self.last_at = head.last_at
        self._differences = differences

    def check(self, frames: Sequence[StoredFrameRow]) -> None:
        version, chain, last_at = self.version, self.chain, self.last_at
        for frame in frames:
            if frame.version != version + 1:
                self._differences.add(version + 1, "frames", ROW, None, f"a frame of version {version + 1}")
            elif (link := next_link(chain, frame.version, frame.source, frame.payload)) != frame.chain:
                self._differences.add(frame.version, "frames", "chain", frame.chain, link)
            if last_at is not None and frame.logged_at < last_at:
                self._differences.add(
                    frame.version, "frames", "logged_at", frame.logged_at, f"not before {last_at}"
                )
            version, chain, last_at = frame.version, frame.chain, frame.logged_at
            self.started_at = self.started_at or last_at
        self.version, self.chain, self.last_at = version, chain, last_at
