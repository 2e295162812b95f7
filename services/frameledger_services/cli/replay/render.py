"""Playback of a conversation: text as it streamed, and a dim line for each event."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from frameledger.frames import (
    AnyFrame,
    CancelFrame,
    EndFrame,
    ErrorFrame,
    FunctionCallCancelFrame,
    FunctionCallInProgressFrame,
    FunctionCallResultFrame,
    InterruptionFrame,
    LLMContextFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMMessageRewriteFrame,
    LLMMessagesAppendFrame,
    LLMMessagesUpdateFrame,
    LLMMirrorFrame,
    TextFrame,
    TranscriptionFrame,
)
from frameledger_services.cli.terminal import escape, format_frame
from frameledger_services.cli.terminal.format_message import plain, speaker_and_text
from frameledger_services.cli.terminal.plural import plural
from frameledger_services.store.client_calls import BegunCall

_COLOURS = {"user": "green", "assistant": "cyan"}


class Screen:
    """Prints the playback line by line. Shows each applied frame once, in order."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._within_line = False
        self._speaks = False
        """Whether the current line has text of an answer."""

        self._ends_in_space = False

    def silence(self, seconds: float) -> None:
        """Print that a pause was shortened."""
        self._note(f"... {seconds:,.1f} s of silence, shortened")

    def show(self, frame: AnyFrame) -> None:
        """Print an applied frame."""
        match frame:
            case TranscriptionFrame(type="TranscriptionFrame"):
                self._say("user", frame.text)
            case LLMContextFrame():
                self._replaced(frame.context.messages)
            case LLMMessagesUpdateFrame():
                self._replaced(frame.messages)
            case LLMMessagesAppendFrame():
                self._messages(frame.messages)
            case LLMMessageRewriteFrame():
                self._rewritten(frame)
            case LLMMirrorFrame():
                keeper = "here again" if frame.mirror is None else f"by {escape.one_line(frame.mirror)}"
                self._note(f"the history is kept {keeper}")
            case LLMFullResponseStartFrame():
                if (frame.attempt or 1) > 1:
                    self._note(f"attempt {frame.attempt} starts over; the text before it is discarded")
                self._end_line()
            case TextFrame(said_by="model"):
                self._stream(frame)
            case LLMFullResponseEndFrame():
                self._end_line()
            case InterruptionFrame():
                heard = "" if frame.heard_text is None else f", heard: {escape.one_line(frame.heard_text)}"
                self._note(f"interrupted{heard}", "yellow")
            case FunctionCallInProgressFrame(waiting=waiting) if waiting is not None:
                self._note(
                    f"{escape.one_line(frame.function_name)} waits for {escape.one_line(waiting.for_)}"
                )
            case FunctionCallInProgressFrame():
                self._note(
                    f"{escape.one_line(frame.function_name)} {escape.one_line(plain(frame.arguments))}"
                )
            case FunctionCallResultFrame():
                self._note(f"{escape.one_line(frame.function_name)} = {escape.one_line(plain(frame.result))}")
            case FunctionCallCancelFrame():
                self._note(f"{escape.one_line(frame.function_name)} is cancelled")
            case ErrorFrame():
                self._note(format_frame.error(frame), "red")
            case EndFrame() | CancelFrame():
                self._note("the conversation ends")
            case _:
                pass

    def began(self, call: BegunCall) -> None:
        """Print a call that its client answers. It started with the last frame shown."""
        name = escape.one_line(call.function_name)
        self._note(f"{name} {escape.one_line(plain(call.arguments))}")
        self._note(f"{name} waits for the client")

    def end(self) -> None:
        """End the output."""
        self._end_line()

    def _rewritten(self, frame: LLMMessageRewriteFrame) -> None:
        if frame.message is None:
            self._note(f"message {frame.position} is removed")
        else:
            self._note(f"message {frame.position} is rewritten")
            self._messages((frame.message,))

    def _replaced(self, messages: Any) -> None:
        self._note(f"the context is opened with {plural(len(messages), 'message')}")
        self._messages(messages)

    def _messages(self, messages: Any) -> None:
        for message in messages:
            who, what = speaker_and_text(message)
            self._say(who, what)

    def _say(self, who: str, text: str) -> None:
        self._end_line()
        line = Text(f"{escape.one_line(who)}: ", _COLOURS.get(who, ""))
        self._console.print(line.append(escape.lines(text), ""), soft_wrap=True)

    def _stream(self, frame: TextFrame) -> None:
        text = frame.text
        if not self._speaks:
            text = text.lstrip()
            if not text:
                return
            self._end_line()
            self._console.print(Text("assistant: ", _COLOURS["assistant"]), end="", soft_wrap=True)
        elif type(frame) is TextFrame and text and not frame.includes_inter_frame_spaces:
            # Texts are joined with one space, as in rule R2.2.
            text = text if self._ends_in_space or text[0].isspace() else f" {text}"
        self._speaks = self._within_line = True
        self._ends_in_space = text[-1:].isspace() if text else self._ends_in_space
        self._console.print(Text(escape.lines(text)), end="", soft_wrap=True)

    def _note(self, text: str, style: str = "dim") -> None:
        self._end_line()
        self._console.print(Text(f"  {text}", style), soft_wrap=True)

    def _end_line(self) -> None:
        if self._within_line:
            self._console.print()
        self._within_line = self._speaks = False
