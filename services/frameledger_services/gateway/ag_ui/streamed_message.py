"""Messages whose events are sent while the model still writes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from frameledger_services.gateway.ag_ui.streamed_text import StreamedText

Event = dict[str, Any]
"""An event of the protocol, as its JSON object."""


class StreamedMessage:
    """A message of the assistant that is streamed: open from its first text on."""

    start: str
    content: str
    role: str

    def __init__(self, message_id: str) -> None:
        self.message_id = message_id
        self.streamed = StreamedText()
        self._is_open = False

    def events(self, delta: str) -> Iterator[Event]:
        """Returns the events for more text; the first ones open the message."""
        if not delta:
            return
        if not self._is_open:
            self._is_open = True
            yield from self.opening()
        yield {"type": self.content, "messageId": self.message_id, "delta": delta}

    def opening(self) -> Iterator[Event]:
        """Returns the events that open the message."""
        yield {"type": self.start, "messageId": self.message_id, "role": self.role}


class OpenText(StreamedMessage):
    """Text of an answer."""

    start, content, role = "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "assistant"


class OpenThought(StreamedMessage):
    """Reasoning."""

    start, content, role = "REASONING_MESSAGE_START", "REASONING_MESSAGE_CONTENT", "reasoning"

    def opening(self) -> Iterator[Event]:
        """Returns the events that open the message, and the reasoning around it."""
        yield {"type": "REASONING_START", "messageId": self.message_id}
        yield from super().opening()
