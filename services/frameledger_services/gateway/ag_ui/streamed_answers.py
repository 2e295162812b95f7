"""The texts and thoughts of a model in a run as events, each with the id that its message will have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from frameledger.frames import LLMFullResponseStartFrame, LLMThoughtTextFrame, TextFrame
from frameledger_services.gateway.ag_ui.client_copy import ClientCopy
from frameledger_services.gateway.ag_ui.messages import nth
from frameledger_services.gateway.ag_ui.streamed_message import Event, OpenText, OpenThought
from frameledger_services.store.shown_messages import WrittenMessage


class StreamedAnswers:
    """The responses of one run of a client, in order."""

    def __init__(self, copy: ClientCopy) -> None:
        self._copy = copy
        self._text: OpenText | None = None
        self._thought: OpenThought | None = None
        self._answers: str | None = None
        """The run of the open response, or of the last one. None before the first start: text of an earlier
        response is shown only when it is stored."""

        self._name = ""
        """The id of its first message of text: that of its run, under which it is stored, or a temporary one."""

        self._is_unnamed = False
        self._texts: Counter[str] = Counter()
        """The number of messages of text that count, by run."""

    @property
    def has_open_text(self) -> bool:
        """Whether the client is in the middle of a text."""
        return self._text is not None and self._text.streamed.is_begun

    def is_open_for(self, run_id: str | None) -> bool:
        """Returns whether the open response may belong to this run. `run_id` is None if a frame names no run."""
        return run_id is None or self._answers in (None, run_id) or self._is_unnamed

    def may_have_said(self, message: WrittenMessage) -> bool:
        """Returns whether a message may be the open text. The text of a response that names no run may be any text of
        the assistant: the messages are sent again after it."""
        if message.role != "assistant" or message.makes_calls:
            return False
        return self._is_unnamed or (message.run_id is not None and message.run_id == self._answers)

    def start(self, version: int, frame: LLMFullResponseStartFrame) -> Iterator[Event]:
        """Begin a response."""
        yield from self.close()
        if frame.run_id is None:
            # It may answer a run without naming it: its text is stored under an id that is not known yet.
            self._answers, self._is_unnamed = f"said-{version}", True
        else:
            # An earlier attempt, and a response that did not name this run, are superseded.
            self._copy.is_stale = self._copy.is_stale or frame.run_id in self._texts or self._is_unnamed
            self._answers, self._is_unnamed = frame.run_id, False
            self._texts[frame.run_id] = 0
        # A mirror keeps the text of an earlier attempt, which may have the run's id.
        self._name = f"said-{version}" if self._copy.text_differs else self._answers

    def say(self, frame: TextFrame, *, carries_spaces: bool) -> Iterator[Event]:
        """Add a piece of text."""
        if not frame.append_to_context or self._answers is None:
            return
        if self._text is None:
            self._text = OpenText(nth(self._name, self._texts[self._answers] + 1))
        yield from self._text.events(self._text.streamed.add(frame.text, carries_spaces))

    def close(self) -> Iterator[Event]:
        """End the open text and the open thought."""
        yield from self.close_text()
        yield from self.close_thought()

    def close_text(self) -> Iterator[Event]:
        """End the open text. The next text is another message."""
        text, self._text = self._text, None
        self._copy.is_stale = self._copy.is_stale or self._answers is None or self._is_unnamed
        if text is None:
            return
        yield from text.events(text.streamed.end())
        if not text.streamed.is_begun:
            return
        yield {"type": "TEXT_MESSAGE_END", "messageId": text.message_id}
        assert self._answers is not None
        self._texts[self._answers] += 1
        self._copy.is_stale = self._copy.is_stale or self._copy.text_differs

    def start_thought(self, version: int) -> Iterator[Event]:
        """Begin a thought."""
        yield from self.close_thought()
        self._thought = OpenThought(f"thought-{version}")

    def think(self, frame: LLMThoughtTextFrame) -> Iterator[Event]:
        """Add a piece of a thought. Providers that only sign their thoughts send pieces without text, which are not
        shown."""
        if self._thought is not None:
            yield from self._thought.events(self._thought.streamed.add(frame.text, carries_spaces=True))

    def close_thought(self) -> Iterator[Event]:
        """End the open thought."""
        thought, self._thought = self._thought, None
        if thought is None:
            return
        yield from thought.events(thought.streamed.end())
        if thought.streamed.is_begun:
            yield {"type": "REASONING_MESSAGE_END", "messageId": thought.message_id}
            yield {"type": "REASONING_END", "messageId": thought.message_id}
