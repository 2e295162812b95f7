"""The text of an answer that is streamed, across the attempts of several workers. Pure.

If a worker dies, the next attempt generates the answer again from its start. Text that was sent cannot be retracted. So
the text of the new attempt is held back until it has repeated everything that was sent, and is sent from there on.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class ResumedText:
    """The text that was sent, compared with the text of the current attempt."""

    sent: str = ""

    def more(self, text: str, *, may_grow: bool = True) -> str | None:
        """Returns what to send next, where `text` is all text of the current attempt so far.

        Returns "" as long as the attempt repeats what was sent. Returns None if it differs, or if it ends before
        everything was repeated (`may_grow` is False): what was sent is then not part of this attempt's answer.
        """
        if text.startswith(self.sent):
            new = text[len(self.sent) :]
            self.sent = text
            return new
        return "" if may_grow and self.sent.startswith(text) else None

    def restart(self, text: str) -> None:
        """Record that `text` was sent as an answer of its own, from its start."""
        self.sent = text
